"""The events of a log as JSON: encoding and decoding."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import MsgspecError
from msgspec.structs import replace

from penstock.log.store import DamagedRunError
from penstock.run.events import Done, LogEvent, decode_logged, encode


def body_of(event: LogEvent) -> bytes:
    """An event as it is stored. The end of a run is stored without its messages, which the events before it have."""
    return encode(replace(event, messages=()) if type(event) is Done else event)


def event_of(run_id: str, seq: int, body: bytes) -> LogEvent:
    """The event of a stored body; a `DamagedRunError` if it is invalid."""
    try:
        return decode_logged(body)
    except MsgspecError as error:
        raise DamagedRunError(f"event {seq} of the run {run_id} cannot be read: {error}") from error


def types_of(bodies: Iterable[bytes]) -> list[str]:
    """The types of events that are stored like this; of an inner run, those of its events."""
    events = [msgspec.json.decode(body) for body in bodies]
    return [event["event"]["type"] if event["type"] == "nested" else event["type"] for event in events]
