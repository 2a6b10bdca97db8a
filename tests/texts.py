"""Text vectors of the dialects, our own and the shared ones, and functions to compare results with them.

`python -m tests.texts hermes glm45` prints the shared texts of these dialects that are not parsed as expected.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock import Reasoning, StreamChunk, Text, TextParser, ToolCall, ToolCallInvalid
from tests.budget import places
from tests.support import HERE, SHARED, joined

LOOSE = ("questionable", "lenient", "partial", "unfinished", "derived", "calls_not_asserted", "generic_parser",
         "upstream_xfail")  # fmt: skip
"""Flags of a shared text that shows the policy of one parser rather than a rule."""


class TextVector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text and its expected events: one entry of `tests/texts/<family>.json`.

    `calls` are names and arguments, `invalid` names and faults; text and reasoning must be equal.
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

    def parser(self) -> TextParser:
        return TextParser(self.dialect, self.tools, self.splits_reasoning, self.starts_inside)

    def parse(self, pieces: Iterable[str]) -> list[StreamChunk]:
        return parse(self.parser(), pieces)


def text_vectors() -> list[TextVector]:
    vectors = []
    for path in sorted((HERE / "texts").glob("*.json")):
        vectors += msgspec.json.decode(path.read_bytes(), type=list[TextVector])
    return vectors


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
    """Yields ways to cut a text: into characters, in two at many places, and at random."""
    yield list(text)
    yield from ([text[:at], text[at:]] for at in places(len(text), few=18))
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


def differences_of(vector: dict[str, Any], events: list[StreamChunk]) -> list[str]:
    """Returns how the events differ from what a shared text expects."""
    expected = [(call["name"], call["arguments"]) for call in vector["expected_calls"]]
    differences = []
    if not vector.get("calls_not_asserted") and calls_of(events) != expected:
        differences.append(f"calls {calls_of(events)} instead of {expected}")
    if not vector.get("content_not_asserted") and text_of(events).strip() != (vector["expected_content"] or "").strip():
        differences.append(f"text {text_of(events)!r} instead of {vector['expected_content']!r}")
    if vector.get("expected_reasoning") is not None:
        wanted = vector["expected_reasoning"].strip()
        if reasoning_of(events).strip() != wanted:
            differences.append(f"reasoning {reasoning_of(events)!r} instead of {wanted!r}")
    return differences


def report(vector: dict[str, Any]) -> str:
    """Returns a description of what is wrong with a shared text; "" if it is parsed as expected."""
    events = parse(shared_parser(vector), [vector["text"]])
    wrong = differences_of(vector, events)
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
    """Prints the shared texts that are not parsed as expected."""
    vectors = [vector for vector in shared_texts() if not dialects or vector["dialect"] in dialects]
    reports = {vector["id"]: report(vector) for vector in vectors}
    strict = [vector["id"] for vector in vectors if is_strict(vector)]
    right = sum(not reports[name] for name in strict)
    sys.stdout.write("".join(reports.values()) + f"{right} of {len(strict)} strict texts are parsed as expected\n")


if __name__ == "__main__":
    main(sys.argv[1:])
