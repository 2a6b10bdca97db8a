"""Logging: no content is logged, and one kind of record is printed without configuration: a tool raised an exception.

Each package has a logger of its name (`penstock.model`, `penstock.agent`). A record has the attributes `run_id`, which
is empty outside of a run, and `agent`, the name of the agent.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.loggers import get_logger
from penstock.transport.commands import Sleep

RUN: ContextVar[tuple[str, str]] = ContextVar("penstock_run", default=("", ""))
"""The id of the run that the code belongs to, and the name of its agent."""

logging.getLogger("penstock").addHandler(logging.NullHandler())
_logger = get_logger("penstock.model")


class ToolExceptionPrinter(logging.Handler):
    """Prints records of exceptions in tools to standard error, unless logging is configured or a screen is drawn.

    Such an exception is a bug in most cases, and without this only the model would learn about it.
    """

    screens = 0
    """How many screens are drawn; a line on standard error would break them."""

    def emit(self, record: logging.LogRecord) -> None:
        line: str | None = getattr(record, "printed_line", None)
        if line is None or self.screens or any(_prints(handler) for handler in _handlers(record.name)):
            return
        try:
            sys.stderr.write(f"penstock: {line}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # there may be no standard error, or it is closed
            self.handleError(record)


def _handlers(name: str) -> Iterator[logging.Handler]:
    """The handlers that get the records of a logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _prints(handler: logging.Handler) -> bool:
    return not isinstance(handler, logging.NullHandler | ToolExceptionPrinter)


_printer = ToolExceptionPrinter()
logging.getLogger("penstock.agent").addHandler(_printer)


@contextmanager
def screen_drawn() -> Generator[None]:
    """Print nothing to standard error while a screen is drawn."""
    _printer.screens += 1
    try:
        yield
    finally:
        _printer.screens -= 1


def log_wait(url: str, sleep: Sleep) -> None:
    """Log that a request failed and is sent again, or waits for a rate limit; the URL is without secrets."""
    run_id, agent = RUN.get()
    fields = {"run_id": run_id, "agent": agent}
    if sleep.is_retry:
        _logger.warning("the request to %s failed; next attempt in %.2f seconds", url, sleep.seconds, extra=fields)
    else:
        _logger.info("the request to %s waits %.2f seconds for a rate limit", url, sleep.seconds, extra=fields)
