"""An example of every event that leaves a server."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from penstock import (
    ApprovalRequest,
    Done,
    Error,
    HistoryReplaced,
    Nested,
    OutputInvalid,
    Retry,
    Said,
    Text,
    ToolCallInvalid,
    ToolEnd,
    ToolResult,
    Usage,
)
from penstock.messages import user
from penstock.run.events import LogEvent, RunStart
from penstock.serve.public_events import PUBLIC_FIELDS

_VALUES = {str: "x", int: 1, bool: True, dict: {}, float: 1.0, tuple: ()}


def _example(kind: Any) -> Any:
    """An event of this type, with a value for each field that has no default."""
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            of = getattr(field.type, "__origin__", field.type)
            literals = get_args(field.type) if of not in _VALUES else ()
            fields[field.name] = _VALUES[of] if of in _VALUES else (literals[0] if literals else {})
    return kind(**fields)


_MADE: dict[type, LogEvent] = {
    ToolEnd: ToolEnd("k", ToolResult("c", "look", (Text(0, "sunny"),)), "done"),
    Done: Done("limit", "x", (user("hi"),), Usage(1, 2), "too many steps"),
    Said: Said(user("hi")),
    Nested: Nested(("c",), Text(0, "x")),
    ApprovalRequest: ApprovalRequest("c", "pay", {"a": 1}),
    OutputInvalid: OutputInvalid("bad", user("bad")),
    HistoryReplaced: HistoryReplaced(()),
    Retry: Retry("broken"),
    ToolCallInvalid: ToolCallInvalid(0, "c", "look", "{", "cut"),
    Error: Error("x", "code"),
    RunStart: RunStart((user("hi"),), "support"),
}

EXAMPLES: dict[type, LogEvent] = {kind: _MADE.get(kind) or _example(kind) for kind in PUBLIC_FIELDS}
