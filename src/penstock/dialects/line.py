"""Where in the told text a mark would stand: marks within code are talk about calls, not calls."""

from __future__ import annotations

import re

from msgspec import Struct

FENCE = "```"

_START = 64  # how much of a line's beginning is looked at, and of what follows a fence
_PIECES = re.compile("`+|\n|[^`\n]+")
_MARGIN = re.compile(r"[ \t]*+(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*+)*+")
_INDENT = re.compile(r"[ \t>]*+")
_LANGUAGE = re.compile(r"\S*+\s*+")
_TILDES = re.compile(r"(.*?)(~{3,}+)")
_FURTHER_IN = 3  # how many spaces a closing fence may be further in than the line of the opening one


class Fence(Struct, frozen=True):
    """A block of code, by what opened it: so many backticks or tildes, in a line that begins so far in."""

    character: str
    size: int
    indent: int

    def is_closed_by(self, start: str, character: str, size: int) -> bool:
        """Whether a run closes the block, in a line that starts so."""
        is_first = len(start) < _START and _INDENT.fullmatch(start) is not None
        return is_first and character == self.character and size >= self.size and _width(start) <= self._deepest

    @property
    def _deepest(self) -> int:
        return self.indent + _FURTHER_IN


class Code(Struct):
    """Code between backticks. If no other backtick follows in their line, three or more of them are a fence.

    A fence stands at the beginning of a line, the markers of lists and quotes aside. Behind other text it counts if
    nothing but a language follows it. Code in which a mark stood goes on in the next line, up to a blank one.
    """

    size: int
    start: str
    info: str = ""
    may_be_fence: bool = True
    goes_on: bool = False

    def is_closed_by(self, start: str, character: str, size: int) -> bool:
        return size == self.size

    def after_line(self, line: str) -> Code | Fence | None:
        """What is open in the next line."""
        margin = _MARGIN.match(self.start).group()  # type: ignore[union-attr]  # it matches the empty string
        is_first = margin == self.start
        if self.may_be_fence and self.size >= len(FENCE) and (is_first or self._is_named):
            return Fence("`", self.size, _width(margin))
        self.may_be_fence = False
        return self if self.goes_on and line.strip() else None

    @property
    def _is_named(self) -> bool:
        """Whether nothing but a language follows."""
        return len(self.info) < _START and _LANGUAGE.fullmatch(self.info) is not None


def _width(margin: str) -> int:
    return len(margin.expandtabs(4))


class Line:
    """The line of text that is being told, as far as it matters: how it starts, and which code is open."""

    __slots__ = ("_code", "_run", "_start", "_survives")

    def __init__(self) -> None:
        self._code: Code | Fence | None = None
        self._survives = False
        self.restart()

    def restart(self) -> None:
        """Another text begins; a fence around the call before it is still open."""
        if not (self._survives and isinstance(self._code, Fence)):
            self._code = None
        self._survives = False
        self._start = ""
        self._run = 0  # how many backticks the text ends with

    def end_code(self) -> None:
        """No code is open any more."""
        self._code = None
        self._run = 0

    def go_on(self) -> None:
        """A mark stood in the code."""
        if isinstance(self._code, Code):
            self._code.goes_on = True

    def survive(self) -> None:
        """A call comes: the text after it is another, but in the same fence."""
        self._survives = True

    @property
    def is_in_code(self) -> bool:
        """Whether what comes next stands in code, if it is no backtick."""
        if not self._run:
            return self._code is not None
        return self._code is None or not self._code.is_closed_by(self._start, "`", self._run)

    @property
    def is_in_fence(self) -> bool:
        """Whether the next line stands in a fence, if the line ends here."""
        self._end_run()
        return isinstance(self._after_line(), Fence)

    def add(self, text: str) -> None:
        """Text that was told."""
        if "`" in text or self._run or isinstance(self._code, Code) or "~~~" in text:
            for piece in _PIECES.findall(text):
                if piece == "\n":
                    self._end_line()
                elif piece[0] == "`":
                    self._run += len(piece)
                else:
                    self._add_words(piece)
        elif "\n" in text:  # nothing happens in its other lines
            self._add_words(text[: text.find("\n")])
            self._end_line()
            self._start = text[text.rfind("\n") + 1 :][:_START]
        elif len(self._start) < _START:
            self._start += text[: _START - len(self._start)]

    def _add_words(self, text: str) -> None:
        self._end_run()
        if len(self._start) < _START:
            self._start += text[: _START - len(self._start)]
        if isinstance(self._code, Code) and len(self._code.info) < _START:
            self._code.info += text[: _START - len(self._code.info)]

    def _end_run(self) -> None:
        """The backticks at the end are all there are."""
        if not self._run:
            return
        if self._code is None:
            self._code = Code(self._run, self._start)
        elif self._code.is_closed_by(self._start, "`", self._run):
            self._code = None
        elif isinstance(self._code, Code):
            self._code.may_be_fence = False
        self._start = (self._start + "`")[:_START]
        self._run = 0

    def _end_line(self) -> None:
        self._end_run()
        self._code = self._after_line()
        self._start = ""

    def _after_line(self) -> Code | Fence | None:
        """What is open in the next line."""
        if isinstance(self._code, Code):
            return self._code.after_line(self._start)
        if not (tildes := _TILDES.match(self._start)):
            return self._code
        start, run = tildes.groups()
        if self._code is not None:
            return None if self._code.is_closed_by(start, "~", len(run)) else self._code
        return Fence("~", len(run), _width(start)) if _MARGIN.fullmatch(start) else None
