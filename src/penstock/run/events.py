"""The events of a run: steps, tools, approvals and the end. An agent yields them and its model's `StreamChunk`s."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from penstock.calls.sources import Source
from penstock.events import Event, FinishReason, StreamChunk, Usage
from penstock.jsontext.nearest import nearest_json
from penstock.jsontext.surrogates import join_all_surrogates
from penstock.messages import Message, ToolResult
from penstock.run.forked import Forked
from penstock.run.step_changes import UNCHANGED, Splice, StepChanges

EndReason = Literal["answered", "length", "refused", "cut", "error", "limit", "stopped", "cancelled", "paused"]
"""How a run ended; `stopped` by a hook, `paused` if it waits for an approval, a result or the client."""
ToolEnding = Literal["done", "failed", "declined", "cancelled", "discarded", "skipped"]
"""How a call ended.

`discarded` if its tool was started early, and then the call changed, was withdrawn, or turned out to come after a side
effect; `skipped` if it did not run because a call before it was not successful.
"""
CallVerdict = Literal["go", "ask", "refuse", "answer", "failed"]
"""What the hooks decided about a call: it runs, a person is asked, or it does not run; `failed` if a hook failed."""
CallOrdering = Literal["read", "effect", "alone", "free"]
"""How a call is ordered among the calls of its response: see `ToolStart.order`."""
RequestKind = Literal["approval", "deferred", "input"]
"""What a call waits for: a decision, its result from elsewhere, or the answer to a question of its tool."""


class StepStart(Event, frozen=True, tag="step_start"):
    """The next request to the model, which is sent when this event has been read; `step` counts from 1.

    `changes` are what `before_step` has changed for it: a request that is sent again uses the same.
    """

    step: int
    changes: StepChanges = UNCHANGED
    type: ClassVar[Literal["step_start"]] = "step_start"


class StepEnd(Event, frozen=True, tag="step_end"):
    """The response of the model has ended, or the run was stopped before; tools may still be running."""

    step: int
    finish_reason: FinishReason
    usage: Usage | None = None
    type: ClassVar[Literal["step_end"]] = "step_end"


class ToolPrepare(Event, frozen=True, tag="tool_prepare"):
    """The `prepare` function of a tool starts for a call, which may not be confirmed yet. It has no side effects.

    `ToolStart` follows if the call runs. A call that changes or is held by another one may prepare again.
    """

    key: str
    call_id: str
    name: str
    type: ClassVar[Literal["tool_prepare"]] = "tool_prepare"


class ToolStart(Event, frozen=True, tag="tool_start"):
    """A tool starts; `is_early` if the model is still streaming. One with side effects begins when this has been read.

    `fault` is empty, unless the call was damaged and runs with repaired arguments (`Agent(run_repaired=…)`). `order`
    says which calls of the response it waits for: a `read` for the effects before it, an `effect` for the reads. A tool
    with `parallel=False` runs `alone`; one with `parallel=True` is `free`, and waits for none.
    """

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    is_early: bool = False
    fault: str = ""
    order: CallOrdering = "effect"
    type: ClassVar[Literal["tool_start"]] = "tool_start"


class ToolProgress(Event, frozen=True, tag="tool_progress"):
    """A tool reports its progress.

    A tool waits for a slow reader (back-pressure). Where it cannot wait, on the event loop of the run (see `Context`),
    its newest report replaces the last unread one.
    """

    key: str
    call_id: str
    name: str
    data: Any
    type: ClassVar[Literal["tool_progress"]] = "tool_progress"


class ToolEnd(Event, frozen=True, tag="tool_end"):
    """A call has ended, with the result that the model reads; a `discarded` one is not in the history.

    There is one for every `ToolStart`, and one for every call that has a result in the history, also if it never ran;
    after `run.cancel()` only for tools that had started.

    `started` is when the function began, in seconds since 1970, and `seconds` how long it ran: until it returned, its
    timeout expired or it was cancelled. The event itself may come later, when the call is confirmed. Both are None if
    the function did not run here, or ran in a process that ended. A result `is_withheld` if `after_call` failed: the
    tool ran.
    """

    key: str
    result: ToolResult
    ending: ToolEnding = "done"
    data: Any = None
    started: float | None = None
    seconds: float | None = None
    is_withheld: bool = False
    type: ClassVar[Literal["tool_end"]] = "tool_end"

    @property
    def call_id(self) -> str:
        return self.result.call_id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.result.name


class CallReviewed(Event, frozen=True, tag="call_reviewed"):
    """In a log: what `before_call` and the approval predicate decided about a call. A run that continues uses it again.

    `arguments` replace those of the model; None leaves them. `why` is the reason of a hook that asks a person. `result`
    is that of a call which does not run: a hook refused or answered it, or failed. `sources` are those of the arguments
    of a call that a person is asked about.
    """

    key: str
    call_id: str
    name: str
    verdict: CallVerdict
    arguments: dict[str, Any] | None = None
    why: str = ""
    result: ToolResult | None = None
    sources: dict[str, tuple[Source, ...]] = msgspec.field(default_factory=dict)
    type: ClassVar[Literal["call_reviewed"]] = "call_reviewed"


class ToolReturned(Event, frozen=True, tag="tool_returned"):
    """In a log: a tool returned, and `after_call` is about to see its result. The tool does not run again after this.

    `tool_end` has the result that the model reads. `started` and `seconds` are those of `tool_end`.
    """

    key: str
    result: ToolResult
    data: Any = None
    started: float | None = None
    seconds: float | None = None
    type: ClassVar[Literal["tool_returned"]] = "tool_returned"

    @property
    def call_id(self) -> str:
        return self.result.call_id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.result.name


class ToolResults(Event, frozen=True, tag="tool_results"):
    """All calls of a response have ended: the one message with their results, as it is in the history.

    It comes before the next `StepStart` or `Done`, but not after `run.cancel()`.
    """

    message: Message
    type: ClassVar[Literal["tool_results"]] = "tool_results"


class ApprovalRequest(Event, frozen=True, tag="approval_request"):
    """A call waits for a decision, for its result from elsewhere, or for the answer to a question of its tool.

    `kind` says for which: `approval` (see `run.decide`), `deferred` or, while the tool runs, `input` (see
    `run.provide`). Of a question, `arguments` is the question itself: for an MCP server its `message` and the `schema`
    of the answer. A decision or a result may take `expires` seconds. `safety_checks` are what the provider wants the
    person to confirm: whoever approves the call acknowledges them. `note` says why a hook asks, and that a hook changed
    the arguments, which are those that will run. `preview` is what the `prepare` function of the tool shows: the
    difference that an edit makes, for example. `sources` are the messages that contain an argument value, by the path
    of the value.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    kind: RequestKind = "approval"
    expires: float | None = None
    safety_checks: tuple[dict[str, Any], ...] = ()
    note: str = ""
    preview: str = ""
    sources: dict[str, tuple[Source, ...]] = msgspec.field(default_factory=dict)
    type: ClassVar[Literal["approval_request"]] = "approval_request"

    @property
    def shown(self) -> dict[str, Any]:
        """What a person must see to decide: the arguments, and safety checks, note and preview if there are some."""
        shown = self.arguments | ({"safety_checks": [*self.safety_checks]} if self.safety_checks else {})
        for name, text in (("note", self.note), ("preview", self.preview)):
            while text and name in shown:  # an argument has that name
                name += "_"
            shown |= {name: text} if text else {}
        return shown


class Decision(Event, frozen=True, tag="decision"):
    """A person approved or declined a call (`run.decide`); `arguments` replace those of the model."""

    call_id: str
    approved: bool
    arguments: dict[str, Any] | None = None
    reason: str = ""
    type: ClassVar[Literal["decision"]] = "decision"


class Said(Event, frozen=True, tag="said"):
    """A message was added to the run (`run.say`); the model gets it with the next step."""

    message: Message
    type: ClassVar[Literal["said"]] = "said"


class HistoryReplaced(Event, frozen=True, tag="history_replaced"):
    """`before_step` has replaced the history of the run for good (`step.replace_history`): a summary, for example.

    `splices` are the differences: which messages were replaced, and by which.
    """

    splices: tuple[Splice, ...]
    type: ClassVar[Literal["history_replaced"]] = "history_replaced"


class OutputInvalid(Event, frozen=True, tag="output_invalid"):
    """The answer is not valid structured output: `message` goes back to the model, with what is wrong with it."""

    problem: str
    message: Message
    type: ClassVar[Literal["output_invalid"]] = "output_invalid"


class Done(Event, frozen=True, tag="done"):
    """The run is over: the last event, once. `output` is the final text, `why` the reason in a sentence.

    Of an agent with structured output, `output` is its JSON text.

    In `messages` every call has a result, whatever the reason, so that another run can continue from them. After
    `paused` the results of the calls that wait only say so: to continue with them, store the run (`run.dump()`) and
    resume it (`Agent.resume`).
    """

    reason: EndReason
    output: str
    messages: tuple[Message, ...]
    usage: Usage
    why: str = ""
    type: ClassVar[Literal["done"]] = "done"


class RunStart(Event, frozen=True, tag="run_start"):
    """The first event of a log: the messages with which the run starts, and the name of its agent.

    `meta` is JSON of the program that started the run, such as the id of a user.
    """

    messages: tuple[Message, ...]
    agent: str = ""
    meta: Any = None
    type: ClassVar[Literal["run_start"]] = "run_start"


class Taken(Event, frozen=True, tag="taken"):
    """In a log: a worker has taken the run over; `epoch` counts the workers from 1, `owner` names this one.

    `is_lost` if the last worker has not given the run back: it died, or lost its connection to the store.
    """

    epoch: int
    owner: str = ""
    is_lost: bool = False
    type: ClassVar[Literal["taken"]] = "taken"


class Waiting(Event, frozen=True, tag="waiting"):
    """In a log: the run waits for approvals or for results from elsewhere, and no worker is needed until they come.

    One is needed after `seconds`, when the first of these calls expires. With `why`, the run is parked, for this
    reason: it may have ended its workers, or nobody knows its model. It waits until somebody retries it.
    """

    seconds: float | None = None
    why: str = ""
    type: ClassVar[Literal["waiting"]] = "waiting"


OwnEvent = (
    StepStart | StepEnd | ToolPrepare | ToolStart | ToolProgress | ToolEnd | ToolResults | ApprovalRequest | Decision
    | Said | HistoryReplaced | OutputInvalid | Done
)  # fmt: skip
"""An event of a run itself, and not of an agent that runs inside of it."""

InnerEvent = StreamChunk | OwnEvent | RunStart | CallReviewed | ToolReturned


class Nested(Event, frozen=True, tag="nested"):
    """An event of an agent that runs as a tool (`Agent.as_tool`): of the run inside the call `path[-1]`.

    `path` has the ids of the calls from the outermost one. Blocks and execution keys count for each path; call ids are
    unique in the whole run. The first event of an inner run is its `RunStart`, the last one its `Done`, which has no
    messages here.
    """

    path: tuple[str, ...]
    event: InnerEvent
    type: ClassVar[Literal["nested"]] = "nested"


class Reset(Event, frozen=True, tag="reset"):
    """The log lost events that the reader has: forget all of them, those that it has follow. It is not in the log."""

    type: ClassVar[Literal["reset"]] = "reset"


RunEvent = OwnEvent | Nested | Reset
StreamEvent = StreamChunk | RunEvent
"""An event of an agent's run: a chunk of a response, or one of the run's own."""
LogEvent = StreamEvent | RunStart | Taken | Waiting | Forked | CallReviewed | ToolReturned
"""An event in the log of a run."""

_encoder = msgspec.json.Encoder(enc_hook=nearest_json)  # a tool may report any object
_decoder = msgspec.json.Decoder(StreamEvent)
_log_decoder = msgspec.json.Decoder(LogEvent)


def is_chunk(event: StreamEvent) -> bool:
    """Whether the event is a chunk of a response, and not one of the run's own."""
    return not isinstance(event, RunEvent)


def encode(event: LogEvent) -> bytes:
    """An event as one line of JSON.

    Data of a tool that JSON cannot hold is replaced by its closest equivalent, and a lone surrogate by U+FFFD.
    """
    try:
        return _encoder.encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError):
        fields = msgspec.to_builtins(_portable(event), enc_hook=nearest_json)
        return _encoder.encode(join_all_surrogates(fields))


def _portable(event: Any) -> Any:
    """The event, with the closest JSON equivalent of data and arguments."""
    if isinstance(event, Nested):
        return Nested(event.path, _portable(event.event))
    fields = {name: nearest_json(getattr(event, name)) for name in ("data", "arguments") if hasattr(event, name)}
    return msgspec.structs.replace(event, **fields)


def innermost(event: LogEvent) -> LogEvent:
    """The event itself, or that of an inner run."""
    return event.event if isinstance(event, Nested) else event


def is_for_readers(event: LogEvent) -> bool:
    """Whether readers get the event: not if only a log has it, as the result that `after_call` may still change."""
    kind = type(event.event) if isinstance(event, Nested) else type(event)
    return kind not in _ONLY_LOGGED


_ONLY_LOGGED = frozenset({CallReviewed, ToolReturned, Forked})


def decode(line: bytes | str) -> StreamEvent:
    """Read an event that `encode` wrote."""
    event: StreamEvent = _decoder.decode(line)
    return event


def decode_logged(line: bytes | str) -> LogEvent:
    """Read an event of a log that `encode` wrote."""
    event: LogEvent = _log_decoder.decode(line)
    return event
