"""The trace of one run: a span for the run, and in it one for each step and each tool.

The driver of the run calls these methods as things happen, not when the reader gets the events. `begin`,
`begin_request` and `begin_tool` make their span current in the caller's context, so that spans of the run, the request
or the tool become its children.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry.context import Context, attach
from opentelemetry.trace import Link, Span, SpanKind, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.errors import UsageError
from penstock.events import Error, Finish, Retry, Usage
from penstock.messages import Message
from penstock.run.commands import StartTool
from penstock.run.early_starts import ToolRun, saved_by_early_starts
from penstock.run.events import ApprovalRequest, Done, StepEnd, StreamEvent, ToolEnd, ToolStart, is_chunk
from penstock.tracing import content
from penstock.tracing import conventions as names
from penstock.tracing.instruments import Attributes
from penstock.tracing.spans import StepSpan, ToolSpan, fail, set_all, usage_attributes
from penstock.tracing.spending import Spending

if TYPE_CHECKING:
    from penstock.agent.config import AgentConfig
    from penstock.tracing.tracing import Tracing

_FAILED = ("error", "cut")
_current: ContextVar[RunTrace | None] = ContextVar("penstock_run_trace", default=None)


class RunTrace:
    """Creates the spans and metrics of a run."""

    def __init__(self, tracing: Tracing, config: AgentConfig, run_id: str, meta: Any) -> None:
        self._tracing = tracing
        self._config = config
        self._common = _common(config)
        self._chat = self._metric("chat")
        self._run_id = run_id
        self._meta = meta
        self._span: Span
        self._context: Context
        self._begin = time.monotonic()
        self._step: StepSpan | None = None
        self._tools: dict[str, ToolSpan] = {}
        self._done: list[ToolRun] = []  # tools of this step that have ended
        self._starts: dict[str, ToolStart] = {}
        self._epoch = time.time() - self._begin
        self._response_end = 0.0
        self._spending = Spending(tracing)
        self._gain = 0.0
        self._error = ""
        self._is_over = False

    # -- what happens --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The run begins, or continues in this process."""
        name, caller = self._config.name, get_current_span().get_span_context()
        parent = _parent(self._meta)
        links = [Link(caller)] if parent is not None and caller.is_valid else None
        attributes: Attributes = {
            **self._common, names.GEN_AI_OPERATION_NAME: "invoke_agent", names.PENSTOCK_RUN_ID: self._run_id,
        }  # fmt: skip
        self._span = self._tracing.instruments.tracer.start_span(
            f"invoke_agent {name}".rstrip(), parent, SpanKind.INTERNAL, attributes, links
        )
        self._context = set_span_in_context(self._span, parent)
        attach(self._context)
        outer = _current.get()
        if outer is not None and outer._run_id == self._run_id:
            self._spending.outer = outer._spending  # the usage of a run in a call counts there, too
        _current.set(self)

    def begin_request(self, step: int, messages: Sequence[Message], config: AgentConfig) -> None:
        """The request of a step is sent to the model."""
        self._close_tools_of_step()
        if self._step is not None:  # another model was asked before, and failed
            self._close_step(self._step, self._step.error or "cut", time.monotonic())
        if config is not self._config:
            self._config, self._common = config, _common(config)
            self._chat = self._metric("chat")
        options = self._config.options
        attributes: Attributes = {
            **self._common, names.GEN_AI_OPERATION_NAME: "chat", names.PENSTOCK_STEP: step,
            names.GEN_AI_REQUEST_STREAM: options.get("streaming", True), **_options(options),
        }  # fmt: skip
        if self._tracing.content:
            attributes[names.GEN_AI_INPUT_MESSAGES] = content.input_messages(messages)
            if config.instructions:
                attributes[names.GEN_AI_SYSTEM_INSTRUCTIONS] = content.instructions(str(config.instructions))
        span = self._start(f"chat {self._config.model.model}", SpanKind.CLIENT, attributes)
        self._step = StepSpan(span, time.monotonic(), self._tracing.content)

    def request_failed(self, kind: str) -> None:
        """The current request failed; a fallback model may follow."""
        if self._step is not None:
            self._step.error = kind

    def spent(self, model: str, usage: Usage) -> None:
        """A hook called a model itself, for example for a summary."""
        provider, colon, name = model.partition(":")
        attributes = {**self._metric("chat"), **_model_attributes(provider if colon else "", name or provider)}
        cost = self._spending.attributes(self._spending.pay(model, usage, attributes))
        self._span.add_event("penstock.hook_usage", {**attributes, **cost, **usage_attributes(usage)})

    def begin_tool(self, start: StartTool) -> None:
        """A tool starts to run."""
        tool, event = self._config.tools.get(start.name), self._starts.pop(start.key, None)
        attributes: Attributes = {
            names.GEN_AI_OPERATION_NAME: "execute_tool", names.GEN_AI_TOOL_NAME: start.name,
            names.GEN_AI_TOOL_CALL_ID: start.call_id, names.GEN_AI_TOOL_TYPE: "function",
            names.PENSTOCK_TOOL_EARLY: event is not None and event.is_early,
        }  # fmt: skip
        if tool is not None and tool.description:
            attributes[names.GEN_AI_TOOL_DESCRIPTION] = tool.description[:1000]
        if self._tracing.content:
            attributes[names.GEN_AI_TOOL_CALL_ARGUMENTS] = content.as_json(start.arguments)
        span = self._start(f"execute_tool {start.name}", SpanKind.INTERNAL, attributes)
        self._tools[start.key] = ToolSpan(span, time.monotonic(), event)

    def add(self, events: Sequence[StreamEvent]) -> None:
        """Add the events that one input to the run emitted."""
        now = time.monotonic()
        if (step := self._step) is not None and events and is_chunk(events[0]):
            self._add_chunks(step, events, None if isinstance(events[0], Retry | Error) else now)
        for event in events:
            match event:
                case Usage() if step is not None:
                    step.so_far = event
                case Retry() if step is not None:
                    step.span.add_event("penstock.retry")
                    self._spending.end_attempt(step, *self._priced(step))
                case ToolStart():
                    self._starts[event.key] = event
                case ToolEnd():
                    self._end_tool(event, now)
                case StepEnd():
                    self._end_step(event, now)
                case ApprovalRequest():
                    attributes = {"gen_ai.tool.name": event.name, "penstock.request.kind": event.kind}
                    self._span.add_event("penstock.approval_request", attributes)
                case Error():
                    self._error = event.code or "error"
                case Done():
                    self._end_run(event, now)
                case _:
                    pass

    def close(self) -> None:
        """End all open spans: this process no longer drives the run."""
        for tool in self._tools.values():
            tool.span.end()
        self._tools.clear()
        if self._step is not None:
            self._spending.close_step(self._step, *self._priced(self._step))
            self._step = None
        if not self._is_over:
            self._is_over = True
            set_all(self._span, self._spending.attributes(self._spending.total))
            self._span.end()

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _start(self, name: str, kind: SpanKind, attributes: Attributes) -> Span:
        """Start a child span of the run's span, and make it current."""
        span = self._tracing.instruments.tracer.start_span(name, self._context, kind, attributes)
        attach(set_span_in_context(span, self._context))
        return span

    def _add_chunks(self, step: StepSpan, events: Sequence[StreamEvent], now: float | None) -> None:
        """Add chunks that arrived at this time; without a time, chunks that report a missing response."""
        if now is not None and (gap := step.add_chunk(now)) is not None:
            self._tracing.instruments.record(names.CHUNK_TIME, gap, self._chat)
        elif now is not None:
            self._tracing.instruments.record(names.FIRST_CHUNK, now - step.begin, self._chat)
        for event in events:
            if isinstance(event, Finish) and event.model:
                step.model = event.model
            elif isinstance(event, Error):
                step.error = event.code or "error"
            if step.builder is not None and is_chunk(event):
                chunk: Any = event
                step.builder.add(chunk)

    def _end_step(self, end: StepEnd, now: float) -> None:
        self._response_end = now
        step, self._step = self._step, None
        if step is None:
            return
        set_all(step.span, {names.GEN_AI_RESPONSE_FINISH_REASONS: [end.finish_reason]})
        if step.builder is not None:
            output = content.output_messages(step.builder.build().parts, end.finish_reason)
            step.span.set_attribute(names.GEN_AI_OUTPUT_MESSAGES, output)
        step.so_far = end.usage or step.so_far  # a reader that left may not have read of it
        self._close_step(step, step.error or (self._error if end.finish_reason == "error" else ""), now)

    def _close_step(self, step: StepSpan, error: str, now: float) -> None:
        """Close the span of a step, after its response ended or failed over to another model."""
        set_all(step.span, {names.GEN_AI_RESPONSE_MODEL: step.model or None, **step.timing})
        if error:
            fail(step.span, error)
            step.error = error
        self._spending.close_step(step, *self._priced(step))
        self._tracing.instruments.record(names.DURATION, now - step.begin, self._priced(step)[1])

    def _end_tool(self, end: ToolEnd, now: float) -> None:
        tool = self._tools.pop(end.key, None)
        if tool is None:  # a call that did not run, or whose span has ended
            return
        ran = tool.ran(end, self._epoch, now)
        response_end = ran.end if self._step is not None else self._response_end
        overlap = max(0.0, min(ran.end, response_end) - ran.begin) if tool.is_early else None
        set_all(tool.span, {
            names.PENSTOCK_TOOL_ENDING: end.ending, names.PENSTOCK_TOOL_OVERLAP: overlap,
            names.GEN_AI_TOOL_CALL_RESULT: content.as_json(end.result.text) if self._tracing.content else None,
        })  # fmt: skip
        error = "" if end.ending == "done" else end.ending
        if error:
            fail(tool.span, error)
        tool.span.end(time.time_ns() - int((now - ran.end) * 1e9))
        if end.ending != "discarded":
            self._done.append(ran)
        attributes = {**self._metric("execute_tool", error), names.GEN_AI_TOOL_NAME: end.name}
        self._tracing.instruments.record(names.DURATION, ran.seconds, attributes)

    def _close_tools_of_step(self) -> None:
        """Record how much time early starts gained, after all tools of a step have ended."""
        if (gain := saved_by_early_starts(self._done, self._response_end)) > 0:
            self._gain += gain
            self._tracing.instruments.record(names.EARLY_GAIN, gain, self._metric("execute_tool"))
        self._done.clear()

    def _end_run(self, done: Done, now: float) -> None:
        self._close_tools_of_step()
        set_all(self._span, {
            names.PENSTOCK_RUN_REASON: done.reason, **usage_attributes(done.usage),
            names.PENSTOCK_EARLY_GAIN: self._gain or None,
        })  # fmt: skip
        error = (self._error or done.reason) if done.reason in _FAILED else ""
        if error:
            fail(self._span, error)
        self._tracing.instruments.record(names.DURATION, now - self._begin, self._metric("invoke_agent", error))
        self.close()

    def _priced(self, step: StepSpan) -> tuple[str, Attributes]:
        """The model of a step, for its price, and the attributes of its metrics."""
        model: Attributes = {names.GEN_AI_RESPONSE_MODEL: step.model} if step.model else {}
        return self._config.model.name, {**self._metric("chat", step.error), **model}

    def _metric(self, operation: str, error: str = "") -> Attributes:
        """The attributes of a metric."""
        attributes: Attributes = {**self._common, names.GEN_AI_OPERATION_NAME: operation}
        if error:
            attributes[names.ERROR_TYPE] = error
        return attributes


def _common(config: AgentConfig) -> Attributes:
    """The common attributes of all spans and metrics of a run."""
    model = config.model
    attributes = _model_attributes(model.provider, model.model)
    if config.name:
        attributes[names.GEN_AI_AGENT_NAME] = config.name
    try:
        address = urlsplit(model.base_url)
        if address.scheme in ("http", "https") and address.hostname:
            attributes[names.SERVER_ADDRESS] = address.hostname
            attributes[names.SERVER_PORT] = address.port or (443 if address.scheme == "https" else 80)
    except (UsageError, ValueError):  # no address is set, or it is not one: the request will say so
        pass
    return attributes


def _model_attributes(provider: str, model: str) -> Attributes:
    return {names.GEN_AI_PROVIDER_NAME: names.PROVIDERS.get(provider, provider), names.GEN_AI_REQUEST_MODEL: model}


def _options(options: Mapping[str, Any]) -> Attributes:
    """The options of the requests of an agent."""
    attributes: Attributes = {
        name: options[option] for option, name in names.REQUEST_OPTIONS.items() if options.get(option) is not None
    }
    if stop := options.get("stop"):
        attributes[names.GEN_AI_REQUEST_STOP_SEQUENCES] = [stop] if isinstance(stop, str) else list(stop)
    return attributes


def _parent(meta: Any) -> Context | None:
    """The trace that started the run, if its `carrier()` is in `meta`."""
    if not isinstance(meta, Mapping) or not isinstance(meta.get("traceparent"), str):
        return None
    fields = {
        key: value for key, value in meta.items() if key in ("traceparent", "tracestate") and isinstance(value, str)
    }
    context = TraceContextTextMapPropagator().extract(fields)
    return context if get_current_span(context).get_span_context().is_valid else None
