"""Lenient reading of lists and results: one invalid tool or one unknown kind of content does not discard the rest.

The SDK validates a message as a whole, and raises. Here an invalid tool is left out of its list and reported, and
content of an unknown kind becomes text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp_types import methods
from pydantic import ValidationError

from penstock.results import MAX_PARTS

MAX_LISTED = 5000
"""The tools on one page of a list that are read."""

Skip = Callable[[str, str], None]


def make_lenient(session: Any, skip: Skip) -> None:
    """Make a session of the SDK accept the valid part of a message; `skip` gets the name of a tool, and the reason."""
    dispatcher: Any = getattr(session, "_dispatcher", None)
    strict = getattr(dispatcher, "send_raw_request", None)
    if strict is None:  # in another version of the SDK: then it is strict
        return

    async def send(method: str, *arguments: Any, **options: Any) -> Any:
        raw = await strict(method, *arguments, **options)
        return _valid_part(method, session.protocol_version or "2025-11-25", raw, skip)

    dispatcher.send_raw_request = send


def _valid_part(method: str, version: str, raw: dict[str, Any], skip: Skip) -> dict[str, Any]:
    """The valid part of a message. It is shortened first, because the SDK takes a second for 30,000 items."""
    raw = _shortened(method, raw, skip)
    match method, raw:
        case "tools/list", {"tools": list(tools)} if _problem(method, version, raw):
            kept: list[Any] = []
            for tool in tools:
                if problem := _problem(method, version, {**raw, "tools": [tool]}):
                    skip(str(tool.get("name", "") if isinstance(tool, dict) else tool)[:100], problem)
                else:
                    kept.append(tool)
            return {**raw, "tools": kept}
        case "tools/call", {"content": list(blocks)} if _problem(method, version, raw):
            readable = [
                {"type": "text", "text": json.dumps(block)}
                if _problem(method, version, {**raw, "content": [block]})
                else block
                for block in blocks
            ]
            return {**raw, "content": readable}
        case _:
            return raw


def _shortened(method: str, raw: dict[str, Any], skip: Skip) -> dict[str, Any]:
    """The message with a limited number of tools or result parts."""
    match method, raw:
        case "tools/list", {"tools": list(tools)} if len(tools) > MAX_LISTED:
            skip("…", f"the server lists {len(tools)} tools at once, of which only {MAX_LISTED} are read")
            return {**raw, "tools": tools[:MAX_LISTED]}
        case "tools/call", {"content": list(blocks)} if len(blocks) > MAX_PARTS:
            left = len(blocks) - MAX_PARTS + 1
            note = {"type": "text", "text": f"… {left} more parts were left out …"}
            return {**raw, "content": [*blocks[: MAX_PARTS - 1], note]}
        case _:
            return raw


def _problem(method: str, version: str, raw: dict[str, Any]) -> str:
    """Why a result is invalid in this protocol version; empty if it is valid."""
    try:
        methods.validate_server_result(method, version, raw)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except KeyError:  # a method that this version does not have
        pass
    return ""
