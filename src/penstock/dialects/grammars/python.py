"""Dialects with calls in Python syntax: `f(k=LITERAL, …)`."""

from __future__ import annotations

import re

from msgspec import Struct

from penstock.dialects.dialect import Dialect
from penstock.dialects.reading.call_objects import object_calls
from penstock.dialects.reading.literals import NOT_ENDED, UNESCAPED, JSONWriter, literal
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.source import MAX_HEADER, Mismatch, Reading, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall
from penstock.events import StreamChunk, ToolCallDelta

# -- calls ---------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[\w.-]*")
_NAME = re.compile(r"[^\W\d][\w.-]*")
_ANYTHING = re.compile(r".*", re.DOTALL)


def name_of(source: Source) -> Reading[str]:
    """Reads the name of a call, and the parenthesis after it: `f(`."""
    name = yield from source.match(_WORD)
    if not _NAME.fullmatch(name):
        source.fail("expected a name")
    yield from source.expect("(")
    return name


def call(source: Source, follow: Follow) -> Reading[None]:
    """Reads a call: `f(k=LITERAL, …)`."""
    name = yield from name_of(source)
    yield from arguments(source, source.begin(name), follow)
    end(source)


def end(source: Source) -> None:
    """Ends a call. After a guess, what follows may be the rest of a string: it is part of the call."""
    if source.call is not None and source.call.guess:
        raise Mismatch(source.call.guess)
    source.end()


def arguments(source: Source, call: TextCall, follow: Follow, key: str = "") -> Reading[None]:
    """Reads the arguments of a call, and its end: `k=LITERAL, …)`."""
    out = JSONWriter(call.add)
    try:
        yield from argument_list(source, call, out, key)
        if not (yield from is_followed(source, follow, out.guessed_quote)):
            if source.is_cut:
                raise TextEnded("the text was cut off before it was clear where a string of the call ends")
            call.doubt(UNESCAPED if out.has_strings else NOT_ENDED)
    except Mismatch:
        out.flush()  # an invalid call shows what was there
        raise


def argument_list(source: Source, call: TextCall, out: JSONWriter, key: str) -> Reading[None]:
    """Reads `k=LITERAL, …)`. Arguments without a key are the tool's first parameters."""
    names = iter(call.schema.keys)
    yield from source.space()
    while key or not (yield from source.accept(")")):
        own_key = key or (yield from keyword(source))
        if out.guessed_quote and not (own_key in call.schema.keys if call.schema.keys else own_key):
            call.doubt(UNESCAPED)
        key = own_key or next(names, "") or source.fail("expected a keyword")
        if key in call.keys and source.call is None:
            raise Mismatch(f"the argument {key!r} is given twice")
        call.key(key)
        key = ""
        yield from literal(source, out)
        yield from source.space()
        if not (yield from source.accept(",")):
            yield from source.expect(")")
            break
        yield from source.space()
    call.end_keys()


def keyword(source: Source) -> Reading[str]:
    """Reads the key of an argument, and the `=` after it; returns "" and reads nothing if there is none."""
    word = yield from source.match(_WORD)
    spaces = (yield from source.space()) if word else ""
    if word and (yield from source.accept("=")):
        yield from source.space()
        return word
    source.unread(word + spaces)
    return ""


# -- what follows a call -------------------------------------------------------------------------------------------


class Follow(Struct, frozen=True):
    """What may follow a call, after white space. Anything else shows that a string of the call ended too early.

    `closers` are the marks that end the block. Other calls come after a comma, after a `;`, or in the next line. With
    `is_list`, they are in a list, and its bracket comes before the closer. `wraps` is the number of `print(` calls
    around the call.
    """

    closers: tuple[str, ...] = ()
    is_list: bool = False
    wraps: int = 0


def is_followed(source: Source, follow: Follow, guessed_quote: str) -> Reading[bool]:
    """Returns whether what may follow a call does; nothing is read. If the text was cut before that, it is not known.

    If the end of a string was guessed, what follows must be the start of another call, or the end of the block.
    """
    text = yield from source.space()
    for _ in range(follow.wraps):
        text += (yield from source.accept(")")) + (yield from source.space())
    mark = yield from source.accept(*follow.closers, *((",", "]") if follow.is_list else (",", ";", "#")))
    text += mark
    if mark and mark in follow.closers:
        is_end = True
    elif mark == "]":
        is_end = yield from is_list_end(source, follow, guessed_quote)
    elif (yield from source.ends_with(*follow.closers)):
        is_end = not source.is_cut
    elif guessed_quote:
        is_end = (mark != "" or "\n" in text) and (yield from is_call(source))
        is_end = is_end and (yield from has_pairs(source, follow, guessed_quote))
    elif mark in (",", ";"):
        is_end = yield from is_next(source, follow)
    else:
        is_end = bool(mark) or (not follow.is_list and "\n" in text)
        is_end = is_end or (not follow.is_list and text != "" and (yield from is_call(source)))
    source.unread(text)
    return is_end


def is_list_end(source: Source, follow: Follow, guessed_quote: str) -> Reading[bool]:
    """Returns whether a list ends after its bracket; nothing is read.

    It does if its closer follows, or if it has none and no guess was made. Else prose may follow it: then the string
    continues if a quote that could end it comes before the closer, or within MAX_HEADER characters.
    """
    if not follow.closers and not guessed_quote:
        return True
    text = yield from source.space()
    is_end = bool(follow.closers) and (yield from source.sees(*follow.closers))
    if not is_end and (yield from source.ends_with(*follow.closers)):
        is_end = not source.is_cut
    elif not is_end and not (follow.closers and guessed_quote):
        rest = yield from source.match(_ANYTHING)
        source.unread(rest)
        before, has_closer = upto_closer(rest, follow)
        string_end = re.search((re.escape(guessed_quote) or "['\"]") + r"\s*[,)\]}]", before)
        is_end = string_end is None and (has_closer or len(rest) == MAX_HEADER or not source.is_cut)
    source.unread(text)
    return is_end


def is_next(source: Source, follow: Follow) -> Reading[bool]:
    """Returns whether another call or the end of the block follows a separator; nothing is read."""
    text = yield from source.space()
    is_end = yield from source.sees(*follow.closers, "]" if follow.is_list else "#")
    is_end = is_end or (not follow.is_list and "\n" in text)
    if not is_end and not (yield from source.peek()):
        is_end = not source.is_cut
    elif not is_end:
        name = yield from source.match(_WORD)
        text += name
        is_end = _NAME.fullmatch(name) is not None and (yield from source.sees("("))
    source.unread(text)
    return is_end


def has_pairs(source: Source, follow: Follow, quote: str) -> Reading[bool]:
    """Returns whether the quotes in the other calls of a block are pairs; if not, one of them may end a string here.

    The block must end within MAX_HEADER characters. Nothing is read.
    """
    rest = yield from source.match(_ANYTHING)
    source.unread(rest)
    before, has_closer = upto_closer(rest, follow)
    is_over = len(rest) < MAX_HEADER and not source.is_cut
    return (has_closer or is_over) and before.count(quote) % 2 == 0


def upto_closer(text: str, follow: Follow) -> tuple[str, bool]:
    """Returns the text before the closer of the block, and whether it has one."""
    ends = [at for closer in follow.closers if (at := text.find(closer)) >= 0]
    return text[: min(ends, default=None)], bool(ends)


def is_call(source: Source) -> Reading[bool]:
    """Returns whether a call of a declared tool comes next, with a keyword or without arguments; nothing is read."""
    text = yield from source.space()
    name = yield from source.match(_WORD)
    text += name + (yield from source.accept("("))
    is_call = text.endswith("(") and bool(_NAME.fullmatch(name)) and (not source.tools or name in source.tools)
    text += yield from source.space()
    word = yield from source.match(_WORD)
    text += word + (yield from source.space())
    is_call = is_call and (yield from source.sees("=" if word else ")"))
    source.unread(text)
    return is_call


# -- several calls -------------------------------------------------------------------------------------------------


def call_list(source: Source, *closers: str) -> Reading[None]:
    """Reads the calls of a list, after its bracket: `f(…), g(…)]`."""
    follow = Follow(closers, is_list=True)
    yield from call(source, follow)
    yield from rest_of_list(source, follow)


def rest_of_list(source: Source, follow: Follow) -> Reading[None]:
    """Reads the other calls of a list, and its end."""
    while (yield from source.accept_spaced(",")):
        yield from source.space()
        if (yield from source.sees("]")):
            break
        yield from call(source, follow)
    yield from source.accept_spaced("]")


def call_lines(source: Source, *closers: str) -> Reading[None]:
    """Reads several calls, on lines of their own or separated by commas."""
    follow = Follow(closers)
    yield from call(source, follow)
    yield from source.accept_spaced(",", ";")
    while (yield from another_name(source)):
        yield from call(source, follow)
        yield from source.accept_spaced(",", ";")


def another_name(source: Source) -> Reading[bool]:
    """Returns whether a name comes next, after white space."""
    spaces = yield from source.space()
    if _NAME.match((yield from source.peek())):
        return True
    source.unread(spaces)
    return False


# -- dialects ------------------------------------------------------------------------------------------------------


def pythonic(source: Source, mark: str) -> Reading[None]:
    """Reads `[f(k=LITERAL), g()]` anywhere. Without declared tools, a call without keywords is taken for prose."""
    yield from source.space()
    name = yield from name_of(source)
    key = ""
    if source.tools and source.tool_name(name) not in source.tools:
        raise Mismatch(f"{name!r} is not a tool")
    if not source.tools:
        yield from source.space()
        key = yield from keyword(source)
        if not key and not (yield from source.sees(")")):
            source.fail("expected a keyword")
    follow = Follow(is_list=True)
    yield from arguments(source, source.begin(name), follow, key)
    end(source)
    yield from rest_of_list(source, follow)


def lfm2(source: Source, mark: str) -> Reading[None]:
    """Reads `<|tool_call_start|>[f(k=LITERAL)]<|tool_call_end|>`, also without the brackets, or with call objects."""
    while (yield from source.accept_spaced(LFM_OPEN)):
        pass
    yield from source.space()
    if (yield from source.peek()) == "{":
        yield from object_calls(source)
    elif (yield from source.accept("[")):
        yield from lfm2_list(source)
    elif not (yield from source.sees(LFM_CLOSE)):
        yield from call_lines(source, LFM_CLOSE)
    yield from source.accept_spaced(LFM_CLOSE)


def lfm2_list(source: Source) -> Reading[None]:
    """Reads a list of calls or of call objects, after its bracket; it may be empty."""
    spaces = yield from source.space()
    if (yield from source.peek()) == "{":
        source.unread("[" + spaces)
        yield from object_calls(source)
    elif not (yield from source.accept("]")):
        yield from call_list(source, LFM_CLOSE)


def olmo3(source: Source, mark: str) -> Reading[None]:
    """Reads `<function_calls>f(k=LITERAL)</function_calls>`, each call on a line of its own, or in a list."""
    yield from source.space()
    if (yield from source.accept("[")):
        yield from source.space()
        yield from call_list(source, OLMO_CLOSE)
    else:
        yield from call_lines(source, OLMO_CLOSE)
    yield from source.accept_spaced(OLMO_CLOSE)


# -- code ----------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"[^\n]*")


def tool_code(source: Source, mark: str) -> Reading[None]:
    """Reads a fence with one call per statement, printed or not: ```` ```tool_code ````."""
    while not (yield from code_ends(source, FENCE)):
        name, wraps = yield from printed_name(source)
        yield from arguments(source, source.begin(name), Follow((FENCE,), wraps=wraps))
        end(source)
        yield from code_parentheses(source, wraps)


def smol_code(source: Source, mark: str) -> Reading[None]:
    """Reads `<code>print(f(k=LITERAL))</code>` if all of the code is calls to declared tools; other code is text."""
    calls: list[tuple[str, str]] = []
    while not (yield from code_ends(source, CODE_CLOSE[mark])):
        name, wraps = yield from printed_name(source)
        if source.tools and name not in source.tools:
            raise Mismatch(f"{name!r} is not a tool")
        events: list[StreamChunk] = []
        draft = TextCall(events, 0, "", name, "", source.tools.schema(name))
        yield from arguments(source, draft, Follow((CODE_CLOSE[mark],), wraps=wraps))
        if draft.guess:
            raise Mismatch(draft.guess)
        yield from code_parentheses(source, wraps)
        calls.append((name, "".join(event.piece for event in events if isinstance(event, ToolCallDelta))))
    if not calls:
        source.fail("expected a call")
    for name, raw in calls:
        source.begin(name).add(raw)
        source.end()


def code_ends(source: Source, closer: str) -> Reading[bool]:
    """Returns whether the code ends here: at its closing mark, or with a text that was not cut. Skips comments."""
    yield from source.space()
    while mark := (yield from source.accept("#", ";")):
        if mark == "#":
            yield from source.match(_COMMENT)
        yield from source.space()
    return bool((yield from source.accept(closer))) or not ((yield from source.peek()) or source.is_cut)


def printed_name(source: Source) -> Reading[tuple[str, int]]:
    """Reads the name of a call without its module; returns it and the number of `print` calls around it."""
    wraps = 0
    while (name := (yield from name_of(source))) == "print" and name not in source.tools:
        wraps += 1
        yield from source.space()
    last = name.rpartition(".")[2]
    return last if name not in source.tools and last in source.tools else name, wraps


def code_parentheses(source: Source, count: int) -> Reading[None]:
    for _ in range(count):
        yield from source.accept_spaced(")")


FENCE = "```"
LFM_OPEN, LFM_CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
OLMO_OPEN, OLMO_CLOSE = "<function_calls>", "</function_calls>"
CODE_CLOSE = {"<code>": "</code>", "```python": FENCE, "```py": FENCE}

DIALECTS = {
    "pythonic": Dialect(block=pythonic, opens=("[",), tokens=("<|python_start|>", "<|python_end|>")),
    "lfm2": Dialect(
        block=lfm2, opens=(LFM_OPEN,), closes=(LFM_CLOSE,), tags=CallTags(block=TagPair((LFM_OPEN,), (LFM_CLOSE,)))
    ),
    "olmo3": Dialect(
        block=olmo3, opens=(OLMO_OPEN,), closes=(OLMO_CLOSE,), tags=CallTags(block=TagPair((OLMO_OPEN,), (OLMO_CLOSE,)))
    ),
    "gemma_tool_code": Dialect(
        block=tool_code, opens=(f"{FENCE}tool_code",), tags=CallTags(block=TagPair((), (FENCE,)))
    ),
    "smol_code": Dialect(block=smol_code, opens=tuple(CODE_CLOSE)),
}
