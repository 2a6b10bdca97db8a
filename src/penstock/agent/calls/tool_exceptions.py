"""Exceptions in hooks, and in tools if they are not `ToolError`s: bugs in most cases. How they are logged."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any

from penstock.agent.run_errors import original
from penstock.errors import ArgumentsError, ToolError
from penstock.jsontext.shown_text import one_line
from penstock.loggers import MAX_VALUE, get_logger
from penstock.model.logs import RUN
from penstock.tools.signature import unwrap

MAX_FAILURES = 100
"""How many exceptions of its tools and hooks a run keeps: the first ones."""

_logger = get_logger("penstock.agent")


def is_unexpected(error: BaseException) -> bool:
    """Whether a tool did not raise this for the model to read, and nobody cancelled it."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_unexpected, error.exceptions))
    return not isinstance(error, ToolError | ArgumentsError | CancelledError)


def log_raised(what: str, function: Callable[..., Any], error: BaseException, problem: str = "") -> None:
    """Log an exception of a user's function: its type and its place, but not its message, which is content.

    The run continues, so without this record nobody learns where the function failed. It goes to standard error if
    logging is not configured. `problem` is what the function did instead of raising.
    """
    run_id, agent = RUN.get()
    error = original(error)
    place = next((f" in {Path(file).name}, line {line}" for file, line in _places(function, error)), "")
    line = one_line(f"{what} {problem or f'raised {type(error).__name__}'}{place}", MAX_VALUE)
    _logger.warning("run %s: %s", run_id, line, extra={"run_id": run_id, "agent": agent, "printed_line": line})


def _places(function: Callable[..., Any], error: BaseException) -> Iterator[tuple[str, int]]:
    """Where an error was raised: in the file of the function, the innermost call first, or else where that begins.

    The line of a function without source code is that of the innermost call in any file.
    """
    code = getattr(unwrap(function)[0], "__code__", None)
    lines = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    for file, line in reversed(lines):
        if code is not None and file == code.co_filename:
            yield file, line
    if code is not None:
        yield code.co_filename, code.co_firstlineno
    yield from lines[-1:]
