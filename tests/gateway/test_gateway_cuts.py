"""Cuts do not show: however the bytes of a server are cut, the client gets the same, and the same is reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock import Decoder, Text, ToolCall, collect, decode
from penstock.gateway import Healing
from penstock.healing.decoding import HealedDecoding, ResponseContext
from penstock.healing.report import HealingReport
from penstock.wires import find_response_frames, wire_name
from penstock.wires.shared.decode_request.request_settings import read_tools
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead
from tests.gateways import HABITS, LAST, RAW, TOOLS, delta, sse, tool_call

DECLARED = read_tools([("tools[0]", TOOLS[0])])
STREAMS = {
    **HABITS,
    "text before a call without an id": sse(
        delta(content="Let me look. "), delta(tool_calls=[tool_call(RAW, id=None, index=None)]), LAST
    ),
    "function_call": sse(delta(function_call={"name": "shell", "arguments": RAW}), delta("function_call")),
    "unknown fields": sse(delta(content="Hi."), delta(audio={"data": "x"}), delta("stop")),
}


def result(pieces: Iterable[bytes], front: str) -> tuple[Any, ...]:
    """The text, calls and end that a client gets, and what is reported."""
    report = HealingReport()
    context = ResponseContext(
        wire="openai-chat", client_wire=front, tools=DECLARED, messages=(), fields={}, id_prefix="call_r_",
        healing=Healing(), report=report, estimate=None,
    )  # fmt: skip
    decoding, encoder = (
        HealedDecoding(Decoder("openai-chat", DECLARED, id_prefix="call_r_"), context),
        ResponseEncoder(find_response_frames(front)(ResponseHead(id="1", model="m"))),
    )
    sent = b"".join(encoder.feed(decoding.feed(piece)) for piece in pieces)
    sent += encoder.feed(decoding.close()) + encoder.close()
    turn = collect(decode(sent, wire_name(front)))
    calls = [(part.id, part.name, part.arguments_raw) for part in turn.parts if isinstance(part, ToolCall)]
    text = "".join(part.text for part in turn.parts if isinstance(part, Text))
    return text, calls, turn.finish_reason, report.build(), report.notes


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("habit", STREAMS)
def test_what_a_client_gets_and_what_is_reported_does_not_depend_on_the_cuts(habit: str, front: str) -> None:
    body = STREAMS[habit]
    whole = result([body], front)
    assert result([body[at : at + 1] for at in range(len(body))], front) == whole
    for cut in range(1, len(body), 9):
        assert result([body[:cut], body[cut:]], front) == whole, cut
        assert result([body[:cut], body[cut : cut + 20], body[cut + 20 :]], front) == whole, cut
