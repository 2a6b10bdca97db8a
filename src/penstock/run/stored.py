"""A run as it is stored: JSON that another process can load (`load`) and continue.

Version 2 has the events of the run. Version 1, which users may have stored, had its state. Both may stand in a signed
envelope: with the key, one can verify that a run was not changed. The content of an envelope is text in a JSON object,
so its bytes stay the same when the object is stored as JSON and written again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from penstock.errors import UsageError
from penstock.messages import Message
from penstock.run.calls.execution import Execution
from penstock.run.events import Done, EndReason, LogEvent, Nested, RunStart, ToolEnd, ToolStart, encode
from penstock.run.limits import Tally
from penstock.run.state import Phase, RunState
from penstock.turn import Turn

if TYPE_CHECKING:
    from penstock.run.machine import Run

VERSION = 2
SIGNED_VERSION = 1
Key = bytes | str


class Version(Struct, frozen=True):
    """The version field of a stored run."""

    penstock_run: Annotated[int, Meta(ge=1)]


class RunSnapshot(Version, frozen=True):
    """The state of a run, as version 1 stored it. `data` of its executions is the program's own, and not in it."""

    messages: list[Message]
    phase: Phase
    answer: Turn
    executions: list[Execution]
    tally: Tally
    output: str = ""
    end: tuple[EndReason, str] = ("answered", "")
    next_block: int = 0


class StoredEvents(Version, frozen=True):
    """The events of a run; after `base`, if it was stored by version 1 before.

    `deadlines` are the times at which calls that wait expire, in seconds since 1970. `next_block` is the first number
    that no block of the run had, also of what was not read or was withdrawn.
    """

    events: list[LogEvent]
    base: RunSnapshot | None = None
    deadlines: dict[str, float] = {}
    next_block: int = 0


class _Written(Version, frozen=True):
    events: Sequence[Raw]
    base: Raw | None
    deadlines: Mapping[str, float]
    next_block: int


def dump(run: Run, deadlines: Mapping[str, float]) -> bytes:
    """The run as JSON; `deadlines` are those of calls that expire."""
    state = run.state
    if state.is_over:
        reason, why = state.ending
        events: list[LogEvent] = [RunStart(tuple(state.messages)), Done(reason, state.output, (), run.usage, why)]
        return _encode(events, None, {}, state.numbering.next_block)
    return _encode(_events_of(run), state.record.base, deadlines, state.numbering.next_block)


def snapshot(state: RunState) -> RunSnapshot:
    """The state of a run as data, to be checked and compared."""
    executions = [_to_store(execution) for execution in state.executions.table]
    return RunSnapshot(
        1, state.messages, state.phase, state.response.build(), executions, state.tally,
        state.output, state.ending, state.numbering.next_block,
    )  # fmt: skip


def _events_of(run: Run) -> list[LogEvent]:
    """The events from which the run can be rebuilt, as far as they were read."""
    state = run.state
    events = state.record.events
    if state.phase == "answer":
        events = state.record.to_store(state.response.builder, state.response.unfolded)
    read = [event for event in events if not _is_unread_start(event, state)]
    return [*read, *_events_of_inner(run, read)]


def _events_of_inner(run: Run, events: Sequence[LogEvent]) -> Iterator[Nested]:
    """The events of the inner runs, after the stored events of the run around them."""
    open_keys = {event.key for event in events if isinstance(event, ToolStart)}
    open_keys -= {event.key for event in events if isinstance(event, ToolEnd)}
    for inner in run.inner:
        if inner.key in open_keys:
            yield from inner.wrap(_events_of(inner.run))
        else:
            yield inner.ending


def _is_unread_start(event: LogEvent, state: RunState) -> bool:
    """Whether this is the unread start of a tool, which has not begun before either."""
    if not isinstance(event, ToolStart) or event.key in state.starts.began:
        return False
    execution = state.executions.table.find(event.key)
    return execution is not None and execution.state == "starting"


def _to_store(execution: Execution) -> Execution:
    """A copy for a snapshot: without private data, and not started if its start is unread."""
    state = "ready" if execution.state in ("checking", "preparing", "starting") else execution.state
    return msgspec.structs.replace(execution, data=None, question=None, state=state, prepare="none", problem=None)


def _encode(events: Sequence[LogEvent], base: bytes | None, deadlines: Mapping[str, float], next_block: int) -> bytes:
    bodies = [Raw(encode(event)) for event in events]
    return msgspec.json.encode(_Written(VERSION, bodies, None if base is None else Raw(base), deadlines, next_block))


def decode(data: bytes | str) -> StoredEvents | RunSnapshot:
    """Read a stored run; a `UsageError` if it is not one, or is of a later version."""
    try:
        version = msgspec.json.decode(data, type=Version).penstock_run
        if version > VERSION:
            raise UsageError(f"the run was stored by a later version ({version}; this one reads {VERSION})")
        if version == 1:
            return msgspec.json.decode(data, type=RunSnapshot)
        return msgspec.json.decode(data, type=StoredEvents)
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"this is not a stored run: {error}") from None
    except RecursionError:
        raise UsageError("this is not a stored run: it is nested too deeply") from None


# Signatures.


class Envelope(Struct, frozen=True):
    """A content and its signature: HMAC-SHA256, in hexadecimal digits."""

    penstock_signed: int
    signature: str
    content: str


class _Mark(Struct, frozen=True):
    penstock_signed: int | None = None


def sign(content: bytes, key: Key | None) -> bytes:
    """The content in an envelope that is signed with this key; without one, the content as it is."""
    if key is None:
        return content
    return msgspec.json.encode(Envelope(SIGNED_VERSION, _signature(content, key), content.decode()))


def verify(data: bytes | str, key: Key | None) -> bytes | str:
    """The content of an envelope with a valid signature; without a key, the data, which must not be an envelope."""
    version = _signed_version(data)
    if key is None:
        if version is not None:
            raise UsageError("the stored run is signed; pass the key that it was signed with: resume(…, key=…)")
        return data
    if version is None:
        raise UsageError("the stored run has no signature, and a key was passed; store it with dump(key=…)")
    if version > SIGNED_VERSION:
        raise UsageError(f"the stored run was signed by a later version ({version}; this one reads {SIGNED_VERSION})")
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
        content = envelope.content.encode()
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise UsageError(f"this is not a signed run: {error}") from None
    if not hmac.compare_digest(_signature(content, key).encode(), envelope.signature.encode("utf-8", "replace")):
        raise UsageError("the signature of the stored run is not valid: it was changed, or signed with another key")
    return content


def _signed_version(data: bytes | str) -> int | None:
    """The version of an envelope; None if the data is something else."""
    try:
        return msgspec.json.decode(data, type=_Mark).penstock_signed
    except (TypeError, msgspec.MsgspecError, RecursionError):
        return None


def _signature(content: bytes, key: Key) -> str:
    return hmac.new(_secret(key), b"penstock run\n" + content, hashlib.sha256).hexdigest()


def _secret(key: Any) -> bytes:
    """The bytes of a key. A number is refused: `bytes(number)` would be that many zeros, which anyone can guess."""
    match key:
        case str():
            secret = key.encode("utf-8", "surrogatepass")
        case bytes() | bytearray() | memoryview():
            secret = bytes(key)
        case _:
            raise UsageError(f"the key of a stored run must be bytes or text, not {type(key).__name__}")
    if not secret:
        raise UsageError("the key of a stored run is empty")
    return secret
