"""Prints the log records of penstock to standard error while a command runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager

from penstock.jsontext.shown_text import escape

LOGGER = "penstock"


@contextmanager
def printed_records(name: str, level: int = logging.INFO) -> Generator[None]:
    """Print the records of the logger `name` from this level on, and the warnings of all others of penstock."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name == name)
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class SafeFormatter(logging.Formatter):
    """Escapes terminal control characters in log records."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))
