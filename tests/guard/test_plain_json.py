"""JSON without needless escapes: the same values, whatever the escapes and the pieces."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from penstock import Finish, Retry, StreamChunk, Text, ToolCallStart, Usage
from penstock.guard.plain_json import PlainJSON, plain_json
from tests.growth import assert_linear


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r'{"a": "\u0046ORBIDDEN"}', '{"a": "FORBIDDEN"}'),
        (r'"\uD83E\udd93 \/ \u00e9"', '"🦓 / é"'),
        (r'"\\u0046 \\\u0046 \"\u0022 \u005c \n\u000a"', r'"\\u0046 \\F \"\u0022 \u005c \n\u000a"'),
        (r'"\ud83e \udd93 \ud83ex"', r'"\ud83e \udd93 \ud83ex"'),
        (r"C:\users \u12 \u", r"C:\users \u12 \u"),
    ],
)
def test_only_the_escapes_that_json_needs_stay(text: str, plain: str) -> None:
    assert plain_json(text) == plain


def random_json(rng: random.Random) -> str:
    """A string in JSON, with any spelling of each character."""

    def spelled(character: str) -> str:
        units = character.encode("utf-16-be", "surrogatepass")
        codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
        escapes = "".join(f"\\u{code:{rng.choice(['04x', '04X'])}}" for code in codes)
        return escapes if rng.random() < 0.5 else json.dumps(character, ensure_ascii=False)[1:-1]

    characters = [rng.choice('ab"\\/\n\t\x00é🦓u0046') for _ in range(rng.randrange(12))]
    return f'{{"k": "{"".join(map(spelled, characters))}"}}'


def test_values_stay_the_same_and_pieces_do_not_show() -> None:
    rng = random.Random(9)
    for _ in range(3000):
        text = random_json(rng)
        plain = plain_json(text)
        assert json.loads(plain) == json.loads(text)
        assert "\\u00e9" not in plain.lower()
        for cuts in ([*range(len(text))], sorted(rng.randrange(len(text)) for _ in range(3))):
            stage, pieces = PlainJSON(), list[StreamChunk]()
            for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
                pieces += stage.feed([Text(0, text[start:end])])
            pieces += stage.close()
            assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == plain, (text, cuts)


def test_an_escape_that_never_ends_is_kept_before_what_follows() -> None:
    stage = PlainJSON()
    assert stage.feed([Text(0, r"a\u00"), Usage(1, 1)]) == [Text(0, "a"), Usage(1, 1)]
    assert stage.feed([ToolCallStart(1, "c", "look")]) == [Text(0, r"\u00"), ToolCallStart(1, "c", "look")]
    assert stage.feed([Text(2, "\\"), Text(3, "n")]) == [Text(2, "\\"), Text(3, "n")]
    assert stage.feed([Text(3, "\\"), Text(0, "b", 1), Finish("stop")])[:2] == [Text(0, "b", 1), Text(3, "\\")]
    assert stage.feed([Text(4, r"\u"), Retry("again"), Text(0, "46")]) == [Retry("again"), Text(0, "46")]
    assert stage.close() == []


@pytest.mark.parametrize("piece", [r"\u0046", r"\\", "word ", r"\ud83e"])
def test_the_cost_is_linear(piece: str) -> None:
    def prepare(size: int) -> Callable[[], object]:
        stage, chunks = PlainJSON(), [Text(0, piece) for _ in range(size)]
        return lambda: [stage.feed([chunk]) for chunk in chunks]

    assert_linear(prepare, 4000)
