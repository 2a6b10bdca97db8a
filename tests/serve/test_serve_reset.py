"""Clients of a server whose log lost events: they are told to begin again, and have the log at their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

import penstock
from penstock import Done, Reset, Text, Usage
from penstock.log import RunRow
from penstock.log.bodies import body_of
from penstock.log.in_memory import MemoryStore
from penstock.log.position import Position
from penstock.log.store import Batch
from penstock.messages import user
from penstock.run.events import RunStart, StepStart
from penstock.serve.ag_ui.encoder import AGUIEncoder, RunHead
from penstock.serve.ai_sdk.encoder import LOST, UIMessageEncoder
from penstock.serve.client.remote_run import RemoteRunState
from penstock.serve.feeds.feed import Item
from penstock.serve.feeds.feeds import Feeds
from penstock.serve.following import RunEncoder, _pieces
from penstock.serve.public_events import EventFrames
from penstock.testing import Scripted
from tests.asgi_client import Browser, serving

DONE = body_of(Done("answered", "", (), Usage()))


class LossyLog:
    """A log in memory with the run `r`, which loses the end of the run as a crash of a database does."""

    def __init__(self) -> None:
        self.store = MemoryStore(lease=0.01)
        self.store.create(RunRow(id="r", agent="desk"), body_of(RunStart((user("Go."),), "desk")))
        self.take("first")

    def take(self, owner: str) -> None:
        claim = self.store.claim(owner, run_id="r")
        assert claim is not None
        self.owner, self.epoch, self.seq = owner, claim.epoch, claim.seq

    def write(self, *bodies: bytes) -> None:
        state: Any = "over" if bodies[-1] == DONE else "running"
        assert self.store.append([Batch("r", self.epoch, self.seq, bodies, state)], durable=False) == [True]
        self.seq += len(bodies)

    def write_texts(self, count: int) -> None:
        for number in range(count):
            self.write(body_of(Text(0, f"{self.owner} {number} ")))

    def lose(self, keep: int) -> None:
        """Forget all events after this number: the run has an earlier owner, or none."""
        run = self.store._runs["r"]
        del run.events[keep:]
        run.row = replace(run.row, seq=keep, epoch=0, state="ready")

    @property
    def events(self) -> list[tuple[int, float, bytes]]:
        return self.store.read("r")


def new_feeds(store: MemoryStore) -> Feeds:
    frames = EventFrames(1000)
    return Feeds(store, frames.frame, frames.reset)


async def pages(feeds: Feeds, after: int = 0) -> tuple[list[Item], bool]:
    """The events of a reader until its end, and whether it must begin again."""
    items: list[Item] = []
    async with asyncio.timeout(30), feeds.reading("r", after) as reader:
        while (page := await reader.next()) is not None:
            items += page.items
    return items, reader.has_other_past


@pytest.mark.parametrize("again", [0, 3, 30])
def test_readers_of_a_feed_are_told_to_begin_again(again: int) -> None:
    """The second owner has the epoch of the first, as after a restored backup, and writes in this process too."""
    log = LossyLog()
    log.write_texts(10)

    async def test() -> None:
        feeds = new_feeds(log.store)
        async with asyncio.timeout(30), feeds.reading("r") as reader, feeds.reading("r", 5) as second:
            assert (await reader.next()) is not None
            assert (await second.next()) is not None
            waiting = [asyncio.create_task(one.next()) for one in (reader, second)]
            await asyncio.sleep(0.05)
            log.lose(6)
            log.take("second")
            log.write_texts(again)
            log.write(DONE)
            for one in waiting:
                assert await one is None
            assert (reader.has_other_past, second.has_other_past) == (True, True)
            items, is_lost = await pages(feeds)
        assert not is_lost
        assert [(item.seq, item.at, body_of(item.event)) for item in items] == log.events
        feeds.close()

    asyncio.run(test())


def test_a_reader_whose_position_the_log_does_not_have_begins_again_at_the_next_read() -> None:
    log = LossyLog()
    log.write_texts(10)
    log.write(DONE)

    async def test() -> None:
        feeds = new_feeds(log.store)
        assert await pages(feeds, Position(4, 1)) == ([], True)
        items, is_lost = await pages(feeds, 4)
        assert ([item.seq for item in items], is_lost) == ([*range(5, 14)], False)

    asyncio.run(test())


async def follow_through_loss(encoder: RunEncoder) -> list[dict[str, Any]]:
    """What a client of a front end gets of a run whose log loses events while the client reads."""
    log = LossyLog()
    log.write(body_of(StepStart(1)))
    log.write_texts(5)
    feeds = new_feeds(log.store)
    context = cast(Any, SimpleNamespace(feeds=feeds, host=SimpleNamespace(store=log.store)))
    received = b""
    async with asyncio.timeout(30):
        pieces: AsyncIterator[bytes] = _pieces(context, "r", encoder, 0)
        async for piece in pieces:
            received += piece
            if b"first 4" in received and log.owner == "first":
                log.lose(6)
                log.take("second")
                log.write_texts(3)
                log.write(DONE)
    feeds.close()
    return [msgspec.json.decode(line[6:]) for line in received.split(b"\n\n") if line.startswith(b"data: {")]


def test_an_ag_ui_client_has_the_messages_of_the_log() -> None:
    encoder = AGUIEncoder(RunHead(run_id="r", thread_id="t", client_run_id="c"))
    events = asyncio.run(follow_through_loss(encoder))
    last = max(index for index, event in enumerate(events) if event["type"] == "MESSAGES_SNAPSHOT")
    assert events[last]["messages"] == []
    texts = [event["delta"] for event in events[last:] if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert texts == ["first 0 ", "first 1 ", "first 2 ", "second 0 ", "second 1 ", "second 2 "]
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_client_of_the_ai_sdk_is_told_to_load_the_chat_again() -> None:
    chunks = asyncio.run(follow_through_loss(UIMessageEncoder("r")))
    assert chunks[-1] == {"type": "error", "errorText": LOST}
    assert not any("second" in str(chunk) for chunk in chunks)


def test_a_run_of_the_client_forgets_what_it_has() -> None:
    state = RemoteRunState("r", "3-5f")
    assert (state.position, state.position.token) == (3, "3-5f")
    state._add(Position(4, 1), {"type": "text", "block": 0, "text": "lost"})
    asked = {"type": "approval_request", "call_id": "c", "name": "pay", "kind": "approval", "arguments": {}}
    state._add(Position(5, 1), {**asked, "shown": "x"})
    assert (state.text, len(state.waiting)) == ("lost", 1)
    assert state._add(Position(0), {"type": "reset", "at": 1.0}) == Reset()
    assert (state.text, state.waiting, state.position) == ("", [], 0)
    state._add(Position(4, 2), {"type": "text", "block": 0, "text": "kept"})
    assert state.text == "kept"


def serve_one_run(test: Callable[[Browser, str], Any]) -> None:
    agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(["Sunny."])), name="desk")

    async def serve() -> None:
        async with serving(penstock.serve.app(agent)) as browser:
            run_id = (await browser.post("/runs", {"prompt": "Go."})).json["id"]
            await test(browser, f"/runs/{run_id}/events")

    asyncio.run(serve())


def test_last_event_id_of_another_past_gets_a_reset_and_everything() -> None:
    async def test(browser: Browser, path: str) -> None:
        whole = (await browser.get(path)).frames
        for index, (position, _) in enumerate(whole[:-1]):
            assert (await browser.get(path, **{"last-event-id": position.token})).frames == whole[index + 1 :]
            assert (await browser.get(f"{path}?after={int(position)}")).frames == whole[index + 1 :]
        for position, _ in whole:
            assert position.past is not None
            other = f"{int(position)}-{position.past ^ 1:x}"
            (first, reset), *rest = (await browser.get(path, **{"last-event-id": other})).frames
            assert (first, reset["type"]) == (0, "reset")
            assert rest == whole
        assert (await browser.get(path, **{"last-event-id": whole[-1][0].token})).status == 204
        assert (await browser.get(path, **{"last-event-id": "0"})).frames == whole
        assert (await browser.get(path, **{"last-event-id": "1-xyz"})).status == 400

    serve_one_run(test)
