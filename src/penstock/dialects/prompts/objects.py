"""Prompts for dialects with a call as a JSON object."""

from __future__ import annotations

from penstock.dialects.prompt import Prompt
from penstock.dialects.prompts.listings import python_stubs, typescript
from penstock.dialects.prompts.templates import (
    FUNCTION_LIST,
    IN_WORDS,
    JSON_LIST,
    JSON_RULE,
    MARKDOWN,
    TOOL_RESPONSE,
    Calls,
    Listing,
    Results,
)

OBJECT = '{{"name": "{name}", "arguments": {arguments}}}'
PARAMETERS = '{{"name": "{name}", "parameters": {arguments}}}'
TOOLS = Listing()
FENCED = Listing(tool="{json}", tools="```json\n[\n{tools}\n]\n```", between=",\n")
OWN_ID = "Give each call an id of its own."
ALONE = "If you call tools, write nothing but the calls."


def _array(opens: str = "", closes: str = "", call: str = OBJECT) -> Calls:
    """Returns the template of a JSON array of calls between two marks."""
    return Calls(calls=f"{opens}[{{calls}}]{closes}", call=call, between=", ")


PROMPTS = {
    "hermes": Prompt(
        listing=TOOLS,
        calls=Calls(call=f"<tool_call>\n{OBJECT}\n</tool_call>"),
        results=TOOL_RESPONSE,
        rules=(JSON_RULE,),
        stop=("\n<tool_response>",),
    ),
    "longcat": Prompt(  # the format of results is not documented
        listing=TOOLS,
        calls=Calls(call=f"<longcat_tool_call>\n{OBJECT}\n</longcat_tool_call>"),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "ernie45": Prompt(  # the format of results is not documented
        listing=TOOLS,
        calls=Calls(call=f"<tool_call>\n{OBJECT}\n</tool_call>"),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "minimax_m1": Prompt(
        listing=TOOLS,
        calls=Calls(calls="<tool_calls>\n{calls}\n</tool_calls>", call=OBJECT),
        results=Results(
            result="tool name: {name}\ntool result: {text}",
            between="\n\n",
            headings=(r"\btool\s+(?:name|result)\s*:",),
        ),
        rules=(JSON_RULE,),
        stop=("\ntool result:",),
    ),
    "tool_calls_json_array": Prompt(
        listing=FUNCTION_LIST,
        calls=_array("<tool_calls>", "</tool_calls>"),
        results=TOOL_RESPONSE,
        rules=(JSON_RULE,),
        stop=("\n<tool_response>",),
    ),
    "nemotron_v2": Prompt(
        listing=Listing(tools="<AVAILABLE_TOOLS>[{tools}]</AVAILABLE_TOOLS>", between=", "),
        calls=_array("<TOOLCALL>", "</TOOLCALL>"),
        results=Results(result="{quoted}", results="<TOOL_RESPONSE>[{results}]</TOOL_RESPONSE>", between=", "),
        rules=(JSON_RULE,),
        stop=("\n<TOOL_RESPONSE>",),
    ),
    "granite3": Prompt(listing=FUNCTION_LIST, calls=_array("<|tool_call|>"), results=IN_WORDS, rules=(JSON_RULE,)),
    "granite_20b": Prompt(
        listing=Listing(tool="{json}", tools="<|function_call_library|>\n{tools}"),
        calls=Calls(call=f"<function_call> {OBJECT}"),
        results=Results(result="<function_response> {text}"),
        rules=(JSON_RULE,),
        stop=("\n<function_response>",),
    ),
    "mistral_array": Prompt(
        listing=Listing(tools="[AVAILABLE_TOOLS][{tools}][/AVAILABLE_TOOLS]", between=", "),
        calls=_array("[TOOL_CALLS]", call='{{"name": "{name}", "arguments": {arguments}, "id": "{id}"}}'),
        results=Results(result='[TOOL_RESULTS]{{"content": {quoted}, "call_id": "{id}"}}[/TOOL_RESULTS]', between=""),
        rules=(JSON_RULE, "Give each call an id of its own, of nine letters and digits."),
    ),
    "llama3_json": Prompt(
        listing=Listing(tools="{tools}"),
        calls=Calls(call=PARAMETERS, between="; "),
        results=IN_WORDS,
        rules=(JSON_RULE, ALONE),
    ),
    "bare_json": Prompt(listing=JSON_LIST, calls=_array(), results=IN_WORDS, rules=(JSON_RULE, ALONE)),
    "xlam": Prompt(listing=JSON_LIST, calls=_array(), results=IN_WORDS, rules=(JSON_RULE, ALONE)),
    "functools": Prompt(
        listing=Listing(tool="{json}", tools="<|tool|>[{tools}]<|/tool|>", between=", "),
        calls=_array("functools"),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "internlm2": Prompt(
        listing=JSON_LIST,
        calls=Calls(call=f"<|action_start|><|plugin|>\n{PARAMETERS}<|action_end|>"),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "apertus": Prompt(
        listing=typescript,
        calls=_array("<|tools_prefix|>", "<|tools_suffix|>", '{{"{name}": {arguments}}}'),
        results=Results(result="{quoted}", results="[{results}]", between=", "),
        rules=(JSON_RULE,),
    ),
    "cohere_action": Prompt(
        listing=FENCED,
        calls=Calls(
            calls="<|START_ACTION|>[\n{calls}\n]<|END_ACTION|>",
            call='    {{"tool_call_id": "{id}", "tool_name": "{name}", "parameters": {arguments}}}',
            between=",\n",
        ),
        results=Results(
            result='    {{"tool_call_id": "{id}", "results": {{"0": {quoted}}}, "is_error": null}}',
            error='    {{"tool_call_id": "{id}", "results": {{"0": {quoted}}}, "is_error": true}}',
            results="<|START_TOOL_RESULT|>[\n{results}\n]<|END_TOOL_RESULT|>",
            between=",\n",
        ),
        rules=(JSON_RULE, OWN_ID),
    ),
    "cohere_r_plus": Prompt(
        listing=python_stubs,
        calls=Calls(
            calls="Action:\n```json\n[\n{calls}\n]\n```",
            call='    {{"tool_name": "{name}", "parameters": {arguments}}}',
            between=",\n",
        ),
        results=Results(
            result="Document: {index}\n{name}\n{text}",
            results="<results>\n{results}\n</results>",
            between="\n\n",
            headings=(r"\bDocument\s*:(?=\s*\d)",),
        ),
        rules=(JSON_RULE,),
        stop=("\n<results>",),
    ),
    "gigachat3": Prompt(
        listing=typescript,
        calls=Calls(call=f"<|function_call|>{OBJECT}"),
        results=IN_WORDS,
        rules=(JSON_RULE,),
        is_single=True,
    ),
    "inkling": Prompt(  # the format of results is not documented
        listing=JSON_LIST,
        calls=Calls(
            call=(
                "<|message_model|>{name}<|content_invoke_tool_json|>"
                '{{"name": "{name}", "args": {arguments}}}<|end_message|>'
            ),
            between="",
        ),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "md_json_fence": Prompt(
        listing=MARKDOWN, calls=Calls(call=f"```json\n{OBJECT}\n```"), results=IN_WORDS, rules=(JSON_RULE,)
    ),
}
