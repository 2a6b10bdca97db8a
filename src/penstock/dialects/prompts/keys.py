"""Prompts for dialects with each argument as raw text after its key: `<parameter=K>…`, or `<arg_key>K</arg_key>…`."""

from __future__ import annotations

from penstock.dialects.prompt import Prompt
from penstock.dialects.prompts.listings import python_stubs, tagged_tools
from penstock.dialects.prompts.templates import (
    IN_WORDS,
    RAW_RULE,
    TOOL_RESPONSE,
    Calls,
    Listing,
    Results,
)

PAIR = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"

PROMPTS = {
    "qwen3_coder": Prompt(
        listing=tagged_tools("function", "name"),
        calls=Calls(
            call="<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>",
            parameter="<parameter={key}>\n{value}\n</parameter>\n",
        ),
        results=TOOL_RESPONSE,
        rules=(RAW_RULE,),
        stop=("\n<tool_response>",),
    ),
    "seed_oss": Prompt(
        listing=python_stubs,
        calls=Calls(
            call="<seed:tool_call>\n<function={name}>\n{parameters}</function>\n</seed:tool_call>",
            parameter="<parameter={key}>{value}</parameter>\n",
        ),
        results=IN_WORDS,
        rules=(RAW_RULE,),
    ),
    "glm45": Prompt(
        listing=Listing(),
        calls=Calls(call="<tool_call>{name}\n{parameters}</tool_call>", parameter=PAIR),
        results=TOOL_RESPONSE,
        rules=(RAW_RULE,),
        stop=("\n<tool_response>",),
    ),
    "hunyuan_v3": Prompt(
        listing=Listing(),
        calls=Calls(
            calls="<tool_calls>\n{calls}\n</tool_calls>",
            call="<tool_call>{name}<tool_sep>\n{parameters}</tool_call>",
            parameter=PAIR,
        ),
        results=Results(
            result="<tool_response>\n{text}\n</tool_response>", results="<tool_responses>\n{results}\n</tool_responses>"
        ),
        rules=(RAW_RULE,),
        stop=("\n<tool_responses>",),
    ),
    "kimi_k3": Prompt(
        listing=Listing(tools="```json\n[{tools}]\n```", between=",\n"),
        calls=Calls(
            calls="<|open|>tools<|sep|>{calls}<|close|>tools<|sep|>",
            call='<|open|>call tool="{name}" index="{number}"<|sep|>{parameters}<|close|>call<|sep|>',
            between="",
            parameter='<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>',
        ),
        results=IN_WORDS,
        rules=("Say the type of each argument. Write text as it is and all other values as JSON.",),
    ),
}
