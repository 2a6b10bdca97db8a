"""Where in the told text a mark would stand: marks within code are talk about calls, not calls."""

from __future__ import annotations

import re

from msgspec import Struct

FENCE = "```"

_START = 64  # how much of a line's beginning is looked at, and of what follows a fence
_PIECES = re.compile("`+|\n|[^`\n]+")
_MARGIN = re.compile(r"[ \t]*+(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*+)*+")
_INDENT = re.compile(r"[ \t>]*+")
_LANGUAGE = re.compile(r"[^\s~]*+\s*+")
_TILDES = re.compile(r"(.*?)(~{3,}+)(.*+)")
_COLONS = (":", "：")
_FURTHER_IN = 3  # how many spaces a closing fence may be further in than the line of the opening one


class Fence(Struct):
    """A block of code, by what opened it: so many backticks or tildes, in a line that begins with such a margin.

    In a quote it goes no further than the quote.
    """

    character: str
    size: int
    margin: str
    has_blank: bool = False  # whether one of its lines is blank

    @property
    def is_quoted(self) -> bool:
        return ">" in self.margin

    def is_left_by(self, start: str) -> bool:
        """Whether a line that starts so, and goes on with something else, is behind the quote that the block is in."""
        return self.is_quoted and ">" not in _INDENT.match(start).group()  # type: ignore[union-attr]  # it matches ""

    def is_closed_by(self, start: str, character: str, size: int) -> bool:
        """Whether a run closes the block, in a line that starts so."""
        is_first = len(start) < _START and _INDENT.fullmatch(start) is not None
        return is_first and character == self.character and size >= self.size and _width(start) <= self._deepest

    @property
    def _deepest(self) -> int:
        return _width(self.margin) + _FURTHER_IN


class Code(Struct):
    """Code between backticks. If no other backtick follows in their line, three or more of them are a fence.

    A fence stands at the beginning of a line, the markers of lists and quotes aside. Behind other text it counts if
    nothing but a language follows it, or nothing at all and the text ends with a colon. Code in which a mark stood goes
    on in the next line, up to a blank one.
    """

    size: int
    start: str
    is_announced: bool
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
            return Fence("`", self.size, margin)
        self.may_be_fence = False
        return self if self.goes_on and line.strip() else None

    @property
    def _is_named(self) -> bool:
        """Whether nothing but a language follows, which may be missing behind a colon."""
        return _is_language(self.info) and (self.is_announced or bool(self.info.strip()))


def _is_language(info: str) -> bool:
    """Whether this is one word, or nothing."""
    return len(info) < _START and _LANGUAGE.fullmatch(info) is not None


def _width(margin: str) -> int:
    return len(margin.expandtabs(4))


class CodeSpans:
    """The line of text that is being told, as far as it matters: how it starts, how it ends, and which code is open."""

    __slots__ = ("_code", "_last", "_run", "_start", "_survives")

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
        self._last = ""  # the character that it ends with, white space and backticks aside
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
        self._leave_quote()
        if not self._run:
            return self._code is not None
        return self._code is None or not self._code.is_closed_by(self._start, "`", self._run)

    @property
    def is_in_fence(self) -> bool:
        """Whether the next line stands in a fence, if the line ends here and the next is no quote."""
        self._end_run()
        fence = self._after_line()
        return isinstance(fence, Fence) and not fence.is_quoted

    def surely_holds(self, *, is_last: bool) -> bool:
        """Whether what comes next in the code that is open belongs to it even where code is often left open.

        In a fence no blank line is before it. Between backticks it stands directly behind them, or within a line.
        """
        if isinstance(self._code, Fence):
            return not self._code.has_blank
        return self._run > 0 or (self._start.strip() != "" and not is_last)

    def add(self, text: str) -> None:
        """Text that was told."""
        if "`" in text or self._run or "~~~" in text or isinstance(self._code, Code):
            self._add_pieces(text)
        elif "\n" not in text:
            self._add_start(text)
        elif self._code is not None:  # each line may be blank, or leave the quote
            self._add_pieces(text)
        else:
            first, _, rest = text.partition("\n")
            self._add_words(first)
            self._end_line()
            if self._code is None:  # nothing happens in its other lines
                self._add_start(rest[rest.rfind("\n") + 1 :])
            else:
                self._add_pieces(rest)

    def _add_pieces(self, text: str) -> None:
        for piece in _PIECES.findall(text):
            if piece == "\n":
                self._end_line()
            elif piece[0] == "`":
                self._run += len(piece)
            else:
                self._add_words(piece)

    def _add_start(self, text: str) -> None:
        if len(self._start) < _START:
            self._start += text[: _START - len(self._start)]
        self._last = text.rstrip()[-1:] or self._last

    def _add_words(self, text: str) -> None:
        self._end_run()
        self._add_start(text)
        if isinstance(self._code, Code) and len(self._code.info) < _START:
            self._code.info += text[: _START - len(self._code.info)]

    def _end_run(self) -> None:
        """The backticks at the end are all there are."""
        if not self._run:
            return
        self._leave_quote()
        if self._code is None:
            self._code = Code(self._run, self._start, self._last in _COLONS)
        elif self._code.is_closed_by(self._start, "`", self._run):
            self._code = None
        elif isinstance(self._code, Code):
            self._code.may_be_fence = False
        self._start = (self._start + "`")[:_START]
        self._run = 0

    def _end_line(self) -> None:
        self._end_run()
        self._code = self._after_line()
        if isinstance(self._code, Fence) and not self._start.strip():
            self._code.has_blank = True
        self._start = self._last = ""

    def _leave_quote(self) -> None:
        """The line is known to begin with no more of a margin than it has."""
        if isinstance(self._code, Fence) and self._code.is_left_by(self._start):
            self._code = None

    def _after_line(self) -> Code | Fence | None:
        """What is open in the next line."""
        self._leave_quote()
        if isinstance(self._code, Code):
            return self._code.after_line(self._start)
        if not (tildes := _TILDES.match(self._start)):
            return self._code
        start, run, info = tildes.groups()
        if self._code is not None:
            return None if self._code.is_closed_by(start, "~", len(run)) else self._code
        is_fence = _MARGIN.fullmatch(start) and _is_language(info.strip()) and len(self._start) < _START
        return Fence("~", len(run), start) if is_fence else None
