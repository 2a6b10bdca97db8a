"""The guard of an agent: the functions that check a response, how it is cut into pieces, and their verdicts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from penstock.errors import UsageError
from penstock.tools.signature import count_required, takes_any

GuardKind = Literal["text", "reasoning", "refusal", "call", "provider"]
GuardUnit = Literal["sentence", "window", "answer"]


class StopRun(Struct, frozen=True):
    """The verdict that ends the run: neither this piece nor anything after it is shown or kept."""

    why: str = "the guard stopped the run"


class GuardContext(Struct, frozen=True):
    """Context for a guard function with a second parameter.

    `before` is the end of the preceding text of this kind in the response, as the model wrote it: checks overlap, so
    its verdict may not be known yet. `deps` is that of the run.
    """

    kind: GuardKind
    before: str
    step: int = 0
    deps: Any = None


TextVerdict = str | StopRun
CallVerdict = StopRun | None
CheckText = (
    Callable[[str], TextVerdict | Awaitable[TextVerdict]]
    | Callable[[str, GuardContext], TextVerdict | Awaitable[TextVerdict]]
)
CheckCall = (
    Callable[[str, dict[str, Any]], CallVerdict | Awaitable[CallVerdict]]
    | Callable[[str, dict[str, Any], GuardContext], CallVerdict | Awaitable[CallVerdict]]
)


class Guard(Struct, frozen=True):
    """Checks the responses of a model before anyone sees them: `Agent(guard=Guard(check))`, or `Agent(guard=check)`.

    `text` gets a piece of text and returns the text to pass on (the same, another, or an empty one), or a `StopRun`. It
    also gets what the provider says besides the response, such as the message of an error.
    `call` gets the name and the arguments of a call before its tool can start, and returns None or a `StopRun`. Both
    may be async, and get a `GuardContext` if they have one more parameter.

    Pieces are sentences, windows of `size` characters that end with a word, or the whole answer; a sentence without an
    end is cut at `size` too. `kinds` are checked, other text passes. At most `parallel` checks run at once, while the
    response streams on; one that takes longer than `timeout` seconds ends the run with an error.
    """

    text: CheckText
    call: CheckCall | None = None
    by: GuardUnit = "sentence"
    size: int = 500
    kinds: Collection[GuardKind] = ("text", "reasoning", "refusal")
    parallel: int = 4
    timeout: float = 10.0

    def __post_init__(self) -> None:
        _check_function("text", self.text, ("text",))
        if self.call is not None:
            _check_function("call", self.call, ("name", "arguments"))
        if self.by not in get_args(GuardUnit):
            raise UsageError(f"Guard.by must be 'sentence', 'window' or 'answer', not {self.by!r}")
        kinds: Any = self.kinds
        names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        force_setattr(self, "kinds", names)
        if unknown := [name for name in names if name not in ("text", "reasoning", "refusal")]:
            raise UsageError(f"Guard.kinds may contain 'text', 'reasoning' and 'refusal', not {unknown[0]!r}")
        for name in ("size", "parallel"):
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"Guard.{name} must be a whole number of 1 or more, not {value!r}")
        timeout: Any = self.timeout
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
            raise UsageError(f"Guard.timeout must be a number of seconds, more than 0, not {timeout!r}")


def _check_function(name: str, function: Any, parameters: tuple[str, ...]) -> None:
    if not callable(function):
        raise UsageError(f"Guard.{name} must be a function, not {function!r}")
    if not takes_any(function, len(parameters), len(parameters) + 1):
        raise UsageError(f"Guard.{name} must take ({', '.join(parameters)}), and may take a GuardContext after it")


def as_guard(guard: Any) -> Guard | None:
    """The `Guard` for the value of `Agent(guard=…)`: a `Guard`, a function that checks text, or None."""
    if guard is None or isinstance(guard, Guard):
        return guard
    if not callable(guard):
        raise UsageError(f"guard must be a function that checks a piece of text, or a penstock.Guard, not {guard!r}")
    check: Any = guard
    return Guard(check)


def with_context(function: Callable[..., Any], values: tuple[Any, ...], context: GuardContext) -> tuple[Any, ...]:
    """The arguments for a function of a guard: with the context, if it has a parameter for it."""
    return (*values, context) if count_required(function) > len(values) else values
