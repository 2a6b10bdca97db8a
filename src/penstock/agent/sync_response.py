"""Responses of the model in plain code: each is read in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from penstock.agent.dispatcher import PAUSE, Dispatcher
from penstock.agent.driven_run import FOLD_SIZE, DrivenRun
from penstock.agent.step_request import step_request
from penstock.agent.tool_execution import in_thread
from penstock.messages import Message
from penstock.model.stream import Stream
from penstock.run.commands import AskModel, Command


class SyncResponseReader:
    """Sends the requests of a run, and passes the chunks of each response to its machine. The lock is the run's."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher, lock: threading.RLock) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._lock = lock
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    def start(self, command: AskModel) -> list[Command]:
        """Ask the model in a thread; returns what is to be done if there is no thread for it."""
        try:
            self._thread = in_thread(partial(self._run, command.messages), "model", self._driven.scope.variables)
        except RuntimeError as error:
            return self._driven.failed(error)
        return []

    def stop(self) -> None:
        """Break off the request."""
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> list[threading.Thread]:
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

    def _run(self, messages: tuple[Message, ...]) -> None:
        """Read a response; its end, or what ended this thread, waits for the reader."""
        try:
            self._read(messages)
            end = self._driven.run.ended
        except BaseException as error:  # noqa: BLE001  # the reader gets it
            end = partial(self._driven.failed, error)
        self._dispatcher.hold(partial(self._dispatcher.happened, end))

    def _read(self, messages: tuple[Message, ...]) -> None:
        driven, run, outbox = self._driven, self._driven.run, self._driven.outbox
        response = self._request(messages)
        with self._lock:
            if run.is_over or driven.ownership.is_left:
                return
            self._stream = response
        with response as stream:
            for chunks in stream.batches():
                with self._lock:
                    self._dispatcher.carry_out(run.chunks(chunks))
                    if len(run.unfolded) > FOLD_SIZE:
                        run.fold(outbox.most_unread)
                while outbox.is_full and run.phase != "over" and not driven.ownership.is_left:
                    time.sleep(PAUSE)
                if run.phase == "over" or driven.ownership.is_left:
                    return

    def _request(self, messages: tuple[Message, ...]) -> Stream:
        """The response to these messages, with the tools that the sources have now. It is sent when it is entered."""
        driven = self._driven
        if driven.config.sources:
            config = driven.step_tools.listed()
            with self._lock:
                driven.use(config)
        driven.scope.begin_request(driven.run.step, messages)
        request = step_request(driven.config, driven.run.step, messages)
        return request.model.stream(request.messages, **request.options)
