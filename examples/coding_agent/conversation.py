"""A conversation about a folder: a sequence of runs in a log, which survives the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import penstock
from penstock.log import Store

from .screen import Screen

NOBODY = "nobody is there to approve it"


class Conversation:
    """The runs of one thread. Each begins with the messages of the one before it."""

    def __init__(self, agent: penstock.Agent[None, str], store: Store, thread: str, screen: Screen) -> None:
        self._agent = agent
        self._store = store
        self._thread = thread
        self._screen = screen
        self._runs = penstock.Runs(store, {"coder": agent})
        self._messages: penstock.History = []
        self.run: penstock.AsyncAgentRun[str] | None = None  # the last one
        self._turn: Turn | None = None  # the one that is under way

    async def restore(self, lines: AsyncIterator[str]) -> bool:
        """Read the last run of the thread again; it continues if it has not ended. Returns whether there is one."""
        rows = self._runs.list(thread=self._thread, limit=1)
        if not rows:
            return False
        _, start = next(iter(self._runs.follow(rows[0].id)))
        assert start.type == "run_start"
        self._messages = list(start.messages)
        self._screen.line(f"› {start.messages[-1].text}", "bold")
        await self._finish(await self._read(None, lines, rows[0].id), lines)
        return True

    async def say(self, prompt: str, lines: AsyncIterator[str]) -> None:
        """Answer a prompt. Lines that come in the meantime answer questions, or steer the run."""
        await self._finish(await self._read(prompt, lines), lines)

    async def _finish(self, unread: list[str], lines: AsyncIterator[str]) -> None:
        """Answer what the person said when the run had just ended."""
        if unread:
            await self.say("\n".join(unread), lines)

    def cancel(self) -> bool:
        """Cancel what is under way; returns whether there was anything."""
        if self._turn is not None:
            self._turn.cancel()
        return self._turn is not None

    async def _read(self, prompt: str | None, lines: AsyncIterator[str], run_id: str | None = None) -> list[str]:
        """Read a run that begins with the messages so far, or the one with an id; returns lines that came too late."""
        run = self._agent.astream(prompt, self._messages, log=self._store, run_id=run_id, thread=self._thread)
        self.run, self._turn = run, (turn := Turn(run, self._screen))
        try:
            await turn.read(lines)
        finally:
            self._turn, self._messages = None, run.messages
        return turn.unread


class Turn:
    """A run, and the questions about its calls; one is shown at a time."""

    def __init__(self, run: penstock.AsyncAgentRun[str], screen: Screen) -> None:
        self._run = run
        self._screen = screen
        self._calls: list[str] = []  # the ids of the calls of this response that have not ended, in order
        self._requests: dict[str, penstock.ApprovalRequest] = {}
        self._shown = ""  # the id of the call that the person is asked about
        self._is_alone = False
        self.unread: list[str] = []  # lines that came too late for the run

    async def read(self, lines: AsyncIterator[str]) -> None:
        """Show the run until it ends, and pass on what the person says."""
        async with self._run as run:
            steering = asyncio.create_task(self._steer(lines))
            try:
                async for event in run:
                    self._screen.show(event)
                    self._track(event)
            finally:
                steering.cancel()

    def cancel(self) -> None:
        """End the run: no tool and no request starts any more."""
        self._screen.line("")  # after the ^C of the terminal
        self._run.cancel("the user cancelled")

    async def _steer(self, lines: AsyncIterator[str]) -> None:
        async for line in lines:
            self._answer(line)
        self._is_alone = True
        if self._shown:
            self._screen.line("no")
            self._decide(approved=False, reason=NOBODY)

    def _answer(self, line: str) -> None:
        """Decide on the call that is shown, or else tell the model."""
        if self._shown:
            word = line.lower()
            self._decide(approved=word in ("y", "yes"), reason="" if word in ("n", "no") else line)
            return
        try:
            self._run.say(line)
        except penstock.UsageError:  # it has just ended
            self.unread.append(line)

    def _decide(self, *, approved: bool, reason: str) -> None:
        request, self._shown = self._requests.pop(self._shown), ""
        self._run.decide(request.call_id, approved, reason="" if approved else reason)

    def _track(self, event: penstock.StreamEvent) -> None:
        """Follow the calls, and ask about the next one."""
        match event:
            case penstock.StepStart() | penstock.Retry():
                self._calls.clear()
            case penstock.ToolCallStart() | penstock.ToolCall() if event.id not in self._calls:
                self._calls.append(event.id)
            case penstock.ApprovalRequest():
                self._requests[event.call_id] = event
            case penstock.ToolEnd():
                self._calls = [call_id for call_id in self._calls if call_id != event.call_id]
                self._shown = "" if event.call_id == self._shown else self._shown
            case _:
                pass
        self._ask()

    def _ask(self) -> None:
        """Ask about the first call that has not ended: what it would change depends on the calls before it.

        A run that is read again repeats its questions; those that were answered do not wait any more.
        """
        request = self._requests.get(self._calls[0]) if self._calls else None
        is_waiting = request is not None and request.call_id in {each.call_id for each in self._run.waiting}
        if request is not None and is_waiting and not self._shown:
            self._shown = request.call_id
            self._screen.ask(request)
            if self._is_alone:
                self._screen.line("no")
                self._decide(approved=False, reason=NOBODY)
