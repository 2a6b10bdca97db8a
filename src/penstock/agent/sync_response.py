"""Responses of the model in sync code: each is read in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from penstock.agent.dispatcher import PAUSE, Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.guard_calls import guard_calls
from penstock.agent.guarded_stream import GuardedStream
from penstock.agent.step_request import step_options
from penstock.agent.tool_execution import in_thread
from penstock.model.stream import Stream
from penstock.model.streamed_response import FOLD_SIZE
from penstock.run.commands import AskModel, Command
from penstock.transport.loop_thread import RunLoop
from penstock.transport.worker_threads import Work


class SyncResponseReader:
    """Sends the requests of a run, and passes the chunks of each response to its machine. The lock is the run's."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher, lock: threading.RLock, loop: RunLoop) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._lock = lock
        self._loop = loop  # on which an async guard is awaited
        self._stream: Stream | GuardedStream | None = None
        self._thread: Work | None = None

    def start(self, command: AskModel) -> list[Command]:
        """Send the request in a thread; returns the commands that follow if no thread can be started."""
        try:
            self._thread = in_thread(partial(self._run, command), "model", self._driven.scope.variables)
        except RuntimeError as error:
            return self._driven.failed(error)
        return []

    def stop(self) -> None:
        """Break off the request."""
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> list[Work]:
        """Forget the thread; returns it, to be joined."""
        threads = [] if self._thread is None else [self._thread]
        self._thread = None
        return threads

    def first_step(self) -> Callable[[], list[Command]]:
        """How the run begins: it lists the tools of one that continues, which may block or fail."""
        if self._driven.needs_listing:
            try:
                self._driven.use(self._driven.step_tools.listed())
            except Exception as error:  # noqa: BLE001  # a source of tools may fail in any way
                return partial(self._driven.failed, error)
        return self._driven.run.begin

    def _run(self, command: AskModel) -> None:
        """Read a response; its end, or what ended this thread, waits for the reader."""
        try:
            self._read(command)
            end = self._driven.run.ended
        except BaseException as error:  # noqa: BLE001  # the reader gets it
            end = partial(self._driven.request_failed, error)
        self._dispatcher.hold(partial(self._dispatcher.report, end))

    def _read(self, command: AskModel) -> None:
        driven, run, outbox = self._driven, self._driven.run, self._driven.outbox
        response = self._request(command)
        with self._lock:
            if run.state.is_over or driven.ownership.is_left:
                return
            self._stream = response
        with response as stream:
            for chunks in stream.batches():
                with self._lock:
                    self._dispatcher.carry_out(run.chunks(chunks))
                    if len(run.state.response.unfolded) > FOLD_SIZE:
                        run.state.response.fold(outbox.most_unread)
                while outbox.is_full and run.state.phase != "over" and not driven.ownership.is_left:
                    time.sleep(PAUSE)
                if run.state.phase == "over" or driven.ownership.is_left:
                    return

    def _request(self, command: AskModel) -> Stream | GuardedStream:
        """The response to this request, with the tools that the sources have now. It is sent when it is entered."""
        driven, step = self._driven, self._driven.run.state.step
        config = driven.hooks.config_for(command, step, driven.step_tools.listed())
        with self._lock:
            driven.use(config)
        driven.scope.begin_request(step, command.messages, config)
        stream = driven.conversation.stream(list(command.messages), **step_options(config))
        calls = guard_calls(driven)
        return stream if calls is None else GuardedStream(stream, calls, self._loop.begin)
