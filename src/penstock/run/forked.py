"""The event of a fork in a log: where its parent was, and which effects the parent had after that."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import Struct

from penstock.events import Event
from penstock.messages import ToolResult


class PastCall(Struct, frozen=True, omit_defaults=True):
    """A call with side effects that the parent of a fork made after the event at which it was forked.

    `tools` are the names of the agents around the call, and of its tool. `result` is None if the parent has none: the
    tool was still running, or its process died.
    """

    tools: tuple[str, ...]
    arguments: dict[str, Any]
    result: ToolResult | None = None
    data: Any = None


class Forked(Event, frozen=True, tag="forked"):
    """In a log: the run is a fork, and the events before this one are those of its parent `run` until its event `at`.

    With `model`, it continues with this model. If it makes a call of the `past`, the tool does not run: the call gets
    the result that it had in the parent. `request` identifies what was asked for.
    """

    run: str
    at: int
    model: str = ""
    past: tuple[PastCall, ...] = ()
    request: str = ""
    type: ClassVar[Literal["forked"]] = "forked"
