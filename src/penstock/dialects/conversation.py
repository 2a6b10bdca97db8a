"""The sources of a conversation: its texts in order, the places where two of them meet, and how much is searched.

Texts are prepared when the first call ends, and each message keeps its own, so that a later request prepares what is
new. At most MAX_SOURCES characters are prepared, the newest ones; what is older is only searched for names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from penstock.dialects.folding import clean, plain
from penstock.dialects.source_texts import SourceText, Written, prepared, written_texts
from penstock.dialects.sources.segments import SEGMENT
from penstock.events import Opaque
from penstock.messages import Message

MAX_SOURCES = 2 * 1024 * 1024
"""How many characters of the conversation are searched for calls: the newest ones."""
LONG = 32 * 1024
"""How many characters take long: several milliseconds."""
_MEETING = 2048  # how much of a long text is read together with its neighbour
_JOINT = 2 * _MEETING  # how many characters short texts in a joint have
_KEPT = "source_texts"
"""The name under which a message keeps its texts beside its fields."""

Check = Callable[[list[SourceText]], bool]


class Joint:
    """Neighbouring texts as one: a call may be split between messages. It has the ends and beginnings of long texts."""

    def __init__(self, sides: tuple[Written, ...]) -> None:
        self.sides = sides
        self._is_result = any(is_result for _, is_result in sides)

    @cached_property
    def texts(self) -> list[SourceText]:
        return prepared("".join(text for text, _ in self.sides), is_result=self._is_result)

    @cached_property
    def _side_texts(self) -> list[SourceText]:
        return [text for side, _ in self.sides for text in prepared(side, is_result=self._is_result)]

    def spans(self, check: Check) -> bool:
        """Whether the check is true of all sides together, and not of one of them alone."""
        return check(self.texts) and not check(self._side_texts)


class KeptTexts:
    """The texts of one source, prepared at most once."""

    def __init__(self, source: Message | Opaque | Mapping[str, Any]) -> None:
        self.written = written_texts(source)
        self._texts: dict[int, list[SourceText]] = {}
        self._joints: dict[int, Joint] = {}  # that end with a text

    @property
    def size(self) -> int:
        return sum(len(text) for text, _ in self.written)

    def prepare(self, number: int) -> list[SourceText]:
        if number not in self._texts:
            text, is_result = self.written[number]
            self._texts[number] = prepared(text, is_result=is_result)
        return self._texts[number]

    def joint(self, number: int, sides: tuple[Written, ...]) -> Joint:
        """The joint of these texts, of which the last is a text of this source."""
        joint = self._joints.get(number)
        if joint is None or joint.sides != sides:
            joint = self._joints[number] = Joint(sides)
        return joint


Source = Message | Opaque | Mapping[str, Any] | KeptTexts


def keep_texts(messages: Iterable[Message]) -> None:
    """Let messages keep their texts now, for example in a thread: later it takes no time."""
    for message in messages:
        _kept(message)


def _kept(source: Source) -> KeptTexts:
    """The texts of a source; messages keep theirs for later requests."""
    if isinstance(source, KeptTexts):
        return source
    if not isinstance(source, Message):
        return KeptTexts(source)
    texts: KeptTexts | None = vars(source).get(_KEPT)
    if texts is None:
        texts = vars(source)[_KEPT] = KeptTexts(source)
    return texts


class Conversation:
    """The texts of one request that a model may quote. `texts` and `joints` are complete after `prepare`."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._unread = list(sources)
        self._left = MAX_SOURCES
        self._sides: tuple[Written, ...] = ()  # the texts of the next joint
        self._unsearched: list[str] = []
        self._mentioned: dict[str, bool] = {}  # whether these have a name
        self.texts: list[SourceText] = []
        self.joints: list[Joint] = []

    @property
    def size(self) -> int:
        """How many characters are to be prepared."""
        return min(self._left, sum(_kept(source).size for source in self._unread))

    @property
    def is_long(self) -> bool:
        """Whether it may take long to prepare or to search the texts."""
        return self._left <= MAX_SOURCES - LONG or self.size >= LONG

    def add(self, source: Source) -> None:
        self._unread.append(source)

    def prepare(self) -> None:
        """Prepares the texts that were added since the last time; only the newest fit into what is left."""
        unread, self._unread = self._unread, []
        texts = [(kept, number) for kept in map(_kept, unread) for number in range(len(kept.written))]
        first = len(texts)
        while first and len(_text(texts[first - 1])) <= self._left:
            first -= 1
            self._left -= len(_text(texts[first]))
        for older in texts[:first]:
            self._add_part(_text(older), older[0].written[older[1]][1], is_last=older is texts[first - 1])
        for kept, number in texts[first:]:
            self.texts += kept.prepare(number)
            self._join(kept, number, is_last=(kept, number) == texts[-1])

    def _join(self, kept: KeptTexts, number: int, *, is_last: bool) -> None:
        """Adds a text to the next joint, and ends that if it is long enough, or there are no more texts."""
        text, is_result = kept.written[number]
        is_long = len(text) > _JOINT
        sides = (*self._sides, (text[:_MEETING] if is_long else text, is_result))
        is_full = is_long or sum(len(side) for side, _ in sides) > _JOINT
        if len(sides) > 1 and (is_full or is_last):
            self.joints.append(kept.joint(number, sides))
        if is_long:
            sides = ((text[-_MEETING:], is_result),)
        elif is_full:
            sides = _last(sides)
        self._sides = sides

    def _add_part(self, text: str, is_result: bool, *, is_last: bool) -> None:
        """Adds a text that does not fit: the last one of them is searched as far as it does."""
        size = self._left if is_last else 0
        self._left -= size
        if size:
            self.texts += prepared(text[-size:], is_result=is_result)
        self._unsearched.append(_cleaned(text[: len(text) - size]))
        self._mentioned.clear()
        self._sides = ((text[-_MEETING:], is_result),)

    def mentions(self, name: str) -> bool:
        """Whether a text that is not searched has the name as in a call. It is looked for once."""
        if name not in self._mentioned:
            folded = re.escape(plain(name))
            pattern = re.compile(rf"{folded}(?<!\w{folded})(?!\w)[\"'`\\]{{0,3}}\s{{0,4}}[(\[{{<>,:]")
            self._mentioned[name] = any(_matches(pattern, text, len(name) + 8) for text in self._unsearched)
        return self._mentioned[name]


def _last(sides: tuple[Written, ...]) -> tuple[Written, ...]:
    """The last _MEETING characters of these texts."""
    kept: list[Written] = []
    left = _MEETING
    for text, is_result in reversed(sides):
        if left > 0:
            kept.append((text[-left:], is_result))
            left -= len(text)
    return tuple(reversed(kept))


def _cleaned(text: str) -> str:
    """A plain text, which is made piece by piece: one call would not let other threads run."""
    pieces = (text[start : start + SEGMENT] for start in range(0, len(text), SEGMENT))
    return "".join([clean(piece).casefold() for piece in pieces])


def _matches(pattern: re.Pattern[str], text: str, overlap: int) -> bool:
    """Whether a text has a pattern, which is looked for piece by piece."""
    return any(pattern.search(text, start, start + SEGMENT + overlap) for start in range(0, len(text), SEGMENT))


def _text(place: tuple[KeptTexts, int]) -> str:
    return place[0].written[place[1]][0]
