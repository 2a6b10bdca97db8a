"""Cases from seeds: the same seed gives the same case."""

from __future__ import annotations

import copy
import json
import zlib
from functools import cache
from random import Random
from typing import Any

import msgspec

from tests.fuzz.answers import Answer, random_answer
from tests.fuzz.bodies import body_of
from tests.fuzz.cases import Case, Kind, Piece, Style, encode_frame, plain, text_of
from tests.fuzz.mutations import mutate
from tests.fuzz.protocols import WIRES, Frame, stream_of
from tests.support import aws_message, vectors

KINDS: list[Kind] = ["valid", "harmless", "unreadable", "garbled", "repeated", "wild"]
KEEP_ALIVES = [
    ": keep-alive\n\n", ":\n\n", ": OPENROUTER PROCESSING\n\n", "data: \n\n", "data:\n\n", "data: ping\n\n",
    "data: : still here\n\n", "retry: 3000\n\n", "\n", "event: ping\n\n",
]  # fmt: skip
UNREADABLE_TEXTS = ["hello", "{", '{"choices":[{"del', ': {"a": 1', "[1, 2", '"', "}", "{'a': 1}", "undefined"]


CALL_KEYS = {"arguments", "args", "functionCall", "function", "input", "name", "partial_json", "tool_calls", "toolUse"}
"""Keys of calls, in which a lost character is a hole."""

NOT_UTF8 = [b"\xff", b"\xc3", b"\x80", b"\xed\xa0\x80", b"\xc0\xaf"]  # the last two: a surrogate, an overlong form


def make_case(wire: str, seed: int) -> Case:
    """The case of this seed."""
    chance = Random(f"{wire} {seed}")
    kind = chance.choices(KINDS, [5, 15, 12, 3, 5, 60])[0]
    if kind == "wild":
        return _wild(wire, seed, chance)
    answer = random_answer(chance)
    frames = stream_of(wire, answer, chance)
    styles: list[Style] = ["usual", "usual", "crlf", "unnamed", "escaped"]
    case = Case(wire, seed, "valid", plain(frames), chance.choice(styles), answer=answer)
    match kind:
        case "harmless":
            return _with_harmless(case, chance)
        case "unreadable":
            return _with_unreadable(case, chance)
        case "garbled":
            return _with_garbled(case, chance)
        case "repeated":
            return _with_repeated(case, chance)
    return _as_body(case, chance)


def _as_body(case: Case, chance: Random) -> Case:
    body = body_of(case.wire, case.answer, chance) if case.answer and chance.random() < 0.3 else None
    return case if body is None else msgspec.structs.replace(case, pieces=plain([body]), style="body")


# Things that change nothing.


def _with_harmless(case: Case, chance: Random) -> Case:
    pieces = list(case.pieces)
    last = len(pieces) - (2 if case.wire in ("openai-chat", "mistral", "anthropic") else 1)  # before the end
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(last + 1)
        pieces.insert(
            at, Piece(harmless_frame(case.wire, chance, pieces[at - 1].frame if at else None), is_inserted=True)
        )
        last += 1
    return msgspec.structs.replace(case, kind="harmless", pieces=pieces)


def harmless_frame(wire: str, chance: Random, before: Frame | None) -> Frame:
    """A keep-alive, or something readable of an unknown kind, as of the part that the frame before belongs to."""
    if wire not in ("bedrock", "ollama") and chance.random() < 0.4:
        return chance.choice(KEEP_ALIVES)
    news = {"certainty": 0.4}
    match wire:
        case "anthropic":
            index = before.get("index", 0) if isinstance(before, dict) else 0
            return chance.choice([
                {"type": "ping"},
                {"type": "content_block_delta", "index": index, "delta": {"type": "certainty_delta", **news}},
                {"type": "content_block_progress", "index": index, **news},
                {"type": "message_progress", **news},
            ])  # fmt: skip
        case "openai-chat" | "mistral":
            entry = chance.choice([{"index": 0, "status": "in_progress"}, {"index": 1, "certainty": 0.4}])
            return chance.choice([
                {"object": "chat.completion.progress", **news},
                {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": news, "finish_reason": None}]},
                {"choices": []},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": None, **news}]},
            ])  # fmt: skip
        case "openai-responses":
            where = {
                key: before[key] for key in ("item_id", "output_index") if isinstance(before, dict) and key in before
            }
            return chance.choice([
                {"type": "response.in_progress", "response": {"id": "resp_1"}},
                {"type": "keepalive"},
                {"type": "response.certainty.delta", **where, "delta": "0.4"},
                {"type": "response.shell_call_output_content.done", **where, "output": [{"stdout": "x"}]},
                {"type": "response.function_call_arguments.certainty", **where, **news},
            ])  # fmt: skip
        case "gemini":
            return chance.choice([
                {"candidates": [{"content": {"parts": [{"certainty": 0.4}], "role": "model"}, "index": 0}]},
                {"candidates": [{"content": {"parts": [], "role": "model"}, "index": 0, **news}]},
                {"usageMetadata": {"promptTokenCount": 5}},
                {"candidates": [{"index": 0, "safetyRatings": [{"probability": "HIGH"}]}]},
                news,
            ])  # fmt: skip
        case "ollama":
            message = {"role": "assistant", "content": "", **news}
            return chance.choice(["\n", {"model": "m", "message": message, "done": False}, {"model": "m", **news}])
        case "gemini-interactions":
            index = before.get("index", 0) if isinstance(before, dict) else 0
            return chance.choice([
                {"event_type": "interaction.status_update", "interaction_id": "v1_1", "status": "in_progress"},
                {"event_type": "step.delta", "index": index, "delta": {"type": "certainty", **news}},
                {"event_type": "step.progress", "index": index, **news},
                {"event_type": "interaction.progress", **news},
            ])  # fmt: skip
        case "cohere":
            index = before.get("index", 0) if isinstance(before, dict) else 0
            return chance.choice([
                {"type": "certainty-delta", "index": index, "delta": {"message": news}},
                {"type": "debug", **news},
                {"type": "citation-start", "index": 0, "delta": {"message": {"citations": {"start": 0, "text": "x"}}}},
            ])  # fmt: skip
    inner = next(iter(before.values())) if isinstance(before, dict) and before else {}
    index = inner.get("contentBlockIndex", 0) if isinstance(inner, dict) else 0
    return chance.choice([
        {"certaintyUpdate": {"contentBlockIndex": index, **news}},
        {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"certainty": {"score": 0.4}}}},
        {"messageProgress": news},
    ])  # fmt: skip


# Things that cannot be read.


def _with_unreadable(case: Case, chance: Random) -> Case:
    pieces = list(case.pieces)
    last = len(pieces) - (2 if case.wire in ("openai-chat", "mistral", "anthropic", "gemini-interactions") else 1)
    if not last:
        return case
    count = 1 if case.wire == "ollama" else chance.choice([1, 1, 1, 2])  # two halves of a JSON line may be one value
    for at in {chance.randrange(last) for _ in range(count)}:
        frame = pieces[at].frame
        pieces[at] = Piece(unreadable_frame(case, frame, chance), instead_of=frame)
    return msgspec.structs.replace(case, kind="unreadable", pieces=pieces)


def unreadable_frame(case: Case, frame: Frame, chance: Random) -> Frame:
    data = encode_frame(case.wire, frame, case.style)
    if case.wire == "bedrock":  # a checksum that is wrong
        at = chance.randrange(16, len(data) - 4)
        return {"$bytes": (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]).hex()}
    text = json.dumps(frame)
    cut = text[: chance.randrange(1, len(text))] if chance.random() < 0.5 else chance.choice(UNREADABLE_TEXTS)
    return cut + "\n" if case.wire == "ollama" else f"data: {cut}\n\n"


def _with_garbled(case: Case, chance: Random) -> Case:
    """A byte that is not UTF-8 somewhere in a frame, as a proxy that recodes text leaves it."""
    pieces = list(case.pieces)
    at = chance.randrange(len(pieces))
    frame = pieces[at].frame
    if case.wire == "bedrock" and isinstance(frame, dict):
        [(name, payload)] = frame.items()
        garbled = aws_message(
            {":message-type": "event", ":event-type": name}, _garble(text_of(payload, "usual"), chance)
        )
    else:
        garbled = _garble(encode_frame(case.wire, frame, case.style), chance)
    pieces[at] = Piece({"$bytes": garbled.hex()}, instead_of=frame)
    kind: Kind = "wild" if _is_in_text(garbled) else "garbled"
    return msgspec.structs.replace(case, kind=kind, pieces=pieces)


def _is_in_text(garbled: bytes) -> bool:
    """Whether the byte is inside a string that is neither a key nor part of a call: there it is only replaced."""
    found: list[bool] = []

    def look(value: Any, is_call: bool) -> None:
        match value:
            case dict():
                for key, inner in value.items():
                    found.extend([False] if "\ufffd" in key else [])
                    look(inner, is_call or key in CALL_KEYS)
            case list():
                for inner in value:
                    look(inner, is_call)
            case str() if "\ufffd" in value:
                found.append(not is_call)

    text = garbled.decode("utf-8", "replace")
    if "{" not in text:
        return True  # a line between two objects
    try:
        look(json.loads(text[text.find("{") : text.rfind("}") + 1]), is_call=False)
    except ValueError:
        return False
    return bool(found) and all(found)


def _garble(data: bytes, chance: Random) -> bytes:
    position = chance.randrange(max(0, data.find(b"{")), len(data.rstrip()))
    return data[:position] + chance.choice(NOT_UTF8) + data[position:]


# Calls that are sent twice.


class _Unmixed(Random):
    """No luck at all: calls are not mixed."""

    def random(self) -> float:
        return 0.0


def _with_repeated(case: Case, chance: Random) -> Case:
    """All frames of one call again, with another number, before the end."""
    answer = case.answer
    if answer is None or not answer.calls or answer.reason == "length":
        return case
    call = chance.choice(answer.calls)
    again = stream_of(case.wire, Answer([*answer.parts, call], answer.reason), _Unmixed(0))
    once = stream_of(case.wire, answer, _Unmixed(0))
    pieces = plain(once)
    shared = next((at for at, (one, other) in enumerate(zip(once, again, strict=False)) if one != other), len(once))
    added = again[shared : shared + len(again) - len(once)]
    if case.wire in ("mistral", "openai-responses"):  # the calls are also in the last frame
        end = -2 if case.wire == "mistral" else -1
        pieces[end] = Piece(again[end], instead_of=once[end])
    pieces[shared:shared] = [Piece(frame, is_inserted=True) for frame in added]
    return msgspec.structs.replace(case, kind="repeated", pieces=pieces, style="usual")


# Anything.


@cache
def _seeds(wire: str) -> list[tuple[int, str, list[Any]]]:
    """The vectors of a wire, each with a number that depends on its name alone."""
    wires = {"mistral": ("mistral", "openai-chat")}.get(wire, (wire,))
    found = [vector for vector in vectors() if vector.wire in wires and vector.frames]
    return sorted((zlib.crc32(vector.name.encode()), vector.name, vector.frames) for vector in found)


def _random_vector(wire: str, chance: Random) -> tuple[str, list[Any]]:
    """The vector with the next number: a vector that is added changes few cases."""
    number = chance.randrange(2**32)
    seeds = _seeds(wire)
    _, name, frames = next((seed for seed in seeds if seed[0] >= number), seeds[0])
    return name, frames[:60]


def make_recorded_case(wire: str, seed: int, recordings: list[tuple[str, list[Any]]]) -> Case:
    """The case of this seed, from one of these recordings."""
    chance = Random(f"recorded {wire} {seed}")
    origin, frames = chance.choice(recordings)
    mutated = mutate(chance, frames, chance.choice(recordings)[1])
    return Case(wire, seed, "wild", plain(mutated), chance.choice(["usual", "crlf", "escaped"]), f"recording {origin}")


def _wild(wire: str, seed: int, chance: Random) -> Case:
    origin, style = "", "usual"
    if chance.random() < 0.5:
        origin, frames = _random_vector(wire, chance)
    else:
        answer = random_answer(chance)
        body = body_of(wire, answer, chance) if chance.random() < 0.15 else None
        frames = stream_of(wire, answer, chance) if body is None else [body]
        style = "usual" if body is None else "body"
    if style == "usual":
        style = chance.choice(["usual", "usual", "usual", "crlf", "unnamed", "escaped", "array"])
    others = _random_vector(wire, chance)[1] if chance.random() < 0.7 else _foreign(chance)
    mutated = mutate(chance, copy.deepcopy(frames), copy.deepcopy(others))
    return Case(wire, seed, "wild", plain(mutated), style, origin)  # type: ignore[arg-type]


def _foreign(chance: Random) -> list[Frame]:
    """Frames of any protocol."""
    return stream_of(chance.choice(WIRES), random_answer(chance), chance)
