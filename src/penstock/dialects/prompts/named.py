"""Prompts for dialects with the name of a call and the JSON of its arguments."""

from __future__ import annotations

import re

from penstock.dialects.prompt import Prompt
from penstock.dialects.prompts.listings import typescript
from penstock.dialects.prompts.templates import (
    IN_WORDS,
    JSON_RULE,
    MARKDOWN,
    Calls,
    Listing,
    Results,
)
from penstock.events import ToolCall
from penstock.messages import ToolResult

TOOLS = Listing()

# -- `functions.NAME:INDEX` ----------------------------------------------------------------------------------------

_KIMI_ID = re.compile(r"(?:functions\.)?[\w.-]+:\d+\Z")


def _numbered(name: str, id: str, index: int) -> str:
    """Returns the id if it has the dialect's format, else the id for a call at that index."""
    return id if _KIMI_ID.match(id) else f"functions.{name}:{index}"


def kimi_id(call: ToolCall, index: int) -> str:
    return _numbered(call.name, call.id, index)


def kimi_result_id(result: ToolResult, index: int) -> str:
    return _numbered(result.name, result.call_id, index)


PROMPTS = {
    "mistral_v11": Prompt(
        listing=Listing(tools="[AVAILABLE_TOOLS][{tools}][/AVAILABLE_TOOLS]", between=", "),
        calls=Calls(call="[TOOL_CALLS]{name}[ARGS]{arguments}", between=""),
        results=Results(result="[TOOL_RESULTS]{text}[/TOOL_RESULTS]", between=""),
        rules=(JSON_RULE,),
    ),
    "functionary_v31": Prompt(
        listing=Listing(tool="Use the function '{name}' to '{description}':\n{json}", tools="{tools}", between="\n\n"),
        calls=Calls(call="<function={name}>{arguments}</function>"),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "functionary_v32": Prompt(
        listing=typescript, calls=Calls(call=">>>{name}\n{arguments}", between=""), results=IN_WORDS, rules=(JSON_RULE,)
    ),
    "solar_open": Prompt(
        listing=Listing(
            tool="<|tool:begin|>{json}<|tool:end|>", tools="<|tools:begin|>{tools}<|tools:end|>", between=""
        ),
        calls=Calls(
            calls="<|tool_calls|>{calls}<|calls|>",
            call="<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
            between="",
        ),
        results=Results(
            result="<|tool_response:begin|>{id}<|tool_response:name|>{name}<|tool_response:result|>{text}<|tool_response:end|>",
            between="",
        ),
        rules=(JSON_RULE, "Give each call an id of its own."),
    ),
    "deepseek_v3": Prompt(
        listing=TOOLS,
        calls=Calls(
            calls="<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>",
            call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        ),
        results=Results(
            result="<｜tool▁output▁begin｜>{text}<｜tool▁output▁end｜>",
            results="<｜tool▁outputs▁begin｜>{results}<｜tool▁outputs▁end｜>",
        ),
        rules=(JSON_RULE,),
    ),
    "deepseek_v31": Prompt(
        listing=MARKDOWN,
        calls=Calls(
            calls="<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>",
            call="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
            between="",
        ),
        results=Results(result="<｜tool▁output▁begin｜>{text}<｜tool▁output▁end｜>"),
        rules=(JSON_RULE,),
    ),
    "kimi_k2": Prompt(
        listing=Listing(tools="[{tools}]", between=", "),
        calls=Calls(
            calls="<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>",
            call="<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
            between="",
            id=kimi_id,
        ),
        results=Results(
            result="## Return of {id}\n{text}",
            between="\n\n",
            id=kimi_result_id,
            headings=(r"#(?=#\s*Return\s+of\b)",),
        ),
        rules=(JSON_RULE, "Number the calls of the conversation: the first ends with :0, the next with :1 and so on."),
        stop=("\n## Return of functions.",),
    ),
    "harmony": Prompt(
        listing=typescript,
        calls=Calls(
            call=(
                "<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json"
                "<|message|>{arguments}<|call|>"
            ),
            between="",
        ),
        results=IN_WORDS,
        rules=(JSON_RULE,),
    ),
    "react": Prompt(
        listing=Listing(tool="{name}: {description} Arguments: {schema}", tools="{tools}"),
        calls=Calls(call="Action: {name}\nAction Input: {arguments}"),
        results=Results(result="Observation: {text}", headings=(r"\bObservation\s*:",)),
        rules=(
            JSON_RULE,
            "Before a call, write a line that begins with 'Thought:' and says why you make it.",
            "Begin your answer to the user with 'Final Answer:'.",
        ),
        is_single=True,
        stop=("\nObservation:",),
    ),
}
