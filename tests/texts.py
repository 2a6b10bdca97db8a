"""What the tests of the dialects share: texts with the calls in them, ours and the shared ones, and how to judge them.

`python -m tests.texts hermes glm45` tells which of the shared texts of these dialects do not come out as expected.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.dialects.parser import TextParser
from penstock.events import Reasoning, StreamChunk, Text, ToolCall, ToolCallInvalid
from tests.support import HERE, SHARED, joined

LOOSE = ("questionable", "lenient", "partial", "unfinished", "derived", "calls_not_asserted", "generic_parser",
         "upstream_xfail")  # fmt: skip
"""What marks a shared text as somebody's policy rather than a rule."""


class TextVector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text and what must come out of it: one entry of `tests/texts/<family>.json`.

    `calls` are names and arguments, `invalid` names and faults; text and reasoning are compared to the letter.
    """

    name: str
    dialect: str
    input: str
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, dict[str, Any]]] = []
    invalid: list[tuple[str, str]] = []
    ids: list[str] = []
    tools: list[Any] = []
    splits_reasoning: bool = False
    starts_inside: bool = False
    why: str = ""

    def parse(self, pieces: Iterable[str]) -> list[StreamChunk]:
        parser = TextParser(self.dialect, self.tools, self.splits_reasoning, self.starts_inside)
        return parse(parser, pieces)


def text_vectors() -> list[TextVector]:
    found = []
    for path in sorted((HERE / "texts").glob("*.json")):
        found += msgspec.json.decode(path.read_bytes(), type=list[TextVector])
    return found


def shared_texts() -> list[dict[str, Any]]:
    path = SHARED / "vectors" / "vectors.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_strict(vector: dict[str, Any]) -> bool:
    return not any(vector.get(flag) for flag in LOOSE)


def shared_parser(vector: dict[str, Any]) -> TextParser:
    reasoning = "expected_reasoning" in vector
    return TextParser(vector["dialect"], vector.get("tools"), reasoning, bool(vector.get("starts_in_reasoning")))


def parse(parser: Any, pieces: Iterable[str]) -> list[StreamChunk]:
    events: list[StreamChunk] = []
    for piece in pieces:
        events += parser.feed(piece)
    return joined(events + parser.close())


def cuttings(text: str) -> Iterator[list[str]]:
    """Ways to cut a text: by character, and if it is short in two at every place, and at random."""
    yield list(text)
    if len(text) <= 400:
        yield from ([text[:at], text[at:]] for at in range(1, len(text)))
    for seed in range(3):
        rng, at, pieces = random.Random(seed), 0, []
        while at < len(text):
            size = rng.choice([0, 1, 2, 3, 5, 9, 30])
            pieces.append(text[at : at + size])
            at += size
        yield pieces


def text_of(events: Iterable[StreamChunk]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def reasoning_of(events: Iterable[StreamChunk]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))


def calls_of(events: Iterable[StreamChunk]) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, event.arguments) for event in events if isinstance(event, ToolCall)]


def complaints(vector: dict[str, Any], events: list[StreamChunk]) -> list[str]:
    """How the events differ from what a shared text expects."""
    expected = [(call["name"], call["arguments"]) for call in vector["expected_calls"]]
    found = []
    if not vector.get("calls_not_asserted") and calls_of(events) != expected:
        found.append(f"calls {calls_of(events)} instead of {expected}")
    if not vector.get("content_not_asserted") and text_of(events).strip() != (vector["expected_content"] or "").strip():
        found.append(f"text {text_of(events)!r} instead of {vector['expected_content']!r}")
    if vector.get("expected_reasoning") is not None:
        wanted = vector["expected_reasoning"].strip()
        if reasoning_of(events).strip() != wanted:
            found.append(f"reasoning {reasoning_of(events)!r} instead of {wanted!r}")
    return found


def told(vector: dict[str, Any]) -> str:
    """What is wrong with a shared text, for people; nothing if it comes out as expected."""
    events = parse(shared_parser(vector), [vector["text"]])
    wrong = complaints(vector, events)
    if any(parse(shared_parser(vector), pieces) != events for pieces in cuttings(vector["text"])):
        wrong.append("it depends on how the text is cut")
    if not wrong:
        return ""
    flags = [flag for flag in LOOSE if vector.get(flag)] or "STRICT"
    wrong += [
        f"invalid: {event.name} {event.why} {event.message}" for event in events if isinstance(event, ToolCallInvalid)
    ]
    heading = f"{vector['id']} {flags} {vector.get('note', '')} {vector.get('why', '')}"
    return "\n  ".join([heading, repr(vector["text"]), *wrong]) + "\n\n"


def main(dialects: list[str]) -> None:
    """Tell what is wrong."""
    found = [vector for vector in shared_texts() if not dialects or vector["dialect"] in dialects]
    wrong = {vector["id"]: told(vector) for vector in found}
    strict = [vector["id"] for vector in found if is_strict(vector)]
    right = sum(not wrong[name] for name in strict)
    sys.stdout.write("".join(wrong.values()) + f"{right} of {len(strict)} strict texts are right\n")


if __name__ == "__main__":
    main(sys.argv[1:])
