"""The state of a run: a value that can be asked, and stored. `Run` (in `machine`) and its `Steps` change it.

It decides nothing, and knows nothing of inner runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

from msgspec import Struct

from penstock.errors import OutputError
from penstock.events import Error, Retry, StreamChunk, ToolCall, ToolCallInvalid
from penstock.messages import Message, Part, ToolResult, join_messages, result, tool_results
from penstock.output.find import find_output
from penstock.run.calls.execution import discarded_result
from penstock.run.calls.executions import Executions
from penstock.run.commands import AskModel, Output
from penstock.run.events import ApprovalRequest, EndReason, RequestKind
from penstock.run.limits import Tally
from penstock.run.numbering import RunNumbering
from penstock.run.record import Record
from penstock.run.rules import RunRules, Starts
from penstock.run.step_changes import UNCHANGED, Splice, StepChanges, spliced
from penstock.sentences import STILL_GROWING
from penstock.turn import Turn, TurnBuilder

Phase = Literal["new", "answer", "tools", "hook", "over"]


class PartialResponse:
    """The response under way: what was read of it (`builder`), and the chunks after that (`unfolded`)."""

    __slots__ = ("builder", "unfolded")

    def __init__(self) -> None:
        self.builder = TurnBuilder()
        self.unfolded: deque[StreamChunk] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it has come."""
        return not self.unfolded and self.builder.is_empty

    def fold(self, unread: int) -> None:
        """The reader has read all chunks but this many of the last ones: add them to what was read."""
        unfolded, add = self.unfolded, self.builder.add
        while len(unfolded) > unread:
            add(unfolded.popleft())

    def copy(self) -> PartialResponse:
        """An independent copy."""
        other = PartialResponse()
        other.builder, other.unfolded = deepcopy(self.builder), deque(self.unfolded)
        return other

    def cut(self, unread: int) -> None:
        """The reader will not read this many of the last chunks: they are not part of the response."""
        self.fold(unread)
        self.unfolded.clear()

    def build(self) -> Turn:
        """What was read of it."""
        return self.builder.build()


class ReadPart(Struct, frozen=True):
    """The response of a run that ended while its reader was behind, as far as it was read.

    `place` is that of its message in the history, `executions` are its calls.
    """

    response: PartialResponse
    place: int
    executions: Executions


class RunState:
    """Everything that is known of a run, except for its inner runs.

    - `messages`: the history without the step under way (see `history`).
    - `output`: the text of the last response; with structured output, its JSON.
    - `error`: the last error that the model or the driver reported.
    - `ending`: how and why the run ended.
    - `new_messages`: the messages that were added during the run (`say`), for the next step.
    - `is_logged`: the run has a log, which also keeps what its reader has not read.
    - `has_hooks`: hooks decide on each step; `changes` are what they changed for the one under way.
    - `has_answer`: the model has responded.
    - `seconds_left`: how long calls that waited already when the run was stored may still wait, by call id.
    - `record`: the events from which the run is rebuilt.
    - `price_of`: estimates the price of a request, if the cost of this run, or of one around it, is limited; `estimate`
      is that of the request under way, None if it is not known.
    - `read_part`: what was read of the last response, if the run ended while its reader was behind.
    """

    def __init__(self, messages: Iterable[Message], rules: RunRules) -> None:
        self.messages = list(messages)
        self.phase: Phase = "new"
        self.output = ""
        self.error: Error | None = None
        self.ending: tuple[EndReason, str] = ("answered", "")
        self.rules = rules
        self.tally = Tally()
        self.numbering = RunNumbering(self.messages)
        self.response = PartialResponse()
        self.starts = Starts()
        self.executions = self.new_executions()
        self.new_messages: list[Message] = []
        self.is_logged = False
        self.has_hooks = False
        self.has_answer = False
        self.changes = UNCHANGED
        self.seconds_left: Mapping[str, float] = {}
        self.record = Record(self.messages)
        self.price_of: Callable[[AskModel], float | None] | None = None
        self.estimate: float | None = 0.0
        self.read_part: ReadPart | None = None
        self._result: tuple[Any] | None = None  # the validated output

    # -- what can be asked -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.phase == "over"

    @property
    def is_preparing(self) -> bool:
        """Whether hooks decide on the next step."""
        return self.phase == "hook" or (self.phase == "new" and self.has_hooks)

    @property
    def step(self) -> int:
        """How many requests were sent to the model."""
        return self.tally.step

    @property
    def request(self) -> AskModel:
        """The request of the step under way."""
        return self.request_with(self.changes, self.tally.attempt)

    def request_with(self, changes: StepChanges, attempt: int) -> AskModel:
        """The request of a step with these changes."""
        messages = self.messages if changes.messages is None else spliced(self.messages, changes.messages)
        return AskModel(tuple(messages), changes, changes.model_for(attempt))

    @property
    def history(self) -> list[Message]:
        """The history as it would be if the run ended now; every provider accepts it. The run itself does not change.

        What was read of the response so far is in it as a response that was cut. A call without a result has one that
        says why: it is running, it waits for approval, it runs elsewhere.
        """
        if self.phase not in ("answer", "tools"):
            return list(self.messages)
        parts = self.response.build().parts if self.phase == "answer" else ()
        messages = [*self.messages, *([Message("assistant", parts)] if parts else [])]
        return messages + _results(messages, self.executions.results)

    @property
    def history_before(self) -> list[Message]:
        """The history before the response whose calls are open."""
        has_response = self.phase == "tools" and bool(self.messages) and self.messages[-1].role == "assistant"
        return self.messages[:-1] if has_response else self.messages

    @property
    def result(self) -> Any:
        """The output of a finished run: text, or a value of the output type; an `OutputError` if it is not valid."""
        return self.output if self.rules.output is None else self.read_output()

    @property
    def text(self) -> str:
        """The text of the response under way, as far as it was read, or else of the last one (see `output`)."""
        return self.response.build().text if self.phase == "answer" else self.output

    def read_output(self) -> Any:
        """Validate the last answer as the output, once; an `OutputError` if it is not valid."""
        if self._result is None:
            assert self.rules.output is not None
            self._result = (self.rules.output.read(self.output),)
        return self._result[0]

    def output_problem(self, turn: Turn) -> OutputError | None:
        """What is wrong with the output in a last response; a validator of the user may raise anything."""
        output = self.rules.output
        if output is None or turn.client_work or turn.finish_reason == "length":
            return None
        self.output = find_output(turn.parts, output)
        try:
            self.read_output()
        except OutputError as error:
            return error
        return None

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls of this run waiting for a decision, a result from elsewhere or the answer to a question."""
        return [execution.request for execution in list(self.executions.table.waiting.values())]

    def waits_for(self, call_id: str, kind: RequestKind) -> bool:
        """Whether this call waits for a request of this kind."""
        execution = self.executions.table.waiting.get(call_id)
        return execution is not None and execution.request_kind == kind

    # -- how it changes --------------------------------------------------------------------------------------------

    def new_executions(self, step: int | None = None) -> Executions:
        """An empty table of calls, for the step under way unless it is another one."""
        return Executions(self.tally.step if step is None else step, self.rules, self.tally, self.starts)

    def begin_step(self, changes: StepChanges) -> None:
        """The next request is sent to the model."""
        self.tally.begin_step(changes.usage)
        self.phase = "answer"
        self.changes = changes
        self.numbering.next_response()
        self.response = PartialResponse()
        if self.executions.calls.step != self.step:
            self.executions = self.new_executions()

    def withdraw(self, retry: Retry) -> list[Output]:
        """The response so far was withdrawn."""
        self.tally.withdrawn(retry)
        self.estimate = 0.0
        return self.executions.void_all("the answer was withdrawn")

    def take_turn(self, turn: Turn) -> Turn:
        """Add the response to the history."""
        self.record.add_response(self.response.builder)
        if turn.parts:
            self.messages.append(Message("assistant", turn.parts))
            self.has_answer = True
        self.tally.answered(self.executions.table.repeats)
        self.estimate = 0.0
        output = self.rules.output
        self.output = turn.text if output is None else find_output(turn.parts, output)
        return turn

    def abandon_calls(self, why: str, *, except_started: bool = False) -> list[Output]:
        """End the open calls of the last response: see `Executions.abandon`."""
        calls = _calls(self.messages)
        self.executions.calls.complete(calls)
        return self.executions.abandon(why, {call.block for call in calls}, except_started=except_started)

    def add_results(self) -> list[Message]:
        """Add the results of the last response's calls to the history; returns their message, if there are any."""
        results = _results(self.messages, self.executions.results)
        self.messages += results
        return results

    def close_step(self) -> None:
        """The results of a step are in the history, and what was said meanwhile follows them.

        What is said from here on, while hooks decide on the next step, is for the step after it.
        """
        self.add_said()
        self.phase = "hook"
        self.executions = self.new_executions(self.step + 1)

    def add_said(self) -> None:
        """Add the messages that were said during the run; user messages do not follow each other."""
        for message in self.new_messages:
            if self.messages and self.messages[-1].role == message.role:
                self.messages[-1] = join_messages(self.messages[-1], message)
            else:
                self.messages.append(message)
        self.new_messages.clear()

    def replace_history(self, splices: Sequence[Splice]) -> None:
        """Replace messages of the history."""
        self.messages[:] = spliced(self.messages, splices)

    def fail(self, error: Error) -> Error:
        """The run ends with this error, which belongs to its response; returns it."""
        self.error = error
        self.response.fold(0)
        self.response.builder.add(error)
        return error

    def finish(self, reason: EndReason, why: str) -> None:
        """The run is over."""
        self.add_said()
        self.phase, self.ending = "over", (reason, why)
        self.executions = self.new_executions()


def _calls(messages: list[Message]) -> list[ToolCall | ToolCallInvalid]:
    """The calls of the last message."""
    return calls_of(messages[-1].parts) if messages and messages[-1].role == "assistant" else []


def calls_of(parts: Iterable[Part]) -> list[ToolCall | ToolCallInvalid]:
    """The calls among the parts of a message or a turn."""
    return [part for part in parts if isinstance(part, ToolCall | ToolCallInvalid)]


def _results(messages: list[Message], known: Mapping[int, ToolResult]) -> list[Message]:
    """The results of the last response's calls in one message; an open call has one with the reason."""
    results = [_truthful(call, known.get(call.block)) for call in _calls(messages)]
    return [tool_results(*results)] if results else []


def _truthful(call: ToolCall | ToolCallInvalid, known: ToolResult | None) -> ToolResult:
    """The result of a call for the history: an open call, or one read only in part, did not succeed."""
    if known is None:
        return result(call, STILL_GROWING, is_error=True)
    if isinstance(call, ToolCallInvalid) and call.why == "cut" and not known.is_error:
        return discarded_result(known)
    return known
