"""The log record of an exception that a tool raised: its type and its place, without its message.

The model reads the message and continues, so without this record nobody learns where the function failed.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any

from penstock.errors import ArgumentsError, ToolError
from penstock.model.logs import RUN

_logger = logging.getLogger("penstock.agent")


def log_raised(name: str, function: Callable[..., Any], error: BaseException) -> None:
    """Log an exception that the function of a tool did not raise for the model to read."""
    if isinstance(error, Exception) and not isinstance(error, ToolError | ArgumentsError):
        run_id, agent = RUN.get()
        place = next((f" in {file}, line {line}" for file, line in _places(function, error)), "")
        values = run_id, name, type(error).__name__, place
        _logger.warning("run %s: the tool %s raised %s%s", *values, extra={"run_id": run_id, "agent": agent})


def _places(function: Callable[..., Any], error: BaseException) -> Iterator[tuple[str, int]]:
    """Where the file of a function is in the traceback of an error, the innermost call first."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    lines = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    for file, line in reversed(lines):
        if code is not None and file == code.co_filename:
            yield Path(file).name, line
