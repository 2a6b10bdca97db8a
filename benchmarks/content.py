"""The content of the synthetic responses: prose, and arguments of tool calls. The same on every run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

_PROSE = """\
A penstock is the pipe that leads water from a reservoir to the turbine it drives. Near its upper end stands a gate; \
below it the pipe runs straight down the hillside, anchored every few metres, because the water inside weighs far more \
than the steel around it. When the gate closes too fast, the moving column has nowhere to go and its pressure climbs \
within seconds: engineers call that water hammer, and they build a surge tank – a tall, open shaft – to let the column \
rise and fall until it is calm again."""

_CODE = """\
def drain(reservoir, *, "gate"=None):
\tlevel = reservoir.level()  # metres above the intake
\tif level < 0.5:
\t\traise ValueError("the intake is dry\\n")
\treturn [gate.open(share) for share in split(level, by="\\u00bd")]
"""


def words(count: int) -> list[str]:
    """Prose in the pieces that models stream: words, each with the space before it."""
    first, *others = _PROSE.split()
    pieces = [first, *(f" {word}" for word in others), " " + first]
    return list(itertools.islice(itertools.chain([first], itertools.cycle(pieces[1:])), count))


def edits(size: int) -> str:
    """About `size` characters of arguments with many small fields: the edits of a source file."""
    made: list[Any] = []
    length = len(_arguments(edits=[]))
    lines = _lines()
    while True:
        edit = {"line": 3 * len(made) + 1, "old": next(lines), "new": next(lines) + next(lines)}
        length += len(_compact(edit)) + (1 if made else 0)
        if made and length > size:
            return _arguments(edits=made)
        made.append(edit)


def document(size: int) -> str:
    """About `size` characters of arguments with one long field: the content of a file to write."""
    spare = size - len(_arguments(content=""))
    escaped = len(_compact(_CODE)) - 2
    return _arguments(content=_CODE * max(1, spare // escaped))


def cut(text: str, length: int = 8) -> list[str]:
    """The text in pieces of this length."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def _lines() -> Iterator[str]:
    return itertools.cycle(_CODE.splitlines(keepends=True))


def _arguments(**fields: Any) -> str:
    return _compact({"path": "src/plant/intake.py", **fields})


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
