"""Bytes that are no stream, or no good one: told in events and bounded by named limits, never raised."""

from __future__ import annotations

import copy
import gzip
import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import framing
from penstock.errors import PenstockError, UnknownWireError
from penstock.events import Error, Finish, Retry, Unknown
from penstock.wires import ALIASES, WIRES
from tests import streams
from tests.sanity import assert_sane, said
from tests.support import aws_frame, decode_pieces, frame_bytes, pieces_of, vectors

every_wire = pytest.mark.parametrize("wire", list(WIRES))
MEBIBYTE = 1024 * 1024


def frames_of(wire: str) -> list[Any]:
    frames: list[Any] = getattr(streams, wire.replace("-", "_"))()
    return frames


def beginning(wire: str) -> bytes:
    """A stream that has said its text and goes on."""
    data = b""
    for frame in frames_of(wire):
        data += frame_bytes(wire, frame)
        if penstock.collect(decode_pieces(wire, [data])).text == streams.TEXT:
            return data
    raise AssertionError("the stream never says its text")


def framed(wire: str, payload: bytes) -> bytes:
    """Any payload, framed as the wire does it."""
    match wire:
        case "ollama":
            return payload + b"\n"
        case "bedrock":
            return streams_event("contentBlockDelta", payload)
        case _:
            return b"data: " + payload + b"\n\n"


def streams_event(event: str, payload: bytes) -> bytes:
    return aws_frame({event: json.loads(payload)}) if False else raw_aws_frame(event, payload)


def raw_aws_frame(event: str, payload: bytes) -> bytes:
    from tests.test_framing import aws_message, text_header

    return aws_message({":message-type": text_header("event"), ":event-type": text_header(event)}, payload)
