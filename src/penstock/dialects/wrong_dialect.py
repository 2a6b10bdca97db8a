"""`WrongDialect`: notices that a model writes its calls in a dialect that is not read.

Such a call is text, so the response looks like a final answer. It stays one, and an `Unknown` says what it looks like.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dialects.reading.schema import Tools
from penstock.dialects.registry import find_dialect
from penstock.dialects.rescue import LEAKS
from penstock.dialects.stage import TextCalls
from penstock.events import Finish, Retry, StreamChunk, Text, ToolCall, ToolCallInvalid, ToolCallStart, Unknown

LOOKED_FOR = (
    *LEAKS, "react", "llama3_json", "md_json_fence", "bare_json", "pythonic", "gemma_tool_code", "cline_xml",
    "anthropic_legacy", "kimi_k3",
)  # fmt: skip
"""The dialects that are looked for: also those that are too much like prose for `Rescue`, as nothing runs here."""
ALONE = ("cohere_r_plus", "muse_glimmer", "functionary_v32")
"""Dialects that are looked for after these, each alone, because they read the marks of others or others theirs."""
MAX_MARKS = 1000
"""How many characters that may begin a call are looked at; of a text with more, only so many characters are read."""
MAX_WATCHED = 200_000
"""How many characters of a response are searched for calls in another dialect."""


class WrongDialect:
    """A stage behind `TextCalls` that reports calls in other dialects, if a response has none in its own."""

    def __init__(self, dialects: str | Iterable[str], tools: Iterable[Any]) -> None:
        names = [dialects] if isinstance(dialects, str) else dialects
        self._dialects = [find_dialect(name)[0] for name in names]
        self._tools = list(tools)
        self._has_tools = bool(Tools(self._tools))
        self._texts: dict[int, list[str]] = {}
        self._sizes: dict[int, int] = {}
        self._with_calls: set[int] = set()

    def feed(self, event: StreamChunk) -> list[StreamChunk]:
        """Returns the event, after a report if it is the end of a response with a call in another dialect."""
        match event:
            case Text():
                self._add(event)
            case ToolCallStart() | ToolCall() | ToolCallInvalid():
                self._with_calls.add(event.choice)
            case Retry():
                self._restart()
            case Finish():
                return [*self._reports(event.choice), event]
            case _:
                pass
        return [event]

    def close(self) -> list[StreamChunk]:
        """Returns nothing: what is to be reported comes before the `Finish`."""
        return []

    def _add(self, event: Text) -> None:
        size = self._sizes.get(event.choice, 0)
        if size < MAX_WATCHED:
            self._texts.setdefault(event.choice, []).append(event.text[: MAX_WATCHED - size])
            self._sizes[event.choice] = size + len(event.text)

    def _restart(self) -> None:
        self._texts.clear()
        self._sizes.clear()
        self._with_calls.clear()

    def _reports(self, choice: int) -> list[StreamChunk]:
        text = "".join(self._texts.pop(choice, ()))
        if sum(map(text.count, "<{[|")) > MAX_MARKS:  # each takes time, and nothing else can happen meanwhile
            text = text[:MAX_MARKS]
        if not text or not self._has_tools or choice in self._with_calls or self._first_call(text, self._dialects):
            return []  # a call in its own dialect that stays text has another reason
        groups = (LOOKED_FOR, *([name] for name in ALONE))
        others = ([name for name in names if name not in self._dialects] for names in groups)
        call = next(filter(None, (self._first_call(text, names) for names in others if names)), None)
        if call is None:
            return []
        other = call.origin.removeprefix("text:")
        own = " or ".join(map(repr, self._dialects))
        note = f"the text looks like a call in the dialect {other!r}, and is read as {own}"
        return [Unknown({"dialect": other, "name": call.name, "arguments": call.arguments}, note)]

    def _first_call(self, text: str, dialects: Iterable[str]) -> ToolCall | None:
        """The first call of a text in one of these dialects."""
        stage = TextCalls(dialects, self._tools, only_declared=True, confirm="close")
        events = [*stage.feed(Text(0, text)), *stage.feed(Finish("stop")), *stage.close()]  # the text is not cut
        return next((event for event in events if isinstance(event, ToolCall)), None)
