"""Web tools that a server runs: how a wire declares them, shows their calls and results, and reads these again.

A gateway that runs such a tool for a model declares a function to the model, and shows the client what its provider
would show. When the client sends this back, the model gets the call and the result of the function again, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.events import Opaque, Text, ToolCall
from penstock.messages import Message, Part, ToolResult, tool_results

Json = dict[str, Any]
SEARCH, FETCH = "web_search", "web_fetch"
ARGUMENTS = {SEARCH: "query", FETCH: "url"}
"""The web tools, and the argument of each."""
UNAVAILABLE, INVALID, TOO_MANY = "unavailable", "invalid_tool_input", "max_uses_exceeded"
NOT_ALLOWED, NOT_SEEN = "url_not_allowed", "url_not_in_prior_context"
"""Why a web tool did not run, in the words of the protocols."""


OWN = "gw"
"""The part of an id that marks a call as run by a gateway."""
FAILED = "The tool failed: {}."


class WebSource(Struct, frozen=True):
    """A page that a search has found."""

    url: str
    title: str = ""


class WebCall(Struct, frozen=True):
    """A call of a web tool; `argument` is the query or the URL."""

    id: str
    name: str
    argument: str

    def as_tool_call(self, block: int = 0) -> ToolCall:
        """The call as one of a function."""
        return ToolCall(self.id, self.name, {ARGUMENTS[self.name]: self.argument}, block=block)


class WebResult(Struct, frozen=True):
    """The result of a web tool: the text for the model, the pages for the client, and why it failed, if it did."""

    text: str
    sources: tuple[WebSource, ...] = ()
    error: str = ""

    def as_tool_result(self, call: WebCall) -> ToolResult:
        """The result as one of a function."""
        return ToolResult(call.id, call.name, (Text(0, self.text),), bool(self.error))


def failed_result(error: str) -> WebResult:
    """The result of a tool that failed; the text says no more than the client can send back."""
    return WebResult(FAILED.format(error), error=error)


class ShownResult(Struct, frozen=True):
    """A result that a client sends back; `text` is None if the block does not hold it."""

    call_id: str
    text: str | None
    is_error: bool = False


class WebForm(Struct, frozen=True):
    """The blocks in which a wire has web tools that its server runs.

    `types` are the types of declarations by tool, as patterns. `id_start` begins the ids of calls that a gateway ran.
    A wire without a block for the call alone has no `show_call`: the block of the result is also that of the call.
    """

    id_start: str
    types: Mapping[str, tuple[str, ...]]
    show_call: Callable[[WebCall], Json | None]
    show_result: Callable[[WebCall, WebResult], Json]
    read_call: Callable[[Json], WebCall | None]
    read_result: Callable[[Json], ShownResult | None]

    def tool_of(self, tool: ToolDeclaration) -> str:
        """The name of the web tool that is declared; empty if it is another tool."""
        kind = str((tool.hosted or {}).get("type") or "")
        return next((name for name, types in self.types.items() if any(fnmatchcase(kind, one) for one in types)), "")


FindText = Callable[[str], str | None]
"""Finds the text of a result by the id of its call."""
FORGOTTEN = "The result is no longer known."


def call_id(form: WebForm, request: str, number: int, call: int) -> str:
    """The id of a call that a gateway runs: it names the request, the number of the round, and the call in it."""
    return f"{form.id_start}{request}_{number}_{call}"


def _round_of(id: str) -> str:
    return id.rpartition("_")[0]


def restore_calls(messages: tuple[Message, ...], form: WebForm, find: FindText) -> tuple[Message, ...]:
    """The messages with calls and results of functions in place of the blocks that a gateway showed."""
    return tuple(restored for message in messages for restored in _restored(message, form, find))


def _restored(message: Message, form: WebForm, find: FindText) -> Iterator[Message]:
    """The messages of a response: the results of a round end it, and what follows is the next round."""
    calls = _own_calls(message, form)
    if not calls:
        yield message
        return
    parts: list[Part] = []
    results: list[ToolResult] = []
    for part in message.parts:
        call, shown = _call_in(part, form, calls), _result_in(part, form, calls)
        if results and (shown is None or _round_of(shown.call_id) != _round_of(results[-1].call_id)):
            yield from (replace(message, parts=tuple(parts)), tool_results(*results))
            parts, results = [], []
        if call is not None:
            parts.append(call.as_tool_call(_block(part)))
        if shown is not None:
            results.append(_as_result(shown, calls[shown.call_id], find))
        elif call is None:
            parts.append(part)
    yield replace(message, parts=tuple(parts))
    if results:
        yield tool_results(*results)


def _own_calls(message: Message, form: WebForm) -> dict[str, WebCall]:
    """The calls of a message that a gateway ran, and that have a result."""
    if message.role != "assistant":
        return {}
    blocks = [part.data for part in message.parts if isinstance(part, Opaque) and isinstance(part.data, dict)]
    answered = {shown.call_id for block in blocks if (shown := form.read_result(block)) is not None}
    calls = [call for block in blocks if (call := form.read_call(block)) is not None]
    return {call.id: call for call in calls if call.id in answered and call.id.startswith(form.id_start)}


def _call_in(part: Part, form: WebForm, calls: Mapping[str, WebCall]) -> WebCall | None:
    call = form.read_call(part.data) if isinstance(part, Opaque) and isinstance(part.data, dict) else None
    return call if call is not None and call.id in calls else None


def _result_in(part: Part, form: WebForm, calls: Mapping[str, WebCall]) -> ShownResult | None:
    shown = form.read_result(part.data) if isinstance(part, Opaque) and isinstance(part.data, dict) else None
    return shown if shown is not None and shown.call_id in calls else None


def _block(part: Part) -> int:
    return part.block if isinstance(part, Opaque) else 0


def _as_result(shown: ShownResult, call: WebCall, find: FindText) -> ToolResult:
    text = find(call.id) if shown.text is None else shown.text
    return WebResult(FORGOTTEN if text is None else text, error="failed" if shown.is_error else "").as_tool_result(call)
