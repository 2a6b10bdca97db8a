"""The callbacks of an agent: functions to call for the events of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import AMBIGUOUS_CALL, Error, Reasoning, Text
from penstock.run.events import Done, StreamEvent, ToolEnd, ToolStart
from penstock.tools.signature import count_required

OnToolEnd = Callable[[str, Any], Any] | Callable[[str, Any, str], Any]


class Callbacks(Struct, frozen=True):
    """The callbacks; each may be async.

    `on_tool_end` is called once for every `on_tool_start`, and for calls that ended without a start: with the id of the
    call and what the tool returned. If it has a third parameter, that is the text that the model reads. For a call that
    failed or did not run, that text is also the result. `on_error` is called when a run ends because a request failed
    or a response was cut, and if a call that was run at its end tags turns out to be ambiguous (`confirm="close"`).
    """

    on_text: Callable[[str], Any] | None = None
    on_reasoning: Callable[[str], Any] | None = None
    on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None = None
    on_tool_end: OnToolEnd | None = None
    on_error: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            callback: Any = getattr(self, name)
            if callback is not None and not callable(callback):
                raise UsageError(f"{name} must be a function, not {callback!r}")

    @property
    def are_set(self) -> bool:
        """Whether there is a callback at all."""
        return any(getattr(self, name) is not None for name in self.__struct_fields__)

    def call(self, event: StreamEvent) -> Any:
        """Call the callback for an event; returns its result, which may be awaitable."""
        match event:
            case Text() if self.on_text:
                return self.on_text(event.text)
            case Reasoning() if self.on_reasoning:
                return self.on_reasoning(event.text)
            case ToolStart() if self.on_tool_start:
                return self.on_tool_start(event.call_id, event.name, event.arguments)
            case ToolEnd() if self.on_tool_end:
                return _call_tool_end(self.on_tool_end, event)
            case Error(code=code) if self.on_error and code == AMBIGUOUS_CALL:
                return self.on_error(event.message)
            case Done(reason="error" | "cut") if self.on_error:
                return self.on_error(event.why)
            case _:
                return None


def _call_tool_end(callback: Callable[..., Any], event: ToolEnd) -> Any:
    is_returned = event.ending == "done" or event.data is not None
    result, text = event.data if is_returned else event.result.text, event.result.text
    beside = (text,) if count_required(callback) == 3 else ()
    return callback(event.call_id, result, *beside)
