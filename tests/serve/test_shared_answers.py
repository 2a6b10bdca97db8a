"""Answers about runs that are over: made once for all who ask, and kept up to a limit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import StoreError
from penstock.log import RunRow
from penstock.serve.hosting import Host
from penstock.serve.runs import shared_answers
from penstock.serve.runs.shared_answers import SharedAnswers
from tests.asgi_client import Browser
from tests.serve.test_serve import TWO_STEPS, run, started

OVER = RunRow(id="a", state="over", seq=10)


class Maker:
    """Makes answers, and counts them."""

    def __init__(self, size: int = 1) -> None:
        self.count = 0
        self.size = size

    def __call__(self) -> bytes:
        self.count += 1
        return b"x" * self.size


def test_an_answer_is_made_once_per_run_and_event() -> None:
    async def test() -> None:
        answers, make = SharedAnswers(), Maker()
        assert await asyncio.gather(*(answers.get(OVER, make) for _ in range(10))) == [b"x"] * 10
        assert await answers.get(OVER, make) == b"x"
        assert make.count == 1
        for other in ({"id": "b"}, {"seq": 11}, {"created": 1.0}):
            await answers.get(RunRow(**{"id": "a", "state": "over", "seq": 10, **other}), make)  # type: ignore[arg-type]
        assert make.count == 4

    asyncio.run(test())


def test_the_answer_about_a_run_that_goes_on_is_not_kept() -> None:
    async def test() -> None:
        answers, make, row = SharedAnswers(), Maker(), RunRow(id="a", state="running", seq=10)
        await asyncio.gather(*(answers.get(row, make) for _ in range(10)))
        await answers.get(row, make)
        assert make.count == 2

    asyncio.run(test())


def test_answers_are_kept_up_to_a_size_and_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "MAX_ANSWERS_BYTES", 100)

    async def test() -> None:
        answers, make = SharedAnswers(), Maker(40)
        first, second, third = (RunRow(id=id, state="over") for id in "abc")
        for row in (first, second, first, third):  # now the second is the oldest
            await answers.get(row, make)
        assert make.count == 3
        await answers.get(first, make)
        assert make.count == 3
        await answers.get(second, make)
        assert make.count == 4
        large = Maker(101)
        assert len(await answers.get(OVER, large)) == 101
        await answers.get(OVER, large)
        assert large.count == 2
        await answers.get(second, make)  # an answer that is too large does not take the place of others
        assert make.count == 4

    asyncio.run(test())


def test_an_error_is_for_all_who_wait_and_is_not_kept() -> None:
    fails = True

    def make() -> bytes:
        if fails:
            raise StoreError("no")
        return b"x"

    async def test() -> None:
        nonlocal fails
        answers = SharedAnswers()
        errors = await asyncio.gather(*(answers.get(OVER, make) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in errors] == [StoreError] * 3
        fails = False
        assert await answers.get(OVER, make) == b"x"

    asyncio.run(test())


def test_who_leaves_does_not_take_the_answer_from_others() -> None:
    async def test() -> None:
        answers, make = SharedAnswers(), Maker()
        leaves, stays = (asyncio.create_task(answers.get(OVER, make)) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        assert await stays == b"x"
        assert make.count == 1

    asyncio.run(test())


def test_the_messages_of_a_run_are_rebuilt_once_for_all_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = 0
    read = Host.read

    def count(self: Host, row: RunRow) -> Any:
        nonlocal rebuilt
        rebuilt += 1
        return read(self, row)

    monkeypatch.setattr(Host, "read", count)

    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        await browser.get(f"/runs/{run_id}/events")
        replies = [await browser.get(f"/runs/{run_id}/messages") for _ in range(3)]
        replies += await asyncio.gather(*(browser.get(f"/runs/{run_id}/messages") for _ in range(3)))
        assert {reply.body for reply in replies} == {replies[0].body}
        assert [message["role"] for message in replies[0].json["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert rebuilt == 1

    run(tmp_path, TWO_STEPS, test)
