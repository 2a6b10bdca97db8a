"""Indexes of blocks, calls and choices that are no usual numbers: their hashes collide, they are negative or huge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.wires import wire_name
from penstock.wires.shared.decode_response.indexes import MAX_INDEX, as_index, as_label
from tests.growth import cpu
from tests.support import decode_pieces, frame_bytes

PRIME = 2**61 - 1
"""Integers that differ by a multiple of this have the same hash."""


def chat_call(index: int, number: int) -> list[Any]:
    function = {"name": "look", "arguments": "{}"}
    return [{"choices": [{"delta": {"tool_calls": [{"index": index, "id": f"c{number}", "function": function}]}}]}]


def chat_choice(index: int, number: int) -> list[Any]:
    return [{"choices": [{"index": index, "delta": {"content": "a"}}]}]


def anthropic(index: int, number: int) -> list[Any]:
    start = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    return [start, {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "a"}}]


def bedrock(index: int, number: int) -> list[Any]:
    return [{"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": "a"}}}]


def cohere(index: int, number: int) -> list[Any]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [{"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": call}}}]


def responses(index: int, number: int) -> list[Any]:
    return [{"type": "response.output_text.delta", "output_index": index, "content_index": index, "delta": "a"}]


def gemini(index: int, number: int) -> list[Any]:
    return [{"candidates": [{"index": index, "content": {"role": "model", "parts": [{"text": "a"}]}}]}]


FRAMES: list[tuple[str, Callable[[int, int], list[Any]]]] = [
    ("openai-chat", chat_call), ("openai-chat", chat_choice), ("anthropic", anthropic), ("bedrock", bedrock),
    ("cohere", cohere), ("openai-responses", responses), ("gemini", gemini),
]  # fmt: skip
every_frame = pytest.mark.parametrize(("wire", "frames"), FRAMES, ids=[frames.__name__ for _, frames in FRAMES])


@every_frame
def test_indexes_with_equal_hashes_take_no_longer(
    wire: str, frames: Callable[[int, int], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.calls.numbering.MAX_CALLS", 10_000)
    monkeypatch.setattr("penstock.wires.shared.decode_response.answers.MAX_CHOICES", 10_000)

    def body(step: int) -> list[bytes]:
        return [frame_bytes(wire, frame) for at in range(3_000) for frame in frames(at * step, at)]

    bodies = {step: body(step) for step in (1, PRIME)}

    def decode(step: int) -> float:
        return min(cpu(lambda: decode_pieces(wire, bodies[step])) for _ in range(2))

    ratios = []
    for _ in range(4):  # what grows too fast does so in every round
        ratios.append(decode(PRIME) / decode(1))
        if ratios[-1] < 6:
            return
    raise AssertionError(ratios)


def test_only_small_numbers_are_indexes() -> None:
    assert [as_index(value) for value in (0, 7, 1.0, MAX_INDEX)] == [0, 7, 1, MAX_INDEX]
    others: list[Any] = [-1, MAX_INDEX + 1, PRIME, 10**30, 0.5, float("inf"), float("nan"), True, "1", None, [], {}]
    assert {as_index(value) for value in others} == {None}
    values: list[Any] = [3, "3", -3, PRIME, 0.5, 10**5000, None, True, []]
    labels = [as_label(value) for value in values]
    assert labels == [3, "3", "-3", str(PRIME), "0.5", None, None, None, None]


@pytest.mark.parametrize("indexes", [(-1, -2), (PRIME, 2 * PRIME), (2**31, 2**31 + 1)])
@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
def test_other_numbers_still_tell_calls_apart(wire: str, indexes: tuple[int, int]) -> None:
    frames: list[Any] = []
    for piece in ("start", '{"city": ', '"Rome"}', "stop"):
        for number, index in enumerate(indexes):
            function = {"name": "look", "arguments": ""} if piece == "start" else {"arguments": piece}
            head = {"id": f"c{number}"} if piece == "start" else {}
            block = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
            if wire == "openai-chat" and piece != "stop":
                frames.append(
                    {"choices": [{"delta": {"tool_calls": [{"index": index, **head, "function": function}]}}]}
                )
            elif wire == "anthropic" and piece == "start":
                frames.append({"type": "content_block_start", "index": index, "content_block": block})
            elif wire == "anthropic" and piece == "stop":
                frames.append({"type": "content_block_stop", "index": index})
            elif wire == "anthropic":
                delta = {"type": "input_json_delta", "partial_json": piece}
                frames.append({"type": "content_block_delta", "index": index, "delta": delta})
    ends: dict[str, list[Any]] = {
        "openai-chat": [{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}],
        "anthropic": [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}],
    }
    data = b"".join(frame_bytes(wire, frame) for frame in [*frames, *ends[wire]])
    turn = penstock.collect(penstock.decode(data, wire=wire_name(wire)))
    assert [(call.id, call.arguments) for call in turn.tool_calls] == [
        ("c0", {"city": "Rome"}),
        ("c1", {"city": "Rome"}),
    ]


def test_a_block_that_takes_the_number_of_a_confirmed_call_does_not_change_it() -> None:
    """The call waits, because another call has its id, but the reason for the end has confirmed it."""
    frames: list[Any] = [
        {"contentBlockStart": {"start": {"toolUse": {"toolUseId": "a"}}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "a", "name": "get"}}}},
        {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"city":"Rome"}'}}}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {}}}},
    ]
    before, after = (penstock.extract(penstock.decode(frames[:count], wire="bedrock")) for count in (4, 5))
    assert [(call.id, call.arguments) for call in before] == [("a_2", {"city": "Rome"})]
    assert [(call.id, call.arguments) for call in after] == [("a_2", {"city": "Rome"})]
