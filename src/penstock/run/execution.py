"""One call on its way to a result, and what the machine knows of its tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

from msgspec import Struct

from penstock.events import Text
from penstock.jsontext.values import deep_copy
from penstock.messages import ToolResult
from penstock.run.events import ApprovalRequest, RequestKind, ToolEnd, ToolEnding
from penstock.tools.outcome import Outcome
from penstock.tools.policy import ToolPolicy

State = Literal["held", "approval", "ready", "deferred", "running", "finished"]

STATES: tuple[State, ...] = get_args(State)


class Execution(Struct):
    """A call on its way. `key` is its name in the run; a call that runs again has another.

    `fingerprint` is the same for calls that say the same; empty, if it cannot be run. `asks` is whether a
    person is to be asked, None as long as that is not known. `note` tells the model, before the result, what was not
    run as it had said it; `fault` is that of a damaged call that runs with repaired arguments.
    """

    key: str
    block: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    fingerprint: str = ""
    state: State = "held"
    is_confirmed: bool = False
    asks: bool | None = None
    note: str = ""
    fault: str = ""
    result: ToolResult | None = None
    ending: ToolEnding = "done"
    data: Any = None  # what the program keeps; not stored

    @property
    def request(self) -> ApprovalRequest:
        """The event that says what it waits for."""
        kind: RequestKind = "deferred" if self.state == "deferred" else "approval"
        return ApprovalRequest(self.call_id, self.name, deep_copy(self.arguments), kind)

    @property
    def end(self) -> ToolEnd:
        """The event that says how it ended."""
        assert self.result is not None
        return ToolEnd(self.key, self.result, self.ending, self.data)

    def finish(self, outcome: Outcome, ending: ToolEnding | None) -> None:
        """It ended; in which way, the outcome says, unless it is given."""
        self.data = outcome.data
        self.ending = ending or ("failed" if outcome.is_error else "done")
        note = (Text(0, f"{self.note}\n"),) if self.note else ()
        self.result = ToolResult(self.call_id, self.name, (*note, *outcome.content), outcome.is_error)

    def identify(self, call_id: str) -> None:
        """Its call is confirmed, under this id."""
        self.is_confirmed, self.call_id = True, call_id
        if self.result is not None:
            self.result = ToolResult(call_id, self.name, self.result.content, self.result.is_error)


def words(text: str) -> Outcome:
    """An outcome that is a sentence to the model about what went wrong."""
    return Outcome((Text(0, text),), is_error=True)


def no_such_tool(name: str, known: Iterable[str]) -> Outcome:
    """What comes of a call of a tool that there is not."""
    return words(f"There is no tool called {name!r}. There are: {', '.join(known) or 'none'}.")


def effect(policy: ToolPolicy | None) -> str:
    """The end of a sentence about a tool that was started."""
    return ", so it may have had an effect" if policy is None or policy.may_have_effect else ""


def last_words(execution: Execution, policy: ToolPolicy | None, why: str) -> tuple[Outcome, ToolEnding]:
    """What is said of a call that comes to no end of its own any more."""
    match execution.state:
        case "finished":
            told = f"It ran, but the call was never confirmed, so its result was discarded: {why}."
            return words(told), "discarded"
        case "running":
            told = f"Cancelled after it had been started{effect(policy)}: {why}."
            return words(told), "cancelled" if execution.is_confirmed else "discarded"
        case "deferred":
            told = "It was handed on to run elsewhere, so it may have an effect; nobody waits for it"
            return words(f"{told}: {why}."), "cancelled"
        case "held" | "approval" | "ready":
            return words(f"Not run: {why}."), "cancelled"


def result_so_far(execution: Execution, policy: ToolPolicy | None) -> ToolResult:
    """The result of a call, or one that says why it has none yet."""
    match execution.state:
        case "finished" if execution.is_confirmed and execution.result is not None:
            return execution.result
        case "finished":
            told = "It ran, but its call was not confirmed yet when this was written."
        case "running":
            told = f"It was still running when this was written{effect(policy)}."
        case "deferred":
            told = "It was handed on to run elsewhere, so it may have an effect; its result has not come yet."
        case "approval":
            told = "Not run yet: it waits for approval."
        case _:
            told = "Not run yet."
    return ToolResult(execution.call_id, execution.name, (Text(0, told),), is_error=True)
