"""What both dispatchers share. A dispatcher reports events to the machine of a run, and carries out its commands.

The machine decides, the dispatcher hands each command to the part that carries it out: events to the outbox, requests
to the response reader, tools to the tool runner. What the reader must have read before (the next request, the start of
a tool with side effects, the end of a response) waits in the outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from penstock.agent.driven_run import DrivenRun
from penstock.agent.expiries import Expiries
from penstock.agent.records import LOGGED
from penstock.agent.timers import Timers
from penstock.results import Outcome
from penstock.run.commands import CheckApproval, Command, Emit, ExpireLater
from penstock.run.events import Done
from penstock.run.machine import Run
from penstock.run.outbox import Gate

if TYPE_CHECKING:
    from penstock.agent.inner_agents import InnerAgents

PAUSE = 0.01
"""How many seconds a thread sleeps before it checks again whether the reader has caught up."""


class OuterCall(Struct, frozen=True):
    """The call around an inner run: the dispatcher of the run that made it, and the key of its execution."""

    dispatcher: Dispatcher
    key: str

    def emit(self, emit: Emit, *, is_over: bool) -> None:
        """Pass on what an inner run emitted, to the run around it; if it is over, forget it."""
        self.dispatcher.report(partial(self.dispatcher.run.inner_emitted, self.key, emit))
        if is_over:
            self.dispatcher.timers.cancel(self.key)
            self.dispatcher.inner.stop(self.key)


def pass_on(emit: Emit, driven: DrivenRun, outer: OuterCall | None) -> bool:
    """Log, trace and pass on events of a run; returns whether there is an item more for its own reader."""
    has_more = False
    is_notable = not LOGGED.isdisjoint(map(type, emit.events))
    if is_notable:
        driven.records.add(emit.events)
    if driven.scope.observer is not None:
        driven.scope.observer.add(emit.events)
    if outer is not None:
        outer.emit(emit, is_over=driven.run.state.is_over)
    else:
        has_more = driven.outbox.put(emit.events, emit.log)
    if is_notable and isinstance(last := emit.events[-1], Done):
        driven.remember(last)
    return has_more


class Dispatcher:
    """Carries out the commands of a run: `SyncDispatcher` for sync code, `AsyncDispatcher` for async code.

    `inner` are the agents that run as its tools. The dispatcher of such an agent has an `outer` call. `first` is how
    the run begins, once its tools are listed.
    """

    inner: InnerAgents[Any]

    def __init__(self, driven: DrivenRun, timers: Timers, outer: OuterCall | None = None) -> None:
        self.timers = timers
        self.expiries = Expiries(driven.run, timers)
        self.first: Callable[[], list[Command]] | None = None
        self._driven = driven
        self._outer = outer

    @property
    def run(self) -> Run:
        """The machine of the run."""
        return self._driven.run

    def report(self, step: Callable[[], list[Command]]) -> None:
        """Report to the machine what happened, and carry out its commands, in the thread or loop of the run."""
        raise NotImplementedError

    def carry_out(self, commands: list[Command]) -> None:
        """Carry out commands."""
        raise NotImplementedError

    def hold(self, gate: Gate) -> None:
        """Call this when the reader asks for the event after everything emitted so far."""
        raise NotImplementedError

    def call(self, callback: Callable[[], None]) -> None:
        """Call this from any thread: with the run's lock held, or on its loop."""
        raise NotImplementedError

    def wake(self) -> None:
        """Wake the reader."""
        raise NotImplementedError

    def on_committed(self) -> Callable[[int], None]:
        """What the thread of the flusher calls with the number of units that were committed."""
        raise NotImplementedError

    def can_go_on(self) -> bool:
        """Whether commands can still be carried out in this process."""
        return True

    def stop_all(self) -> None:
        """Break off the request to the model, and cancel the tools."""
        raise NotImplementedError

    # -- inner runs ------------------------------------------------------------------------------------------------

    def new_inner(self, driven: DrivenRun, key: str) -> Self:
        """A dispatcher for an agent that runs in this execution."""
        raise NotImplementedError

    @property
    def needs_listing(self) -> bool:
        """Whether tools must be listed before the run continues: its own, or those of an inner run."""
        driven = self._driven
        is_own = self.first is None and driven.needs_listing and not driven.step_tools.are_listed
        return is_own or any(inner.needs_listing for inner in self.inner.make_all())

    @property
    def seconds_left(self) -> dict[str, float]:
        """How many seconds each call that waits may still wait, also in inner runs."""
        left = self.expiries.seconds_left
        for inner in self.inner.all():
            left |= inner.seconds_left
        return left

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Stop everything: this process does not continue the run."""
        self._driven.is_cancelled = self._driven.ownership.is_left = True
        self.stop_all()

    def give_back(self) -> None:
        """Stop everything here, so that another worker can continue the run."""
        if self._outer is not None:
            self._outer.dispatcher.give_back()
            return
        self.leave()
        self._driven.outbox.drop()
        self._driven.logged_outbox.release()

    def lose(self, error: Exception) -> None:
        """Stop everything, because another worker has the run; the reader gets the error."""
        ownership, outbox = self._driven.ownership, self._driven.outbox
        ownership.lose(error)
        self.leave()
        outbox.drop()
        outbox.items.append(ownership.raise_lost)
        self.wake()

    def approval_checked(self, check: CheckApproval, answer: bool | Outcome | BaseException) -> None:
        """A predicate said whether a call needs approval, or something else ended it."""
        if isinstance(answer, BaseException):
            self.report(partial(self._driven.failed, answer))
        else:
            self.report(partial(self._driven.run.approval_checked, check.key, answer))

    def start_time_limit(self) -> None:
        """Start the timer for the time limit of the run, if it has one."""
        if (seconds := self._driven.seconds_left) is not None:
            self.timers.start("", seconds, partial(self.report, self._driven.expired))

    def _expire_later(self, command: ExpireLater) -> None:
        expired = partial(self._driven.run.call_expired, command.call_id)
        self.expiries.start(command, partial(self.report, expired))
