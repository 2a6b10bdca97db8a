"""Mistakes in async code: the error says what to write."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from collections.abc import AsyncIterable
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from penstock import Agent, Model
from penstock.serve.client.remote_run import AsyncRemoteRun
from penstock.testing import Scripted, always


def agent() -> Agent:
    return Agent(Model("openai:gpt-5", via=Scripted(always("Hi."))))


def remote() -> Any:
    carrier: Any = None
    return AsyncRemoteRun(carrier, "r1")


@pytest.mark.parametrize("make", [lambda: agent().astream("Go."), remote])
def test_for_and_with_on_an_async_run_say_what_to_write(make: Any) -> None:
    with pytest.raises(TypeError, match=r"Run is read in async code: use `async for event in …`, not `for`"):
        for _ in make():
            pass
    with pytest.raises(TypeError, match=r"Run is read in async code: use `async with …`, not `with`"), make():
        pass
    assert isinstance(make(), AsyncIterable)


def test_a_forgotten_await_says_what_to_write() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result: Any = agent().arun("Go.")
        with pytest.raises(
            AttributeError, match=r"must be awaited before its 'output' is used: `await agent.arun\(…\)`"
        ):
            result.output  # noqa: B018
        del result
    with pytest.warns(RuntimeWarning, match=r"coroutine 'agent.arun\(…\)' was never awaited"):
        agent().arun("Go.")  # type: ignore[unused-coroutine]


def test_arun_is_a_coroutine_for_asyncio() -> None:
    async def main() -> list[str]:
        clerk = agent()
        task = asyncio.create_task(clerk.arun("Go."))
        assert "arun" in repr(task)
        awaited = await clerk.arun("Go.")
        gathered = await asyncio.gather(clerk.arun("Go."), asyncio.wait_for(clerk.arun("Go."), 10))
        return [result.output for result in (await task, awaited, *gathered)]

    assert asyncio.run(main(), debug=True) == ["Hi."] * 4
    assert asyncio.run(agent().arun("Go.")).output == "Hi."
    pending = agent().arun("Go.")
    assert asyncio.iscoroutine(pending)
    pending.close()


def test_a_cancelled_task_of_arun_ends() -> None:
    async def main() -> None:
        task = asyncio.create_task(agent().arun("Go."))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="functions can be marked since Python 3.12")
def test_arun_counts_as_an_async_function() -> None:
    assert inspect.iscoroutinefunction(agent().arun)
    assert isinstance(create_autospec(Agent, instance=True).arun, AsyncMock)
