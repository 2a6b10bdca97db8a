"""Prints the log records of penstock to standard error while a command runs: for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import click

from penstock.jsontext.shown_text import escape

LOGGER = "penstock"
LogFormat = Literal["plain", "json"]

log_format_option = click.option(
    "--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True,
    help="Print log lines for people, or one JSON object per line.",
)  # fmt: skip


@contextmanager
def printed_records(name: str, level: int = logging.INFO, form: LogFormat = "plain") -> Generator[None]:
    """Print the records of the logger `name` from this level on, and the warnings of all others of penstock.

    As JSON, also the warnings of other libraries, so that every line is JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    is_json = form == "json"
    handler.setFormatter(JSONFormatter() if is_json else SafeFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name == name)
    logger, root = logging.getLogger(LOGGER), logging.getLogger()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    if is_json:
        root.addHandler(handler)
        logging.captureWarnings(True)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        if is_json:
            root.removeHandler(handler)
            logging.captureWarnings(False)


def announce(text: str, form: LogFormat, fields: Mapping[str, Any] | None = None) -> None:
    """Print what the command itself has to say, such as where it listens, to standard error."""
    if form == "plain":
        click.echo(escape(text), err=True)
        return
    values = {"name": LOGGER, "levelno": logging.INFO, "levelname": "INFO", "msg": text, "fields": fields or {}}
    click.echo(escape(JSONFormatter().format(logging.makeLogRecord(values))), err=True)


class SafeFormatter(logging.Formatter):
    """Escapes terminal control characters in log records."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


class JSONFormatter(logging.Formatter):
    """Writes a record as one JSON object on one line, with the fields that it has for programs."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        values: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "logger": record.name,
            "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        others = {name: value for name, value in fields.items() if name not in values}
        return json.dumps({**values, **others}, default=str)
