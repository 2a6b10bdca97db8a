"""Prompts for dialects with calls in tags and raw values: `<invoke name="…"><parameter name="…">…`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.dialects.prompt import Prompt
from penstock.dialects.prompts.listings import tagged_tools
from penstock.dialects.prompts.templates import (
    FUNCTION_LIST,
    IN_WORDS,
    MARKDOWN,
    RAW_RULE,
    TOOL_RESPONSE,
    Calls,
    Listing,
    Results,
    raw,
)
from penstock.events import ToolCall

INVOKE = '<invoke name="{name}">\n{parameters}</invoke>'
PARAMETER = '<parameter name="{key}">{value}</parameter>\n'
FUNCTIONS = Listing(tool="<function>{json}</function>", tools="<functions>\n{tools}\n</functions>")
MINIMAX_TOOLS = Listing(tool="<tool>{json}</tool>")
RESPONSES = Results(result="<response>{text}</response>")
SELF_TYPED = (
    'Mark text with string="true" and write it as it is. Mark all other values with string="false" and write JSON.'
)


def dsml(block: str) -> Calls:
    """Returns the template of the DSML dialects: every tag has a prefix, and every parameter says if it is text."""
    return Calls(
        calls=f"<｜DSML｜{block}>\n{{calls}}\n</｜DSML｜{block}>",
        call='<｜DSML｜invoke name="{name}">\n{parameters}</｜DSML｜invoke>',
        parameter='<｜DSML｜parameter name="{key}" string="{is_string}">{value}</｜DSML｜parameter>\n',
    )


def quoted(value: Any) -> str:
    """Returns raw text, in a CDATA section if it needs one."""
    text = raw(value)
    return f"<![CDATA[{text}]]>" if any(mark in text for mark in "<&\n") or text != text.strip() else text


# -- `NS<P>raw NS</P>`, nested ---------------------------------------------------------------------------------------

NS = "]<]minimax[>["
_TAG = re.compile(r"[\w.-]+\Z")


def element(name: str, value: Any) -> str:
    """Returns a value as an element: an object and a list as nested elements, anything else as raw text."""
    match value:
        case dict() if value and all(_TAG.match(key) for key in value):
            inner = "".join(element(key, item) for key, item in value.items())
        case [_, *_]:
            inner = "".join(element("item", item) for item in value)
        case _:
            inner = raw(value)
    return f"{NS}<{name}>{inner}{NS}</{name}>"


def minimax_m3(calls: Sequence[ToolCall]) -> str:
    """Returns `NS<tool_call>NS<invoke name="N">NS<P>raw NS</P>NS</invoke>NS</tool_call>`."""
    invokes = "".join(
        f'{NS}<invoke name="{call.name}">'
        + "".join(element(key, value) for key, value in call.arguments.items())
        + f"{NS}</invoke>\n"
        for call in calls
    )
    return f"{NS}<tool_call>\n{invokes}{NS}</tool_call>"


# -- dialects ------------------------------------------------------------------------------------------------------

PROMPTS = {
    "anthropic_xml": Prompt(
        listing=FUNCTIONS,
        calls=Calls(calls="<function_calls>\n{calls}\n</function_calls>", call=INVOKE, parameter=PARAMETER),
        results=Results(
            result="<result>\n<name>{name}</name>\n<output>{text}</output>\n</result>",
            error="<result>\n<name>{name}</name>\n<error>{text}</error>\n</result>",
            results="<function_results>\n{results}\n</function_results>",
        ),
        rules=(RAW_RULE,),
        stop=("\n<function_results>",),
    ),
    "anthropic_legacy": Prompt(
        listing=tagged_tools("tool_description", "tool_name"),
        calls=Calls(
            calls="<function_calls>\n{calls}\n</function_calls>",
            call="<invoke>\n<tool_name>{name}</tool_name>\n<parameters>\n{parameters}</parameters>\n</invoke>",
            parameter="<{key}>{value}</{key}>\n",
        ),
        results=Results(
            result="<result>\n<tool_name>{name}</tool_name>\n<stdout>{text}</stdout>\n</result>",
            error="<system>\n{name}: {text}\n</system>",
            results="<function_results>\n{results}\n</function_results>",
        ),
        rules=(RAW_RULE,),
        stop=("\n<function_results>",),
    ),
    "deepseek_dsml": Prompt(
        listing=FUNCTIONS,
        calls=dsml("function_calls"),
        results=Results(result="<result>{text}</result>", results="<function_results>\n{results}\n</function_results>"),
        rules=(SELF_TYPED,),
    ),
    "deepseek_dsml_v4": Prompt(
        listing=Listing(tool="{json}", tools="### Available Tool Schemas\n\n{tools}"),
        calls=dsml("tool_calls"),
        results=Results(result="<tool_result>{text}</tool_result>", between="\n\n"),
        rules=(SELF_TYPED,),
    ),
    "minimax_m2": Prompt(
        listing=MINIMAX_TOOLS,
        calls=Calls(calls="<minimax:tool_call>\n{calls}\n</minimax:tool_call>", call=INVOKE, parameter=PARAMETER),
        results=RESPONSES,
        rules=(RAW_RULE,),
    ),
    "minimax_m3": Prompt(
        listing=MINIMAX_TOOLS,
        calls=minimax_m3,
        results=RESPONSES,
        rules=("Write text as it is. Write objects as elements within the element, and lists as elements named item.",),
    ),
    "muse_glimmer": Prompt(
        listing=FUNCTION_LIST,
        calls=Calls(
            call=(
                "<|start|>assistant to={name}<|message|><atem:function_calls>\n"
                '<atem:invoke name="{name}">\n{parameters}</atem:invoke>\n</atem:function_calls><|eom|>'
            ),
            between="",
            parameter='<atem:parameter name="{key}">{value}</atem:parameter>\n',
        ),
        results=Results(result='<tool_output name="{name}">{text}</tool_output>'),
        rules=(RAW_RULE,),
    ),
    "step3": Prompt(  # the format of results is not documented
        listing=Listing(),
        calls=Calls(
            calls="<｜tool_calls_begin｜>{calls}<｜tool_calls_end｜>",
            call=(
                '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">'
                "{parameters}</steptml:invoke><｜tool_call_end｜>"
            ),
            between="",
            parameter='<steptml:parameter name="{key}">{value}</steptml:parameter>',
        ),
        results=IN_WORDS,
        rules=(RAW_RULE,),
    ),
    "dots": Prompt(  # the format of results is not documented
        listing=Listing(),
        calls=Calls(calls="<dots_function_call>\n{calls}\n</dots_function_call>", call=INVOKE, parameter=PARAMETER),
        results=IN_WORDS,
        rules=(RAW_RULE,),
    ),
    "minicpm5": Prompt(
        listing=Listing(),
        calls=Calls(
            call='<function name="{name}">{parameters}</function>',
            parameter='<param name="{key}">{value}</param>',
            value=quoted,
        ),
        results=TOOL_RESPONSE,
        rules=(
            "Write text as it is; if it has a <, a & or a line break in it, put it between <![CDATA[ and ]]>. "
            "Write all other values as JSON.",
        ),
        stop=("\n<tool_response>",),
    ),
    "cline_xml": Prompt(
        listing=MARKDOWN,
        calls=Calls(
            call="<{name}>\n{parameters}</{name}>",
            parameter="<{key}>{value}</{key}>\n",
            special={"content": "<content>\n{value}\n</content>\n"},
        ),
        results=Results(
            result="[{name}] Result:\n{text}",
            error="[{name}] Error:\n{text}",
            between="\n\n",
            headings=(r"\[[^\]\n]{1,128}\]\s*(?:Result|Error)\s*:",),
        ),
        rules=("The tags are the names of the tool and of its arguments.", RAW_RULE),
    ),
}
