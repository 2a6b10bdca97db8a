"""The checks of calls: what the guard must clear per call, and when.

| | a call that is whole | a damaged or quoted call |
|---|---|---|
| with `Guard(call=…)` | `call`, when its arguments have closed | `text`, then `call` if it may run |
| a call that may be from the text, without it | passes when it has ended | `text`: its markup stays text |
| any other call, without it | passes piece by piece | passes |

The name of a tool that is not declared is checked as text in every case, before anything of its call passes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.events import Opaque, ToolCall, ToolCallClosed, ToolCallDelta, ToolCallInvalid, ToolCallStart
from penstock.guard.checks import Check, CheckQueue
from penstock.guard.guard import Guard
from penstock.guard.plain_json import plain_json
from penstock.wires import find_client_calls, find_facts
from penstock.wires.shared.encode_request.hosted_calls import HostedKey, call_key, result_key

CallChunk = ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid
_Place = tuple[int, int]


class CallChecks:
    """The check of each call of a response, by its choice and block."""

    def __init__(self, guard: Guard, checks: CheckQueue, *, has_text_calls: bool) -> None:
        self._checks = checks
        self._are_checked = guard.call is not None
        self._are_held = self._are_checked or (has_text_calls and "text" in guard.kinds)
        self._calls: dict[_Place, Check] = {}
        self._items: dict[HostedKey, Check] = {}  # checks of calls that are vendor state

    def find(self, chunk: CallChunk) -> Check | None:
        """The pending check of a chunk of a call. It is due when the arguments close, and again if they change."""
        if not self._are_held:
            return None
        place = chunk.choice, chunk.block
        check = self._calls.setdefault(place, Check("call"))
        match chunk:
            case ToolCallStart() | ToolCallDelta():
                return check
            case ToolCallClosed() | ToolCall():
                return self._complete(place, chunk.name, chunk.arguments)
            case ToolCallInvalid():
                return self._damaged(place, chunk)

    def find_item(self, state: Opaque) -> Check | None:
        """The pending check of a client-run vendor call; None for other state.

        The `ToolCall` of the same block makes it due; a result from the provider, which ran the call itself, clears it.
        """
        if not self._are_checked:
            return None
        facts, runs_here = find_facts(state.wire), find_client_calls(state.wire)
        if key := result_key(state, facts):
            self._clear(key)
        if runs_here is None or not isinstance(state.data, dict) or runs_here(state.data) is False:
            return None
        check = self._calls.setdefault((state.choice, state.block), Check("call"))
        if key := call_key(state, facts):
            self._items[key] = check
        return check

    def close(self) -> None:
        """End the response. Calls that are open then have neither ended nor been reported as cut."""
        for check in self._calls.values():
            if check.state == "open":
                check.state = "void"

    def restart(self) -> None:
        """Forget the calls."""
        self._calls.clear()
        self._items.clear()

    def _clear(self, key: HostedKey) -> None:
        check = self._items.pop(key, None)
        if check is not None and check.state == "open":
            check.state = "cleared"

    def _complete(self, place: _Place, name: str, arguments: dict[str, Any]) -> Check:
        known = self._calls[place]
        if not self._are_checked:
            known.state = "cleared"
            return known
        if known.state != "open" and (known.text, known.arguments) == (name, arguments):
            return known
        check = self._open(place)
        self._checks.add_call(check, name, arguments)
        return check

    def _damaged(self, place: _Place, call: ToolCallInvalid) -> Check:
        check = self._open(place)
        if not self._are_checked and call.origin == "native":
            check.state = "cleared"
            return check
        if self._are_checked and call.repaired is not None:
            check.next_call = call.name, call.repaired
        self._checks.add_text(check, plain_json(call.arguments_raw))
        return check

    def _open(self, place: _Place) -> Check:
        """The check of a call; a new one if the first has already started."""
        if self._calls[place].state != "open":
            self._calls[place] = Check("call")
        return self._calls[place]


class NameChecks:
    """The checks of names of tools that are not `declared`; without `declared`, all are."""

    def __init__(self, declared: Collection[str] | None, checks: CheckQueue) -> None:
        self._declared = declared
        self._checks = checks
        self._known: set[tuple[_Place, str]] = set()

    def find(self, chunk: CallChunk) -> Check | None:
        """The check of the name of a call, with the first chunk that has the name."""
        if self._declared is None or isinstance(chunk, ToolCallDelta) or not chunk.name:
            return None
        known = (chunk.choice, chunk.block), chunk.name
        if chunk.name in self._declared or known in self._known:
            return None
        self._known.add(known)
        check = Check("call")
        self._checks.add_text(check, chunk.name)
        return check

    def restart(self) -> None:
        """Forget the names."""
        self._known.clear()
