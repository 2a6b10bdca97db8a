"""Large images and files in a log: stored once by hash, put back when read, pruned with the last run that has them."""

from __future__ import annotations

import random
import time

import pytest

from penstock import Said, StoreError, ToolEnd, ToolResult, messages
from penstock.log import RunRow, Store
from penstock.log.bodies import body_of, event_of
from penstock.log.media import MEDIA_SIZE, put_back, take_out
from penstock.log.store import Batch
from penstock.run.events import RunStart
from tests.log.sqlite.connections import connection_of
from tests.log_stores import Clock

PICTURE = random.Random(1).randbytes(5_000_000)
START = RunStart((messages.user("What is this?", messages.image(PICTURE, "image/png")),), "support")
SAID = Said(messages.user("And this?", messages.file(PICTURE, "application/pdf", "it.pdf")))
END = ToolEnd("1.0", ToolResult("c", "look", (messages.image(PICTURE, "image/png"),)))


def stored_media(store: Store) -> int:
    """How many media the tables of a store have."""
    fields = vars(store)
    if "_media" in fields:
        return len(fields["_media"])
    if "_connections" in fields and hasattr(fields["_connections"], "execute"):
        return int(fields["_connections"].execute(f"SELECT count(*) FROM {fields['_schema']}.media")[0][0])
    return int(connection_of(store._file).execute("SELECT count(*) FROM media").fetchone()[0])  # type: ignore[attr-defined]


def add_run(store: Store, run_id: str) -> None:
    store.create(RunRow(id=run_id, agent="support"), body_of(START))
    store.claim("one", run_id=run_id)
    assert store.append([Batch(run_id, 1, 2, [body_of(SAID), body_of(END)], "over")], durable=True) == [True]


def test_a_large_image_is_stored_once_and_read_as_it_was(store: Store, clock: Clock) -> None:
    add_run(store, "r")
    assert not store.create(RunRow(id="r", agent="support"), body_of(START))
    assert stored_media(store) == 1
    events = [event_of("r", seq, body) for seq, _, body in store.read("r")]
    assert [events[0], *events[2:]] == [START, SAID, END]

    clock.now += 100
    add_run(store, "later")
    assert stored_media(store) == 1
    assert store.prune(before=1050.0) == 1
    clock.now += 10_000
    store.prune(before=1050.0)
    assert stored_media(store) == 1
    assert event_of("later", 1, store.read("later")[0][2]) == START
    assert store.prune(before=clock.now) == 1
    assert stored_media(store) == 0


def test_text_that_looks_like_a_reference_stays_text() -> None:
    body = body_of(Said(messages.user("\0" + "a" * 64 + "\0", "b" * MEDIA_SIZE)))
    short, media = take_out(body)
    assert len(media) == 1
    assert put_back("r", [(1, 0.0, short)], lambda hashes: media) == [(1, 0.0, body)]


def test_media_that_are_missing_are_an_error() -> None:
    short, _ = take_out(body_of(START))
    with pytest.raises(StoreError, match=r"the log of the run r is damaged: the media [0-9a-f]{64} are missing"):
        put_back("r", [(1, 0.0, short)], lambda hashes: {})


def test_media_are_found_in_linear_time() -> None:
    body = (b"a" * (MEDIA_SIZE - 1) + b" ") * 40
    start = time.process_time()
    assert take_out(body) == (body, {})
    assert time.process_time() - start < 1.0  # with a search from each character, a minute
