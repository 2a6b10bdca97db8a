"""The facts of OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.wires.shared.encode_request.output_format import OPENAI_SCHEMAS
from penstock.wires.shared.facts import (
    CALL_REASONS,
    CHANGED_NAMES,
    CHOICES,
    FINISH_MESSAGES,
    LATE_IDS,
    HostedTool,
    IdRules,
    Loss,
    PassedPaths,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.remembered import PARENT, ServerMemory
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

PROGRAM = HostedTool(calls=("program",), results="program_output", call_id="call_id", result_id="call_id")
"""A program of the model: the calls that it makes come between its item and that of its output."""
_CALLS_WITH_OUTPUT_ITEMS = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
"""The items of hosted calls that have an output item of their own; all others contain their output."""


class ClientCall(Struct, frozen=True, kw_only=True):
    """An item in which the model calls a tool that OpenAI defines and the client runs, or asks for its approval.

    `tools` are the types with which the tool is declared, `fields` those of the item that are its arguments, `id` the
    field with the id of the call, and `output` the item with the result, in which `output_id` repeats the id.
    """

    tools: tuple[str, ...]
    fields: tuple[str, ...]
    output: str
    id: str = "call_id"
    output_id: str = "call_id"


CLIENT_CALLS: Mapping[str, ClientCall] = {
    "computer_call": ClientCall(
        tools=("computer", "computer_use_preview"), fields=("action", "actions"), output="computer_call_output"
    ),
    "shell_call": ClientCall(tools=("shell",), fields=("action",), output="shell_call_output"),
    "local_shell_call": ClientCall(tools=("local_shell",), fields=("action",), output="local_shell_call_output"),
    "apply_patch_call": ClientCall(tools=("apply_patch",), fields=("operation",), output="apply_patch_call_output"),
    "tool_search_call": ClientCall(tools=("tool_search",), fields=("arguments",), output="tool_search_output"),
    "mcp_approval_request": ClientCall(
        tools=("mcp",), fields=("server_label", "name", "arguments"), output="mcp_approval_response",
        id="id", output_id="approval_request_id",
    ),
}  # fmt: skip
"""The items that the client must answer, unless their output is in the same response."""
OUTPUT_ITEMS = {call.output: kind for kind, call in CLIENT_CALLS.items()}
"""The types of the items with results, and those of their calls."""

FACTS = WireFacts(
    wire="openai-responses",
    ids=IdRules(max_length=64),
    max_name=128,
    states=(
        StateFacts("message", on="text"),
        StateFacts("function_call", on="call"),
        StateFacts("custom_tool_call", on="call"),
        StateFacts("reasoning", on="reasoning", text="reasoning"),
    ),
    hosted_tools=(
        PROGRAM,
        *(
            HostedTool(calls=(call,), results=f"{call}_output", call_id="call_id", result_id="call_id")
            for call in _CALLS_WITH_OUTPUT_ITEMS
        ),
    ),
    caller=("function_call", "caller.caller_id"),
    callers_need_calls=True,
    continued_by=("previous_response_id", "conversation"),
    item_id="id",
    reference="item_reference",
    kept_fields=("conversation", "prompt"),
    passed_headers=("openai-beta",),
    passed_paths=PassedPaths("/responses"),
    results_may_come_late=True,
    export_extra={"store": True},  # items that the provider stores are written by their id
    losses=(
        CALL_REASONS,
        CHANGED_NAMES,
        CHOICES,
        FINISH_MESSAGES,
        LATE_IDS,
        Loss("item_ids", "changed", "an item keeps the id that it was added with, before its vendor state is known"),
        Loss("reasoning_text", "changed", "reasoning is streamed as a summary, which its item then has"),
    ),
    output=OPENAI_SCHEMAS,
    memory=ServerMemory(
        history="input",
        following={"previous_response_id": PARENT},
        stored={"store": True},
        single=("generate", "client_metadata", "stream_options"),
        warm_up={"generate": False},
        client_roles=frozenset({"user", "system", "developer"}),
        client_types=frozenset({"function_call_output", "custom_tool_call_output", *OUTPUT_ITEMS}),
        lost=frozenset({"previous_response_not_found", "websocket_connection_limit_reached"}),
    ),
)

ECHOED: Mapping[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "service_tier": "default", "store": True,
    "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
    "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
"""The fields of a request that a response repeats, with their defaults."""

USAGE = UsageTable(
    input=("input_tokens", "prompt_tokens"),
    output=("output_tokens", "completion_tokens"),
    parts={
        "cached_tokens": ("input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens"),
        "cache_write_tokens": (
            "input_tokens_details.cache_write_tokens", "prompt_tokens_details.cache_write_tokens",
        ),
        "reasoning_tokens": (
            "output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens",
        ),
    },
    total=("total_tokens",),
    written=(
        WrittenCount("input_tokens", "input_tokens"),
        WrittenCount("input_tokens_details.cached_tokens", "cached_tokens"),
        WrittenCount("input_tokens_details.cache_write_tokens", "cache_write_tokens", ("cache_write_tokens",)),
        WrittenCount("output_tokens", "output_tokens"),
        WrittenCount("output_tokens_details.reasoning_tokens", "reasoning_tokens"),
        WrittenCount("total_tokens", "total"),
    ),
)  # fmt: skip
