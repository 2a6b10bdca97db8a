"""Responses of the model: each is read in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.agent.calls.guarded_stream import GuardedStream, guarded_stream
from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.config import AgentConfig
from penstock.agent.driver.caller_loop import is_stopped
from penstock.agent.driver.driven_run import DrivenRun
from penstock.events import StreamChunk
from penstock.healing.repairs import with_repairs
from penstock.model.stream import AsyncStream
from penstock.model.streamed_response import FOLD_SIZE
from penstock.run.commands import AskModel, Command

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher


class ResponseReader:
    """Sends the requests of a run, and passes the chunks of each response to its machine."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._stream: AsyncStream | GuardedStream | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, command: AskModel) -> None:
        """Send the request in a task."""
        self._task = asyncio.create_task(self._read(command), context=self._driven.scope.variables.copy())
        self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Break off the request."""
        if self._task is not None and not self._task.done():
            if self._stream is not None:
                self._stream.abort()
            with suppress(RuntimeError):  # the loop is closed
                self._task.cancel()

    def close(self) -> list[asyncio.Task[None]]:
        """Forget the task; returns it, to be waited for."""
        tasks = [] if self._task is None else [self._task]
        self._task = None
        return tasks

    async def first_step(self) -> Callable[[], list[Command]]:
        """How the run begins: it lists the tools of one that continues, which may fail, as the lack of `deps` does."""
        driven = self._driven
        try:
            driven.config.check_deps(driven.deps)
            if driven.needs_listing:
                driven.use(await driven.code.listed(driven.step_tools))
        except Exception as error:  # noqa: BLE001  # a source of tools may fail in any way
            return partial(driven.failed, error)
        return driven.run.begin

    async def _read(self, command: AskModel) -> None:
        driven, run, outbox = self._driven, self._driven.run, self._driven.outbox
        if driven.is_cancelled:
            return
        try:
            self._stream = stream = await self._request(command)
            config, pricing, response = driven.config, driven.pricing, run.state.response
            try:
                chunks: list[StreamChunk] | None = await stream.start()
                while chunks is not None:
                    if chunks:
                        if config.run_repaired:
                            chunks = with_repairs(chunks)
                        if pricing is not None:
                            chunks = pricing.priced(chunks, config.model.name)
                        self._dispatcher.carry_out(run.chunks(chunks))
                        if len(response.unfolded) > FOLD_SIZE:
                            response.fold(outbox.most_unread)
                        if outbox.is_full:
                            await self._dispatcher.room()
                    chunks = await stream.next_batch()
            finally:
                await stream.close()
        except (SystemExit, asyncio.CancelledError) as error:  # which would end the loop, or only the task
            if is_from_outside(error):
                raise
            self._end(partial(driven.failed, error))

    async def _request(self, command: AskModel) -> AsyncStream | GuardedStream:
        """The response to this request, with the tools that the sources have now. It is sent when it is entered."""
        driven, step = self._driven, self._driven.run.state.step
        driven.use(driven.hooks.config_for(command, step, await driven.code.listed(driven.step_tools)))
        driven.scope.begin_request(step, command.messages, driven.config)
        stream = driven.conversation.astream(list(command.messages), **_options(driven.config))
        return guarded_stream(stream, driven) or stream

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A response has ended: its end, or what ended the task, waits for the reader."""
        driven = self._driven
        if is_stopped(task) and driven.can_give_back:
            self._dispatcher.give_back()
        elif task.cancelled():  # by other code, if the run is not over
            self._dispatcher.report(partial(driven.run.cancel, "the task that read the answer was cancelled"))
        elif (error := task.exception()) is None:
            self._end(driven.run.ended)
        elif not isinstance(error, KeyboardInterrupt | SystemExit):  # which has ended the loop already
            self._end(partial(driven.request_failed, error))

    def _end(self, step: Callable[[], list[Command]]) -> None:
        """Report the end to the machine when the reader has read everything before it."""
        self._dispatcher.hold(partial(self._dispatcher.report, step))


def _options(config: AgentConfig) -> dict[str, Any]:
    """The options of a request with this configuration: see `StepHooks.config_for`."""
    return {
        "tools": list(config.tools.values()),
        "system_prompt": config.instructions,
        "output": config.output,
        "calls": config.calls,
        "rescue": config.rescue,
        "healing": config.healing,
        **config.options,
    }
