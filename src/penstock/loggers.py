"""Loggers of penstock: texts of models, servers and clients are on one line of a record, without control characters.

Whoever logs needs to do nothing for it: every value of a record goes through `one_line`, and a traceback, whose last
line may be such a text, is escaped and indented, so that none of its lines looks like a record.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Mapping

from penstock.jsontext.shown_text import escape, one_line

MAX_VALUE = 2_000
"""How many characters a value of a record may have."""

_formatter = logging.Formatter()


def get_logger(name: str) -> logging.Logger:
    """The logger of a package, whose records are safe to print."""
    logger = logging.getLogger(name)
    logger.addFilter(_make_safe)  # does nothing if it is there
    return logger


def _make_safe(record: logging.LogRecord) -> bool:
    if isinstance(record.args, Mapping):
        record.args = {name: _safe(value) for name, value in record.args.items()}
    elif record.args:
        record.args = tuple(map(_safe, record.args))
    if record.exc_info and not record.exc_text:
        record.exc_text = textwrap.indent(escape(_formatter.formatException(record.exc_info)), "  ")
    return True


def _safe(value: object) -> object:
    return value if isinstance(value, int | float) else one_line(str(value), MAX_VALUE)
