"""InvokeModelWithResponseStream: each event of a model's own protocol in an AWS frame, whatever the protocol."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import penstock
from penstock.wires import WireName, wire_name
from tests import streams
from tests.support import NO_CORPUS, SHARED, aws_frame, decode_pieces, joined, pieces_of

UNSPOKEN = sorted((SHARED / "corpus" / "unspoken").glob("bedrock-invoke__*.body"))
OTHER = {"21716d0c": "an agent", "94726229": "an agent"}
"""Recordings of another API, whose text has no reason for its end."""


def chunk(frame: Any) -> bytes:
    """An event in a frame, with padding."""
    encoded = base64.b64encode(json.dumps(frame, separators=(",", ":")).encode()).decode()
    return aws_frame({"chunk": {"bytes": encoded, "p": "abcdefg"}})


@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        ("bedrock", streams.bedrock()),
        ("anthropic", streams.anthropic()),
        ("openai-chat", streams.openai_chat()[:-1]),
        ("cohere", streams.cohere()),
    ],
)
def test_events_in_chunks_are_decoded_like_those_of_their_own_protocol(wire: str, frames: list[Any]) -> None:
    chunks = b"".join(map(chunk, frames))
    usual = joined(decode_pieces(wire, [streams.body(wire)]))
    for pieces in ([chunks], [*map(chunk, frames)], pieces_of(chunks, 1)):
        assert joined(decode_pieces(wire, pieces)) == usual


def test_chunks_as_boto3_returns_them_are_decoded() -> None:
    events = [{"chunk": {"bytes": json.dumps(frame).encode()}} for frame in streams.bedrock()]
    turn = penstock.collect(penstock.decode(events, "bedrock"))
    assert (turn.text, turn.finish_reason) == (streams.TEXT, "tool_calls")
    assert [(call.name, call.arguments) for call in turn.tool_calls] == streams.CALLS


@pytest.mark.skipif(not UNSPOKEN, reason=NO_CORPUS)
@pytest.mark.parametrize("path", UNSPOKEN, ids=lambda path: path.stem[-8:])
def test_recorded_chunks_decode(path: Any) -> None:
    body = path.read_bytes()
    is_claude = b"InR5cGUi" in body or b"eyJ0eXBlIj" in body  # "type", at the start of a chunk
    wire: WireName = wire_name("anthropic" if is_claude else "bedrock")
    turn = penstock.collect(penstock.decode(body, wire))
    is_agent = path.stem[-8:] in OTHER
    assert turn.error is None
    assert turn.finish_reason in (("cut",) if is_agent else ("stop", "length"))
    assert turn.text or path.stem.endswith("295e6e1c"), "that one has no text"
    if not is_agent:
        assert turn.unknown == ()
        assert turn.usage is not None
        assert turn.usage.output_tokens > 0
    assert joined(decode_pieces(wire, pieces_of(body, 7))) == joined(decode_pieces(wire, [body]))
