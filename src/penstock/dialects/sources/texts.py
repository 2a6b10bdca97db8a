"""The texts of a conversation that may contain an argument value, and the forms in which both are compared.

Texts are normalised as for quotations (see `source_texts`): one case, without white space, quotes and margins, also
with their encodings decoded. Invisible characters are removed, and text that is hidden in tag characters is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from penstock.calls.sources import Source
from penstock.dialects.encodings import readings
from penstock.dialects.folding import fold, layouts, plain
from penstock.dialects.source_texts import texts_of_media, texts_of_result, texts_of_state
from penstock.events import Opaque, Reasoning, Text, ToolCall, ToolCallInvalid
from penstock.jsontext.values import canonical_json
from penstock.messages import SUMMARY, File, Image, Message, ToolResult

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufffd\U000e0000-\U000e0fff]+"
)  # and what stands for damaged characters
_MARKUP = re.compile(r"</?[a-z][^<>]{0,200}>", re.IGNORECASE)
_TAGS = re.compile(r"[\U000e0020-\U000e007e]")
MARKS = ".,;:!?()[]{}<>/"
"""The marks around a value that do not count."""

_FORMS = 4  # in how many readings a value is looked for
_DECODED = 64 * 1024  # the characters of a value up to which its encodings are decoded


class SourceText(Struct, frozen=True):
    """A text of the conversation, and what it is."""

    text: str
    source: Source


def texts_of(message: Message, index: int) -> Iterator[SourceText]:
    """The texts of a message; reasoning is not among them, as the model does not answer with it."""
    match message.role:
        case "assistant":
            yield from _texts_of_answer(message, index)
        case "system":
            yield SourceText(message.text, Source("instructions", index))
        case _ if message.is_example:
            yield SourceText(message.text, Source("instructions", index))
        case _:
            yield from _texts_of_input(message, index)


def _texts_of_answer(message: Message, index: int) -> Iterator[SourceText]:
    yield SourceText(message.text, Source("answer", index))
    own = {part.block for part in message.parts if isinstance(part, Reasoning | ToolCall | ToolCallInvalid)}
    for part in message.parts:
        match part:
            case ToolCall():
                yield SourceText(canonical_json(part.arguments), Source("call", index, part.name, part.id))
            case Opaque() if part.block not in own:
                yield from _results((text for text, _ in texts_of_state(part)), index)
            case _:
                pass


def _texts_of_input(message: Message, index: int) -> Iterator[SourceText]:
    written, summary = list[str](), False
    for part in message.parts:
        match part:
            case Text():
                summary = summary or part.text.startswith(SUMMARY)  # what follows it was joined to it
                if message.role == "tool":
                    yield SourceText(part.text, Source("tool", index))
                elif summary:
                    yield SourceText(part.text, Source("summary", index))
                else:
                    written.append(part.text)
            case ToolResult():
                yield from _results((text for text, _ in texts_of_result(part)), index, part.name, part.call_id)
            case File() | Image():
                for text, _ in texts_of_media(part):
                    yield SourceText(text, Source("file", index, part.name))
            case Opaque():
                yield from _results((text for text, _ in texts_of_state(part)), index)
            case _:
                pass
    yield SourceText("\n".join(written), Source("user", index))


def _results(texts: Iterable[str], index: int, name: str = "", call_id: str = "") -> Iterator[SourceText]:
    for text in texts:
        yield SourceText(text, Source("tool", index, name, call_id))


# -- forms ---------------------------------------------------------------------------------------------------------


def variants(text: str) -> list[str]:
    """The readings of a text, each in its layouts and without markup, in one case and without invisible characters."""
    found = dict.fromkeys(layout for reading in readings(text) for layout in layouts(visible(reading)))
    return [*dict.fromkeys((*found, *(_MARKUP.sub("", layout) for layout in found if "<" in layout)))]


def visible(text: str) -> str:
    """A text in one case and one form of its characters, without invisible characters."""
    if not text.isascii():
        text = _TAGS.sub(lambda tag: chr(ord(tag[0]) - 0xE0000), text)
    return _INVISIBLE.sub("", plain(text))


def value_forms(value: str) -> list[str]:
    """The folded forms of a value, without marks around it: as it is, and with its encodings decoded."""
    forms = readings(value)[:_FORMS] if len(value) <= _DECODED else [value]
    folded = dict.fromkeys(fold(visible(form)) for form in forms)
    return [*dict.fromkeys(form.strip(MARKS) or form for form in folded if form)]
