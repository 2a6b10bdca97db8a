"""Calls that a provider sends more than once: with the same id, name and arguments they are one call.

An id that an answer uses again is suspect: the second call may be a copy of the first, or the server may give all calls
the same id (QUIRKS 21). Only its arguments tell. So the events of a call with an id that is in use are held back until
the call ends:

| the call that ended | result |
|---|---|
| is invalid | it is emitted |
| has the content of an earlier call | a copy: it stays held back, and is dropped when the answer ends |
| has another content, or the tool's name as its id | the id identifies nothing: all calls with it are emitted |
| no earlier call with the id has ended | it waits for that one |
"""

from __future__ import annotations

from typing import Any

from penstock.events import SealedBy, StreamChunk, Unknown
from penstock.jsontext.portable import as_json_value
from penstock.jsontext.values import equal_values
from penstock.wires.shared.decode_response.open_call import OpenCall

Content = tuple[str, dict[str, Any]]
"""The name and the arguments of a call."""


class SharedId:
    """The calls of an answer with one id."""

    __slots__ = ("content", "held", "identifies")

    def __init__(self) -> None:
        self.content: Content | None = None  # content of the first call that ended
        self.identifies = True  # no two calls with this id had different contents
        self.held: dict[OpenCall, SealedBy | None] = {}  # calls that are held back, and what ended them

    def is_open_for(self, content: Content) -> bool:
        """Whether no call with this id has ended with another content."""
        return self.content is None or _is_same(self.content, content)


class Copies:
    """Finds the copies among the calls of an answer, by the ids that the provider gave."""

    __slots__ = ("_by_call", "_by_id", "_held_blocks", "_out")

    def __init__(self, out: list[StreamChunk]) -> None:
        self._out = out
        self._by_id: dict[str, SharedId] = {}
        self._by_call: dict[OpenCall, tuple[str, SharedId]] = {}
        self._held_blocks: dict[int, OpenCall] = {}

    def opened(self, call: OpenCall, id: str) -> None:
        """Records the id of a call, and holds the call back if another one has it."""
        shared = self._by_id.get(id)
        if shared is None:
            shared = self._by_id[id] = SharedId()
        elif shared.identifies and not call.is_started and call.name != id:
            call.hold()
            shared.held[call] = None
            self._held_blocks[call.block] = call
        self._by_call[call] = id, shared

    def emit(self, event: StreamChunk, block: int) -> None:
        """Emits the state of a block, together with its call if that is held back."""
        call = self._held_blocks.get(block) if self._held_blocks else None
        if call is not None and call.is_held:
            call.emit_held(event)
        else:
            self._out.append(event)

    def seal(self, call: OpenCall, sealed_by: SealedBy) -> int:
        """Ends a call as the protocol did, unless it is a copy; returns how many valid calls that makes."""
        id, shared = self._by_call.get(call, ("", None))
        if shared is None or call.is_ended:
            return call.seal(sealed_by)
        content = _content(call)
        if content is None:
            return call.seal(sealed_by)
        if call.is_held and call.name != id:
            shared.held[call] = sealed_by
            return 0 if shared.is_open_for(content) else self._release(shared)
        if shared.content and shared.is_open_for(content) and shared.identifies and call.name != id:
            call.fail("duplicated", "the same call, with the same id, was sent before")
            return 0
        shared.identifies = shared.identifies and call.name != id and shared.is_open_for(content)
        shared.content = shared.content or content
        return call.seal(sealed_by) + (0 if shared.identifies else self._release(shared))

    def is_waiting(self, call: OpenCall) -> bool:
        """Whether the call has ended and is held back."""
        _, shared = self._by_call.get(call, ("", None))
        return shared is not None and call.is_held and shared.held.get(call) is not None

    def close(self, is_cut: bool) -> int:
        """Drops the copies, and reports each id once; returns how many valid calls were held back."""
        return sum(self._close(id, shared, is_cut) for id, shared in self._by_id.items() if shared.held)

    def without_copies(self, calls: list[OpenCall]) -> list[OpenCall]:
        """The calls without copies of earlier ones; ends no call."""
        ids = [self._by_call.get(call, ("", None))[0] for call in calls]
        contents: dict[str, list[Content]] = {}
        for id, call in zip(ids, calls, strict=True):
            if (content := _content(call)) is not None:
                contents.setdefault(id, []).append(content)
        differing = {id for id, same in contents.items() if not all(_is_same(other, same[0]) for other in same)}
        kept: list[OpenCall] = []
        seen: set[str] = set()
        for id, call in zip(ids, calls, strict=True):
            if not id or id == call.name or id in differing or id not in seen:
                kept.append(call)
            seen.add(id)
        return kept

    def _close(self, id: str, shared: SharedId, is_cut: bool) -> int:
        calls = 0
        dropped: OpenCall | None = None
        for call, sealed_by in shared.held.items():
            if call.is_ended or sealed_by is None:
                continue
            content = _content(call)
            if content is not None and shared.content and shared.is_open_for(content):
                dropped = call
                call.drop()
            elif is_cut:  # the first call with this id may be the same: its end is not known
                call.fail("cut", "the stream ended before another call with the same id did")
            else:
                shared.content = shared.content or content
                calls += call.seal(sealed_by)
        shared.held.clear()
        if dropped is not None:
            copy = {"id": id, "name": dropped.name, "arguments": dropped.raw()}
            self._out.append(Unknown(as_json_value(copy), "a call that was sent before"))
        return calls

    def _release(self, shared: SharedId) -> int:
        """Emits all calls with this id: it identifies nothing."""
        shared.identifies = False
        held, shared.held = shared.held, {}
        calls = 0
        for call, sealed_by in held.items():
            call.release()
            calls += call.seal(sealed_by) if sealed_by is not None else 0
        return calls


def _content(call: OpenCall) -> Content | None:
    """The name and the arguments of a call; None if it is not a whole call."""
    if not call.name or call.is_damaged or call.is_too_large:
        return None
    if not call.has_arguments:
        return None if call.has_unknown_pieces else (call.name, {})
    arguments = call.whole_arguments()
    return None if arguments is None else (call.name, arguments)


def _is_same(left: Content, right: Content) -> bool:
    return left[0] == right[0] and equal_values(left[1], right[1])
