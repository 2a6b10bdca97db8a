"""`DialectMarks`: the marks of dialects that are read together, prepared once per set of dialects and tools."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from penstock.dialects.dialect import END_TOKENS, THINK, Dialects
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.reading.marks import Marks, marks_of

_CONTROL = ("<|", "<｜", "]<]", "[TOOL_CALLS]")  # how control tokens begin; they are markup even in code
_BRACKETS = ("{", "[")  # the opening marks of JSON

STRIKE, STRIKE_END = "<s>", "</s>"
"""Tags of HTML; the second is also an end token."""
KEPT_TABLES = 64
"""For how many sets of dialects and tools the marks are kept; some marks contain the names of tools."""


class MarkTable(Struct, frozen=True, eq=False):
    """The marks of dialects that are read together. Where only declared tools are called, control tokens stay text.

    - `opens`: the dialects that each opening mark may open, in order. `control`: opening marks that are control tokens.
    - `think`: the marks around reasoning. `ends`: tokens to strip at the end of the text.
    - `always`: all of these, and the control tokens to strip.
    - `inside`: the dialects whose blocks may begin in the prompt.
    - `unmarked`: opening marks that prose and code have, too.
    """

    opens: dict[str, list[str]]
    control: tuple[str, ...]
    think: dict[str, str]
    ends: tuple[str, ...]
    always: tuple[str, ...]
    inside: list[str]
    unmarked: tuple[str, ...]


@lru_cache(maxsize=KEPT_TABLES)
def mark_table(dialects: Dialects, tool_names: tuple[str, ...], only_declared: bool) -> MarkTable:
    """Returns the marks of the dialects, prepared once per set of tools: a server reads many texts with the same."""
    rows = dialects.rows.values()
    opens: dict[str, list[str]] = {}
    for name, dialect in dialects.rows.items():
        for mark in dialect.opening_marks(tool_names):
            opens.setdefault(mark, []).append(name)
    think = dict(pair for row in rows for pair in (THINK if only_declared else row.think))
    tokens = () if only_declared else tuple(dict.fromkeys(token for row in rows for token in row.tokens))
    own = {*opens, *think, *tokens}
    ends = () if only_declared else tuple(mark for mark in (*END_TOKENS, STRIKE) if mark not in own)
    return MarkTable(
        opens=opens,
        control=() if only_declared else tuple(mark for mark in opens if mark.startswith(_CONTROL)),
        think=think,
        ends=ends,
        always=(*own, *ends),
        inside=[name for name, row in dialects.rows.items() if row.begins_inside],
        unmarked=tuple(
            mark
            for mark, names in opens.items()
            if mark.startswith(FENCE) or mark in _BRACKETS or not any(dialects.rows[name].is_marked for name in names)
        ),
    )


class DialectMarks:
    """The marks of one text: those of the table, and the closing marks that are still `missing`.

    These did not follow their call; they are removed when they come. With `has_unmarked`, the opening marks that prose
    has, too, are read by their own rule.
    """

    def __init__(self, table: MarkTable, *, has_unmarked: bool) -> None:
        self.opens, self.control = table.opens, table.control
        self.unmarked = table.unmarked if has_unmarked else ()
        self.inside = [] if has_unmarked else table.inside
        self.think, self.ends = table.think, table.ends
        self._always = table.always
        self.set_missing(frozenset())

    def set_missing(self, missing: frozenset[str]) -> None:
        self.missing = missing
        self._all: Marks | None = None
        self._everywhere: Marks | None = None

    def all(self) -> Marks:
        """The marks of a text outside of reasoning."""
        self._all = self._all or marks_of(*self._always, *self.missing)
        return self._all

    def everywhere(self) -> Marks:
        """The marks of a text that may be reasoning, which ends with a mark."""
        self._everywhere = self._everywhere or marks_of(*self._always, *self.missing, *self.think.values())
        return self._everywhere
