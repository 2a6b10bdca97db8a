"""Random answers of a model, in no protocol yet: texts, reasoning, refusals, calls and hosted tools."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random
from typing import Any, Literal

from msgspec import Struct

Reason = Literal["stop", "tool_calls", "length"]

WORDS = [
    "Rome", "é", "日本", "😀", '"', "\\", "\n", "{", "}", "[DONE]", "data: ", "<tool_call>", "null", "a b", " ",
    "'", "\t", "0", "}}", '{"a": 1}', "\u2028", "~",
]  # fmt: skip
NAMES = ["look", "write", "shell", "ask", "elsewhere", "nothing"]
"""The names of tools; the policies of `runs` have all but the last."""


class Words(Struct, frozen=True):
    """A text of one kind, in the pieces in which it is streamed."""

    kind: Literal["text", "reasoning", "refusal"]
    pieces: list[str]

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


class Call(Struct, frozen=True):
    """A call for the client. `pieces` add up to the JSON of its arguments; none of them: no arguments were written."""

    id: str
    name: str
    arguments: dict[str, Any]
    pieces: list[str]

    @property
    def raw(self) -> str:
        return "".join(self.pieces)


class Hosted(Struct, frozen=True):
    """A tool that the provider runs, with its result."""

    id: str


Part = Words | Call | Hosted


class Answer(Struct, frozen=True):
    """What a model says, and why it stops."""

    parts: list[Part]
    reason: Reason

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]

    def text(self, kind: str) -> str:
        return "".join(part.whole for part in self.parts if isinstance(part, Words) and part.kind == kind)


def random_answer(chance: Random) -> Answer:
    """An answer as providers give it: reasoning first, then text, then calls, or some of these."""
    parts: list[Part] = []
    if chance.random() < 0.4:
        parts.append(Words("reasoning", random_pieces(chance, random_text(chance))))
    if chance.random() < 0.2:
        parts.append(Hosted(f"h{chance.randrange(100)}"))
    if chance.random() < 0.7:
        parts.append(Words("text", random_pieces(chance, random_text(chance))))
    parts += [random_call(chance, number) for number in range(chance.choice([0, 0, 1, 1, 2, 3]))]
    if not parts or (chance.random() < 0.1 and not any(isinstance(part, Call) for part in parts)):
        parts.append(Words("refusal", random_pieces(chance, random_text(chance))))
    has_calls = any(isinstance(part, Call) for part in parts)
    reason: Reason = "length" if chance.random() < 0.1 else "tool_calls" if has_calls else "stop"
    return Answer(parts, reason)


def random_call(chance: Random, number: int) -> Call:
    arguments = {random_key(chance): random_value(chance) for _ in range(chance.choice([0, 1, 1, 2, 3]))}
    spelling = {"ensure_ascii": chance.random() < 0.5, "separators": chance.choice([(",", ":"), (", ", ": ")])}
    raw = json.dumps(arguments, **spelling)  # type: ignore[arg-type]
    if not arguments and chance.random() < 0.5:
        raw = ""
    return Call(f"id{number}{chance.randrange(10)}", chance.choice(NAMES), arguments, random_pieces(chance, raw))


def random_text(chance: Random) -> str:
    return "".join(chance.choice(WORDS) for _ in range(chance.choice([1, 2, 4, 8])))


def random_key(chance: Random) -> str:
    return chance.choice(["city", "text", "n", "a", "é", "id", "name", "index", "type", "input"])


def random_value(chance: Random, depth: int = 0) -> Any:
    """A value of JSON that survives being written and read by any parser."""
    kind = chance.randrange(8 if depth < 2 else 6)
    match kind:
        case 0 | 1:
            return random_text(chance)
        case 2:
            return chance.choice([0, 1, -7, 12, 10**15, 0.5, -2.25])
        case 3:
            return chance.choice([True, False, None])
        case 4:
            return ""
        case 5:
            return chance.choice(WORDS)
        case 6:
            return [random_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {random_key(chance): random_value(chance, depth + 1) for _ in range(chance.randrange(3))}


def random_pieces(chance: Random, text: str) -> list[str]:
    """The text cut in up to six pieces, none of them empty."""
    cuts = sorted({chance.randrange(len(text) + 1) for _ in range(chance.choice([0, 0, 1, 2, 5]))}) if text else []
    bounds = [0, *cuts, len(text)]
    return [text[start:end] for start, end in pairwise(bounds) if start < end]
