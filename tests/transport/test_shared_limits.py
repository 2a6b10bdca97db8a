"""Rate limits that the requests of a process share: one 429 makes all of them wait, instead of each retrying."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Agent, Decoder, Model, RateLimitError, Retries, Timeouts
from penstock.testing import Loopback, ReceivedRequest, Reply, Status, Step
from penstock.transport import shared_limits
from penstock.transport.commands import HTTPRequest, HTTPResponseHead, OpenRequest, Sleep
from penstock.transport.exchange import NOT_SENT, Exchange
from penstock.transport.shared_limits import FIRST_GAP, LONGEST_PAUSE, KeyLimit, SharedLimits
from tests.scripted_runs import SOON
from tests.transport.test_exchange import Clock, walk

A, B = b"a", b"b"


# -- pauses, by a clock ------------------------------------------------------------------------------------------------


def test_requests_with_the_same_key_wait_and_others_do_not() -> None:
    limits = SharedLimits()
    assert limits.next_send(A, 0.0) is None
    limits.pause(A, 0.0, 10.0)
    time = limits.next_send(A, 1.0)
    assert time is not None
    assert (time.start, time.until) == (10.0, 10.0)
    assert limits.next_send(B, 1.0) is None


def test_requests_start_one_after_another_and_all_of_them_soon() -> None:
    limits = SharedLimits()
    limits.pause(A, 0.0, 10.0)
    starts = [time.start for _ in range(1000) if (time := limits.next_send(A, 1.0)) is not None]
    assert len(starts) == 1000
    assert starts == sorted(starts)
    assert sum(start < 10 + 4 * FIRST_GAP for start in starts) <= 12
    assert starts[-1] < 10 + 1.6 * FIRST_GAP / (1 - shared_limits.GAP_RATIO)
    assert limits.next_send(A, starts[-1] + 1.0) is None


def test_a_limit_that_is_met_again_changes_the_times_of_those_that_wait() -> None:
    limits = SharedLimits()
    limits.pause(A, 0.0, 10.0)
    time = limits.next_send(A, 1.0)
    assert time is not None
    limits.pause(A, 0.0, 9.0)  # which is over before
    assert limits.is_current(A, time)
    limits.pause(A, 10.0, 5.0)
    assert not limits.is_current(A, time)
    again = limits.next_send(A, 10.0)
    assert again is not None
    assert again.start == 15.0


def test_a_pause_is_bounded_and_so_is_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limits, "MAX_PAUSES", 3)
    limits = SharedLimits()
    for number in range(5):
        limits.pause(bytes([number]), 0.0, 1e9)
    times = [limits.next_send(bytes([number]), 0.0) for number in range(5)]
    assert [time is None for time in times] == [True, True, False, False, False]
    assert times[4] is not None
    assert times[4].until == LONGEST_PAUSE


def exchange(clock: Clock, limits: SharedLimits, **retries: Any) -> Exchange:
    return Exchange(
        request=HTTPRequest("http://localhost/v1", {}, b"{}"),
        new_decoding=lambda: Decoder("openai-chat"),
        timeouts=Timeouts(total=100),
        retries=Retries(**retries),
        clock=clock,
        calendar=lambda: 0.0,
        limit=KeyLimit(A, limits),
    )


def first_command(of: Exchange) -> Any:
    return next(of.commands())


@pytest.mark.parametrize(
    ("status", "headers", "is_shared"),
    [
        (429, {"retry-after": "7"}, True),
        (429, {}, True),
        (529, {"retry-after": "7"}, True),
        (500, {}, False),
        (400, {}, False),
    ],
)
def test_which_errors_make_others_wait(status: int, headers: dict[str, str], is_shared: bool) -> None:
    clock, limits = Clock(), SharedLimits()
    walk(exchange(clock, limits), HTTPResponseHead(status, headers), b"")
    assert isinstance(first_command(exchange(clock, limits)), Sleep if is_shared else OpenRequest)


def test_a_used_up_quota_does_not_make_others_wait() -> None:
    clock, limits = Clock(), SharedLimits()
    walk(
        exchange(clock, limits),
        HTTPResponseHead(429, {}),
        b'{"error": {"message": "-", "code": "insufficient_quota"}}',
        b"",
    )
    assert isinstance(first_command(exchange(clock, limits)), OpenRequest)


def test_a_request_waits_as_long_as_it_may_and_says_that_it_was_not_sent() -> None:
    clock, limits = Clock(), SharedLimits()
    walk(exchange(clock, limits, longest_wait=60), HTTPResponseHead(429, {"retry-after": "50"}), b"")
    (error,) = walk(exchange(clock, limits, longest_wait=20))[-1:]
    assert isinstance(error, RateLimitError)
    assert (error.code, error.retry_after, error.retryable) == (NOT_SENT, 50.0, True)
    assert str(error) == "the request was not sent: the provider limits the rate for 50.0 seconds more"
    sleep = first_command(exchange(clock, limits))
    assert isinstance(sleep, Sleep)
    assert 50.0 <= sleep.seconds < 51.0
    assert isinstance(first_command(exchange(clock, limits, attempts=0)), OpenRequest)


# -- runs over HTTP ----------------------------------------------------------------------------------------------------


class Limited:
    """A provider that answers the first requests with 429 and all others with text."""

    def __init__(self, rejected: int, retry_after: float) -> None:
        self._left = rejected
        self._retry_after = retry_after

    def __call__(self, request: ReceivedRequest) -> Step:
        if self._left > 0:
            self._left -= 1
            return Status(429, retry_after=self._retry_after)
        return Reply("Sunny.")


def agent_at(server: Loopback, **options: Any) -> Agent:
    options = {"api_key": "key-a", "retries": Retries(attempts=5), **options}
    return Agent(Model("openai-compatible:m", base_url=server.base_url("openai-chat"), **options))


@contextmanager
def when_a_request_failed(act: Callable[[], None]) -> Generator[None]:
    """Do this when a request has failed, and its pause is known."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "failed" in record.getMessage():
                act()

    logger, handler = logging.getLogger("penstock.model"), Handler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("rejected", [1, 2])
def test_200_runs_and_one_429_do_not_make_200_retries(rejected: int) -> None:
    async def main(server: Loopback) -> list[str]:
        agent, has_failed = agent_at(server), asyncio.Event()
        with when_a_request_failed(has_failed.set):
            first = asyncio.create_task(agent.arun("Go."))
            await asyncio.wait_for(has_failed.wait(), SOON)
        others = [asyncio.create_task(agent.arun("Go.")) for _ in range(199)]
        return [result.output for result in await asyncio.gather(first, *others)]

    with Loopback(Limited(rejected, 0.2)) as server:
        assert asyncio.run(main(server)) == ["Sunny."] * 200
        assert len(server.requests) == 200 + rejected


def test_without_sharing_each_run_meets_the_limit_itself() -> None:
    async def main(server: Loopback) -> None:
        agent = agent_at(server, retries=Retries(attempts=5, shared=False))
        await asyncio.gather(*(agent.arun("Go.") for _ in range(10)))

    with Loopback(Limited(10, 0.1)) as server:
        asyncio.run(main(server))
        assert len(server.requests) == 20


def test_sync_and_async_runs_share_a_limit() -> None:
    with Loopback(Limited(1, 0.2)) as server:
        has_failed = threading.Event()
        agent = agent_at(server)
        with when_a_request_failed(has_failed.set):
            plain = threading.Thread(target=agent.run, args=("Go.",))
            plain.start()
            assert has_failed.wait(SOON)

        async def main() -> None:
            await asyncio.gather(*(agent.arun("Go.") for _ in range(10)))

        asyncio.run(main())
        plain.join(SOON)
        assert len(server.requests) == 12


def paused(server: Loopback) -> tuple[threading.Thread, Any]:
    """A run that has met a limit for a long time, and the thread that reads it."""
    has_failed = threading.Event()
    run = agent_at(server).stream("Go.")
    thread = threading.Thread(target=lambda: [*run])
    with when_a_request_failed(has_failed.set):
        thread.start()
        assert has_failed.wait(SOON)
    return thread, run


def test_another_key_or_model_does_not_wait_and_one_that_waits_can_be_cancelled() -> None:
    with Loopback(Limited(1, 50)) as server:
        thread, run = paused(server)
        start = time.monotonic()
        assert agent_at(server, api_key="key-b").run("Go.").output == "Sunny."
        assert agent_at(server, api_key=lambda: "key-a").run("Go.").output == "Sunny."
        other = Model("openai-compatible:n", base_url=server.base_url("openai-chat"), api_key="key-a")
        assert Agent(other).run("Go.").output == "Sunny."
        waiting = agent_at(server).stream("Go.")
        reader = threading.Thread(target=lambda: [*waiting])
        reader.start()
        for each in (waiting, run):
            each.cancel()
        for reading in (reader, thread):
            reading.join(SOON)
            assert not reading.is_alive()
        assert time.monotonic() - start < 50
        assert len(server.requests) == 4


def test_a_script_shares_no_limit() -> None:
    model = Model("openai-compatible:m", api_key="key-a", base_url="http://localhost:1")
    assert model.ask("Go.").limit is not None
    assert Model("sim:demo").ask("Go.").limit is None


def test_keys_are_not_kept() -> None:
    exchange = Model("openai-compatible:m", api_key="key-secret", base_url="http://localhost:1").ask("Go.")
    kept = [value for value in vars(exchange.limit).values() if isinstance(value, bytes)]
    assert len(kept) == 1
    assert b"key-secret" not in kept[0]
