"""Calls the user's functions for credentials: with a time limit, and never on the caller's event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from penstock.transport.commands import Authorize, ReadTimedOut
from penstock.transport.threads.loop_thread import driver_loop, resolve, result_of, shared_loop


def call_for_credentials(command: Authorize) -> Any:
    """Calls the function in sync code; awaitables run on the shared event loop."""
    if command.timeout is None:
        return resolve(command.call())
    deadline = time.monotonic() + command.timeout
    value = command.call() if iscoroutinefunction(command.call) else _result(_begin(command.call), command.timeout)
    try:
        return resolve(value, max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        if time.monotonic() < deadline:
            raise
        raise ReadTimedOut("the function for credentials did not return in time") from None


async def acall_for_credentials(command: Authorize) -> Any:
    """Calls the function in async code; a sync function is called in a thread, because it may block."""
    limit = asyncio.timeout(command.timeout)
    try:
        async with limit:
            is_async = iscoroutinefunction(command.call)
            value = command.call() if is_async else await asyncio.wrap_future(_begin(command.call))
            if isawaitable(value) and driver_loop.is_here:  # a run of sync code, whose loop awaits no code of the user
                return await result_of(shared_loop.begin(value, copy_context()))
            return await value if isawaitable(value) else value
    except TimeoutError:
        if not limit.expired():
            raise
        raise ReadTimedOut("the function for credentials did not return in time") from None


def _begin(call: Callable[[], Any]) -> Future[Any]:
    """Calls a function in a thread that does not keep the process alive."""
    result: Future[Any] = Future()
    result.set_running_or_notify_cancel()
    variables = copy_context()

    def work() -> None:
        try:
            result.set_result(variables.run(call))
        except BaseException as error:  # noqa: BLE001  # whoever waits for it gets the error
            result.set_exception(error)

    threading.Thread(target=work, name="penstock-credentials", daemon=True).start()
    return result


def _result(future: Future[Any], seconds: float) -> Any:
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the function raised it
            raise
        raise ReadTimedOut("the function for credentials did not return in time") from None
