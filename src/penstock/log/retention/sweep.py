"""Deletes the runs that a log need not keep any more, and archives them before."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote

from penstock.log.retention.run_files import lines_of
from penstock.log.store import Cutoff, DamagedRunError, RunRow, Store, StoreError

PAGE = 200
"""How many runs are looked at, archived and deleted at a time."""

OnSkipped = Callable[[RunRow, Exception], object]

MAX_NAME = 150
"""How many characters of an id a file name has at most; a longer id is cut, and gets a number."""


def sweep(store: Store, cutoff: Cutoff, archive: Path | None = None, on_skipped: OnSkipped = print) -> int:
    """Delete the runs that may be deleted; returns how many. With an `archive`, each is first written there.

    A run whose log is damaged cannot be archived: it stays, and `on_skipped` gets it.
    """
    count, after = sweep_page(store, cutoff, None, archive, on_skipped)
    while after is not None:
        deleted, after = sweep_page(store, cutoff, after, archive, on_skipped)
        count += deleted
    return count


def sweep_page(
    store: Store, cutoff: Cutoff, after: RunRow | None, archive: Path | None, on_skipped: OnSkipped
) -> tuple[int, RunRow | None]:
    """Delete one page of runs; returns how many, and where the next page begins, if any."""
    rows, after = store.prunable(cutoff, after=after, limit=PAGE)
    if archive is not None:
        rows = [row for row in rows if _is_archived(store, row, archive, on_skipped)]
    return store.delete([row.id for row in rows], cutoff), after


def count_old(store: Store, cutoff: Cutoff) -> int:
    """How many runs may be deleted."""
    rows, after = store.prunable(cutoff)
    count = len(rows)
    while after is not None:
        rows, after = store.prunable(cutoff, after=after)
        count += len(rows)
    return count


def archive_run(store: Store, row: RunRow, directory: Path) -> Path:
    """Write a run to its file in an archive. The file is complete and on disk when this returns."""
    path = archived_path(row, directory)
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with owner_only(temporary) as file:
            file.writelines(lines_of(store, row))
        temporary.replace(path)
        _flush_directory(path.parent)
    except OSError as error:
        raise StoreError(f"the archive {directory} cannot be written: {error}", is_temporary=True) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


@contextmanager
def owner_only(path: Path) -> Generator[IO[bytes]]:
    """A new file for its owner alone, compressed if its name ends with `.gz`; on disk when the context ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file:
                yield cast(IO[bytes], file)
        else:
            yield raw
        raw.flush()
        os.fsync(raw.fileno())


def archived_path(row: RunRow, directory: Path) -> Path:
    """The file of a run: `TENANT/YEAR-MONTH/ID.jsonl.gz`; runs without a tenant are in `_`."""
    month = time.strftime("%Y-%m", time.gmtime(row.updated))
    return directory / (_name(row.tenant) or "_") / month / f"{_name(row.id)}.jsonl.gz"


def _is_archived(store: Store, row: RunRow, archive: Path, on_skipped: OnSkipped) -> bool:
    try:
        archive_run(store, row, archive)
    except DamagedRunError as error:
        on_skipped(row, error)
        return False
    return True


def _name(text: str) -> str:
    """Text as the name of a file: no separators, no dots at the beginning, no names that a system reserves."""
    name = quote(text, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(name) > MAX_NAME:
        name = f"{name[:MAX_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"%5F{name[1:]}" if name.startswith("_") else name


def _flush_directory(path: Path) -> None:
    """Let a new name survive the loss of power, where the system can flush directories."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
