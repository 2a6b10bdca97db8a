"""The event loop of a run's caller: calls on it from other threads, also if one of them raises."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock.agent.driver.caller_loop import CallerLoop
from tests.scripted_runs import SOON


def fail() -> None:
    raise ValueError("no luck")


def test_calls_after_one_that_raises_are_made_without_another_post() -> None:
    async def run() -> list[str]:
        caller, errors, is_called = CallerLoop(), [], asyncio.Event()
        caller.attach()

        def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            errors.append(str(context["exception"]))

        asyncio.get_running_loop().set_exception_handler(report)
        caller.mailbox.post(fail)
        caller.mailbox.post(is_called.set)
        async with asyncio.timeout(SOON):
            await is_called.wait()
        return errors

    assert asyncio.run(run()) == ["no luck"]


def test_a_call_that_raises_does_not_keep_its_caller_waiting() -> None:
    async def run() -> float:
        caller = CallerLoop()
        caller.attach()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        start = time.monotonic()
        await asyncio.to_thread(caller.call_and_wait, fail, 60 * SOON)
        return time.monotonic() - start

    assert asyncio.run(run()) < 60 * SOON
