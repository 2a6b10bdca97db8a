"""Exceptions in tools that are not `ToolError`s, and so are bugs in most cases: how they are recognised and logged."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any

from penstock.errors import ArgumentsError, ToolError
from penstock.model.logs import RUN

MAX_FAILURES = 100
"""How many exceptions of its tools a run keeps: the first ones."""

_logger = logging.getLogger("penstock.agent")


def is_unexpected(error: BaseException) -> bool:
    """Whether a tool did not raise this for the model to read, and nobody cancelled it."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_unexpected, error.exceptions))
    return isinstance(error, Exception | SystemExit) and not isinstance(error, ToolError | ArgumentsError)


def log_raised(what: str, function: Callable[..., Any], error: BaseException, *, is_printed: bool = False) -> None:
    """Log an exception of a user's function: its type and its place, but not its message, which is content.

    The run continues, so without this record nobody learns where the function failed. One that `is_printed` goes to
    standard error if logging is not configured.
    """
    run_id, agent = RUN.get()
    place = next((f" in {Path(file).name}, line {line}" for file, line in _places(function, error)), "")
    line = f"{what} raised {type(error).__name__}{place}"
    fields = {"run_id": run_id, "agent": agent} | ({"printed_line": line} if is_printed else {})
    _logger.warning("run %s: %s", run_id, line, extra=fields)


def _places(function: Callable[..., Any], error: BaseException) -> Iterator[tuple[str, int]]:
    """Where an error was raised: in the file of the function, the innermost call first, or else in any file."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    lines = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    for file, line in reversed(lines):
        if code is not None and file == code.co_filename:
            yield file, line
    yield from lines[-1:]
