"""Code spans in Markdown: a mark inside code is text about a call, not a call."""

from __future__ import annotations

import re

from msgspec import Struct

FENCE = "```"

_START = 64  # how many characters of the start of a line are kept, and of what follows a fence
_PIECES = re.compile("`+|\n|[^`\n]+")
_MARGIN = re.compile(r"[ \t]*+(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*+)*+")
_INDENT = re.compile(r"[ \t>]*+")
_LANGUAGE = re.compile(r"[^\s~]*+\s*+")
_TILDES = re.compile(r"(.*?)(~{3,}+)(.*+)")
_COLONS = (":", "：")
_EXTRA_INDENT = 3  # how many spaces a closing fence may be indented more than the opening one


class Fence(Struct):
    """A fenced block of code: the character and size of its fence, and the margin of the line that opened it.

    A fenced block in a block quote ends with the quote.
    """

    character: str
    size: int
    margin: str
    has_blank: bool = False  # whether one of its lines is blank

    @property
    def is_quoted(self) -> bool:
        return ">" in self.margin

    def is_left_by(self, start: str) -> bool:
        """Returns whether a line with this start is outside of the quote that contains the block."""
        return self.is_quoted and ">" not in _INDENT.match(start).group()  # type: ignore[union-attr]  # it matches ""

    def is_closed_by(self, start: str, character: str, size: int) -> bool:
        """Returns whether a run of `size` characters closes the block, in a line with this start."""
        is_first = len(start) < _START and _INDENT.fullmatch(start) is not None
        return is_first and character == self.character and size >= self.size and _width(start) <= self._max_indent

    @property
    def _max_indent(self) -> int:
        return _width(self.margin) + _EXTRA_INDENT


class Code(Struct):
    """Inline code between backticks. Three or more backticks are a fence if no other backtick follows in the line.

    A fence begins a line, after the markers of lists and quotes. After other text it counts if only a language follows
    it, or if nothing follows and the text ends with a colon. Inline code that contains a mark continues in the next
    line, up to a blank one.
    """

    size: int
    start: str
    is_announced: bool
    info: str = ""
    may_be_fence: bool = True
    has_mark: bool = False

    def is_closed_by(self, start: str, character: str, size: int) -> bool:
        return size == self.size

    def after_line(self, line: str) -> Code | Fence | None:
        """Returns the code that is open in the next line."""
        margin = _MARGIN.match(self.start).group()  # type: ignore[union-attr]  # it matches the empty string
        is_first = margin == self.start
        if self.may_be_fence and self.size >= len(FENCE) and (is_first or self._is_named):
            return Fence("`", self.size, margin)
        self.may_be_fence = False
        return self if self.has_mark and line.strip() else None

    @property
    def _is_named(self) -> bool:
        """Whether only a language follows, which may be missing after a colon."""
        return _is_language(self.info) and (self.is_announced or bool(self.info.strip()))


def _is_language(info: str) -> bool:
    """Returns whether the text is one word, or empty."""
    return len(info) < _START and _LANGUAGE.fullmatch(info) is not None


def _width(margin: str) -> int:
    return len(margin.expandtabs(4))


class CodeSpans:
    """The state of the text so far: how its last line starts and ends, and which code is open."""

    __slots__ = ("_code", "_has_call", "_last", "_run", "_start")

    def __init__(self) -> None:
        self._code: Code | Fence | None = None
        self._has_call = False
        self.restart()

    def restart(self) -> None:
        """Starts another text. A fence around the call before it stays open."""
        if not (self._has_call and isinstance(self._code, Fence)):
            self._code = None
        self._has_call = False
        self._start = ""
        self._last = ""  # the last character of the line that is not white space or a backtick
        self._run = 0  # the number of backticks at the end of the text

    def end_code(self) -> None:
        """Closes the code that is open."""
        self._code = None
        self._run = 0

    def add_mark(self) -> None:
        """Records that the open code contains a mark."""
        if isinstance(self._code, Code):
            self._code.has_mark = True

    def begin_call(self) -> None:
        """Records that a call follows: the text after it is another block, but in the same fence."""
        self._has_call = True

    @property
    def is_at_line_start(self) -> bool:
        """Whether the last line has only white space so far."""
        return not self._run and not self._start.strip()

    @property
    def is_in_code(self) -> bool:
        """Whether the next character is in code, if it is not a backtick."""
        self._leave_quote()
        if not self._run:
            return self._code is not None
        return self._code is None or not self._code.is_closed_by(self._start, "`", self._run)

    @property
    def is_in_fence(self) -> bool:
        """Whether the next line is in a fence, if the line ends here and the next is not a quote."""
        self._end_run()
        fence = self._after_line()
        return isinstance(fence, Fence) and not fence.is_quoted

    def surely_contains(self, *, is_last: bool) -> bool:
        """Returns whether the next mark belongs to the open code even in a text where code is often left open.

        In a fence, there must be no blank line before it. Inline code must begin directly before it, or it must be in
        the middle of a line (`is_last`: it is the last in its line).
        """
        if isinstance(self._code, Fence):
            return not self._code.has_blank
        return self._run > 0 or (self._start.strip() != "" and not is_last)

    def add(self, text: str) -> None:
        """Adds text that was emitted."""
        if "`" in text or self._run or "~~~" in text or isinstance(self._code, Code):
            self._add_pieces(text)
        elif "\n" not in text:
            self._add_start(text)
        elif self._code is not None:  # every line counts: it may be blank, or leave the quote
            self._add_pieces(text)
        else:
            first, _, rest = text.partition("\n")
            self._add_words(first)
            self._end_line()
            if self._code is None:  # the lines between the first and the last have no effect
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
        """Ends the run of backticks at the end of the text."""
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
        """Closes the fenced block if the line has left the quote around it."""
        if isinstance(self._code, Fence) and self._code.is_left_by(self._start):
            self._code = None

    def _after_line(self) -> Code | Fence | None:
        """Returns the code that is open in the next line."""
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
