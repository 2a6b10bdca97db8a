"""Tracing: spans and metrics of runs, read back from the exporters in memory of the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import penstock.log
from penstock import (
    Agent,
    ApprovalRequest,
    Model,
    Retries,
    Runs,
    Step,
    StreamEvent,
    Text,
    ToolStart,
    Usage,
    UsageError,
    tool,
)
from penstock.hooks import compact, fallback
from penstock.prices import safe_cost
from penstock.testing import Loopback, Reply, Scripted, Status, call, drop, fail, say, wait
from penstock.tracing import Prices, Tracing, carrier, conventions
from penstock.tracing.content import MAX_CONTENT, MAX_URL, as_json, input_messages
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import SOON, drive, streaming, sync_and_async

pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode


class Counter(SpanProcessor):
    """Counts the spans that are open."""

    def __init__(self) -> None:
        self.open = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.open += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.open -= 1


class Collector:
    """The exporters, and a tracing that uses them."""

    def __init__(self, **options: Any) -> None:
        self.exporter, self.reader, self.counter = InMemorySpanExporter(), InMemoryMetricReader(), Counter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider.add_span_processor(self.counter)
        meters = MeterProvider([self.reader])
        self.tracing = Tracing(tracer_provider=self.provider, meter_provider=meters, **options)

    def spans(self, prefix: str = "") -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(prefix)]

    def points(self, name: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        metrics = [metric for resource in data.resource_metrics for scope in resource.scope_metrics
                   for metric in scope.metrics]  # fmt: skip
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


def made(collector: Collector, replies: Any, *tools: Any, **options: Any) -> Agent:
    model = Model("openai-compatible:m", via=Scripted(replies))
    return Agent(model, tools, tracing=collector.tracing, name="clerk", **options)


@tool(read_only=True)
def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is sunny"


@tool
def write(text: str) -> str:
    """Write something down."""
    return "written"


@tool
def broken() -> str:
    """Never works."""
    raise ValueError("no luck")


# -- names -------------------------------------------------------------------------------------------------------------

PINNED = "0.66b2"


def test_names_and_units_are_those_of_the_pinned_conventions() -> None:
    from importlib.metadata import version

    assert version("opentelemetry-semantic-conventions") == PINNED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [
            importlib.import_module(f"opentelemetry.semconv._incubating.attributes.{name}_attributes")
            for name in ("gen_ai", "error", "server")
        ]
        metrics = importlib.import_module("opentelemetry.semconv._incubating.metrics.gen_ai_metrics")
        schemas: Any = importlib.import_module("opentelemetry.semconv.schemas").Schemas
    official = {name: value for module in modules for name, value in vars(module).items()}
    ours = {name: value for name, value in vars(conventions).items() if isinstance(value, str) and name.isupper()}
    ours.pop("SCHEMA_URL")
    of_conventions = {name: value for name, value in ours.items() if not name.startswith("PENSTOCK_")}
    assert len(of_conventions) >= 30
    assert of_conventions == {name: official.get(name) for name in of_conventions}
    assert all(value.startswith("penstock.") for name, value in ours.items() if name.startswith("PENSTOCK_"))
    assert [*schemas][-1].value == conventions.SCHEMA_URL
    assert set(conventions.PROVIDERS.values()) <= {one.value for one in official["GenAiProviderNameValues"]}
    assert {"chat", "invoke_agent", "execute_tool"} <= {one.value for one in official["GenAiOperationNameValues"]}
    for metric in conventions.METRICS:
        if metric.name.startswith("gen_ai."):
            create = getattr(metrics, f"create_{metric.name.replace('.', '_')}")
            assert create(Units()) == (metric.name, metric.unit)
        else:
            assert metric.name.startswith("penstock.")


class Units:
    """Stands for a meter, to see what the official function creates."""

    def create_histogram(self, name: str, unit: str, description: str) -> tuple[str, str]:
        return name, unit


# -- spans -------------------------------------------------------------------------------------------------------------


SCRIPT = [
    Reply(call("look", {"city": "Rome"}), say("And …"), call("write", {"text": "a"}), call("broken", {})),
    Reply("Done."),
]


@sync_and_async
def test_a_run_has_a_span_with_those_of_its_steps_and_tools(mode: str) -> None:
    collector = Collector()
    drive(streaming(made(collector, SCRIPT, look, write, broken, temperature=0.5, stop="x")), mode)
    [run], [first, second] = collector.spans("invoke_agent"), collector.spans("chat")
    tools = {span.name: span for span in collector.spans("execute_tool")}
    assert run.name == "invoke_agent clerk"
    assert run.parent is None
    assert all(span.parent.span_id == run.context.span_id for span in (first, second, *tools.values()))
    assert (run.kind, first.kind, tools["execute_tool look"].kind) == (
        SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL,
    )  # fmt: skip
    assert run.attributes["gen_ai.agent.name"] == "clerk"
    assert run.attributes["penstock.run.reason"] == "answered"
    assert run.attributes["gen_ai.usage.output_tokens"] > 0
    assert first.attributes["gen_ai.request.model"] == "m"
    assert first.attributes["gen_ai.provider.name"] == "openai-compatible"
    assert first.attributes["gen_ai.request.temperature"] == 0.5
    assert first.attributes["gen_ai.request.stop_sequences"] == ("x",)
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert second.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert first.attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert first.attributes["penstock.response.chunks"] >= 1
    assert [first.attributes["penstock.step"], second.attributes["penstock.step"]] == [1, 2]
    assert collector.counter.open == 0


@sync_and_async
def test_the_span_of_a_tool_says_how_it_ended_and_whether_it_was_early(mode: str) -> None:
    collector = Collector()
    drive(streaming(made(collector, SCRIPT, look, write, broken)), mode)
    spans = {span.attributes["gen_ai.tool.name"]: span for span in collector.spans("execute_tool")}
    assert {name: span.attributes["penstock.tool.ending"] for name, span in spans.items()} == {
        "look": "done", "write": "done", "broken": "failed",
    }  # fmt: skip
    assert spans["look"].attributes["penstock.tool.is_early"]
    assert not spans["write"].attributes["penstock.tool.is_early"]
    assert spans["look"].attributes["penstock.tool.overlap"] >= 0
    assert spans["broken"].status.status_code is StatusCode.ERROR
    assert spans["broken"].attributes["error.type"] == "failed"
    assert spans["look"].status.status_code is StatusCode.UNSET
    assert spans["look"].attributes["gen_ai.tool.call.id"]


@sync_and_async
def test_an_early_start_gains_the_time_that_the_tool_and_the_response_overlap(mode: str) -> None:
    """The response waits until the tool has ended, so that the gain is the whole time of the tool."""
    ended = threading.Event()

    @tool(read_only=True)
    def slow() -> str:
        """Takes as long as it takes."""
        ended.wait(0.05)
        ended.set()
        return "slow"

    collector = Collector()

    def wait(running: Any, event: StreamEvent) -> Any:
        if not isinstance(event, ToolStart):
            return None
        return ended.wait(SOON) if mode == "sync" else asyncio.to_thread(ended.wait, SOON)  # the tool needs the loop

    drive(streaming(made(collector, [Reply(call("slow", {}), say("Text. ")), Reply(".")], slow)), mode, wait)
    [run], [span] = collector.spans("invoke_agent"), collector.spans("execute_tool")
    assert span.attributes["penstock.tool.is_early"]
    assert 0 < run.attributes["penstock.early_start.gain"] <= (span.end_time - span.start_time) / 1e9 + 0.01
    [point] = collector.points("penstock.early_start.gain")
    assert point.count == 1


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True], ids=["plain tool", "async tool"])
def test_work_inside_of_a_tool_is_inside_of_its_span(mode: str, is_async: bool) -> None:
    collector = Collector()
    tracer = collector.provider.get_tracer("test")

    @tool(name="work")
    async def work_async() -> str:
        """Work."""
        with tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)
        return "done"

    @tool(name="work")
    def work_plain() -> str:
        """Work."""
        with tracer.start_as_current_span("inner"):
            return "done"

    working = work_async if is_async else work_plain
    with tracer.start_as_current_span("outer") as outer:
        drive(streaming(made(collector, [Reply(call("work", {})), Reply(".")], working)), mode)
    [inner], [span], [run] = (collector.spans(name) for name in ("inner", "execute_tool", "invoke_agent"))
    assert inner.parent.span_id == span.context.span_id
    assert span.parent.span_id == run.context.span_id
    assert run.parent.span_id == outer.get_span_context().span_id


@sync_and_async
def test_the_request_is_inside_of_the_span_of_its_step(mode: str) -> None:
    collector = Collector()
    current: list[int] = []

    def key() -> str:
        current.append(trace.get_current_span().get_span_context().span_id)
        return "k"

    with Loopback([Reply("Hello.")]) as server:
        model = Model("openai-compatible:m", base_url=server.base_url("openai-chat"), api_key=key)
        drive(streaming(Agent(model, tracing=collector.tracing)), mode)
    [span] = collector.spans("chat")
    assert current == [span.context.span_id]
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["server.port"] > 0


@sync_and_async
def test_errors_are_on_the_spans_of_the_step_and_of_the_run(mode: str) -> None:
    collector = Collector()
    agent = made(collector, [Reply(say("Hal"), drop())], retries=penstock.Retries(attempts=1))
    _, running = drive(streaming(agent), mode)
    [run], [step] = collector.spans("invoke_agent"), collector.spans("chat")
    assert run.status.status_code is StatusCode.ERROR
    assert run.attributes["error.type"]
    assert run.attributes["penstock.run.reason"] == running.finish_reason
    assert step.attributes["gen_ai.response.finish_reasons"] == (running.finish_reason,)
    assert collector.counter.open == 0


@sync_and_async
def test_a_request_that_fails_has_the_type_of_its_error(mode: str) -> None:
    collector = Collector()
    agent = Agent(Model("openai-compatible:m", base_url="http://127.0.0.1:1", api_key="k"), tracing=collector.tracing,
                  retries=penstock.Retries(attempts=1))  # fmt: skip
    drive(streaming(agent), mode)
    [run], [step] = collector.spans("invoke_agent"), collector.spans("chat")
    assert run.attributes["error.type"] == step.attributes["error.type"] == "ConnectionFailed"
    assert "gen_ai.response.time_to_first_chunk" not in step.attributes
    assert not collector.points("gen_ai.client.operation.time_to_first_chunk")
    durations = {point.attributes["gen_ai.operation.name"]: point.attributes.get("error.type")
                 for point in collector.points("gen_ai.client.operation.duration")}  # fmt: skip
    assert durations == {"chat": "ConnectionFailed", "invoke_agent": "ConnectionFailed"}


@sync_and_async
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Status(403), "permission_error"), (Reply(say("Hm"), fail("overloaded_error", "no")), "overloaded_error"),
        (Reply(say("Hm"), drop(clean=True)), "cut"),
    ],
)  # fmt: skip
def test_a_model_that_failed_before_another_has_the_type_of_its_error(mode: str, failure: Any, kind: str) -> None:
    collector = Collector()
    agent = Agent(anthropic("m", failure), before_step=penstock.hooks.fallback(anthropic("n", "Here.")),
                  tracing=collector.tracing, retries=penstock.Retries(attempts=0))  # fmt: skip
    drive(streaming(agent), mode)
    first, second = collector.spans("chat")
    assert (first.attributes["error.type"], "error.type" in second.attributes) == (kind, False)
    assert ("gen_ai.response.time_to_first_chunk" in first.attributes) == isinstance(failure, Reply)
    durations = {point.attributes.get("error.type") for point in collector.points("gen_ai.client.operation.duration")
                 if point.attributes["gen_ai.operation.name"] == "chat"}  # fmt: skip
    assert durations == {kind, None}


@sync_and_async
def test_a_run_that_is_cancelled_leaves_no_span_open(mode: str) -> None:
    collector = Collector()

    def cancel(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolStart):
            running.cancel()

    drive(streaming(made(collector, SCRIPT, look, write, broken)), mode, cancel)
    [run] = collector.spans("invoke_agent")
    assert run.attributes["penstock.run.reason"] == "cancelled"
    assert run.status.status_code is StatusCode.UNSET
    assert collector.counter.open == 0


# -- content -----------------------------------------------------------------------------------------------------------


@sync_and_async
def test_content_is_in_the_spans_only_when_asked(mode: str) -> None:
    for content in (False, True):
        collector = Collector(content=content)
        drive(streaming(made(collector, SCRIPT, look, write, broken, instructions="Be secretive.")), mode)
        text = str([[dict(span.attributes), [dict(event.attributes) for event in span.events]]
                    for span in collector.spans()])  # fmt: skip
        for word in ("secretive", "Rome", "And …", "is sunny", "no luck"):
            assert (word in text) is content, word


def test_the_form_of_content_is_that_of_the_conventions() -> None:
    import json

    collector = Collector(content=True)
    made(collector, SCRIPT, look, write, broken).run("Go.")
    first, second = collector.spans("chat")
    assert json.loads(first.attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Go."}]}
    ]
    [output] = json.loads(first.attributes["gen_ai.output.messages"])
    assert sorted(part["type"] for part in output["parts"]) == ["text", "tool_call", "tool_call", "tool_call"]
    assert output["finish_reason"] == "tool_calls"
    last = json.loads(second.attributes["gen_ai.input.messages"])[-1]
    assert last["role"] == "tool"
    assert {part["type"] for part in last["parts"]} == {"tool_call_response"}


def test_content_has_a_cap() -> None:
    from penstock.messages import image, user

    messages = [user("x" * 30_000) for _ in range(10)]
    assert len(input_messages(messages)) <= MAX_CONTENT + 100
    assert len(as_json("x" * 200_000)) == MAX_CONTENT + 1
    shown = input_messages([user(image(b"\x89PNG\r\n\x1a\n" + b"x" * 10_000))])
    assert MAX_URL < len(shown) < MAX_URL + 200


# -- metrics and cost --------------------------------------------------------------------------------------------------


def test_metrics_of_a_run() -> None:
    collector = Collector(cost={"m": Prices(input=1.0, output=2.0)})
    result = made(collector, SCRIPT, look, write, broken).run("Go.")
    operations = {point.attributes["gen_ai.operation.name"]: point.count
                  for point in collector.points("gen_ai.client.operation.duration")
                  if "gen_ai.tool.name" not in point.attributes}  # fmt: skip
    assert operations == {"chat": 2, "invoke_agent": 1}
    collector = Collector(cost={"m": Prices(input=1.0, output=2.0)})
    result = made(collector, SCRIPT, look, write, broken).run("Go.")
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in collector.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": result.usage.input_tokens, "output": result.usage.output_tokens}
    collector = Collector(cost={"m": Prices(input=1.0, output=2.0)})
    made(collector, SCRIPT, look, write, broken).run("Go.")
    [cost] = collector.points("penstock.cost")
    [run] = collector.spans("invoke_agent")
    assert run.attributes["penstock.cost"] == pytest.approx(cost.sum)
    assert run.attributes["penstock.cost.currency"] == cost.attributes["penstock.cost.currency"] == "USD"
    assert sum(span.attributes["penstock.cost"] for span in collector.spans("chat")) == pytest.approx(cost.sum)


def test_the_time_to_the_first_chunk_and_between_chunks_is_measured() -> None:
    collector = Collector()
    made(collector, [Reply("one two three four five six seven eight nine ten")]).run("Go.")
    [first] = collector.points("gen_ai.client.operation.time_to_first_chunk")
    assert first.count == 1
    collector = Collector()
    made(collector, [Reply("one two three four five six seven eight nine ten")]).run("Go.")
    [span] = collector.spans("chat")
    gaps = collector.points("gen_ai.client.operation.time_per_output_chunk")
    assert sum(point.count for point in gaps) == span.attributes["penstock.response.chunks"] - 1


USAGE = Usage(input_tokens=1_000_000, output_tokens=500_000, cached_tokens=600_000, reasoning_tokens=200_000,
              cache_write_tokens=100_000)  # fmt: skip


def test_prices_count_cache_reads_cache_writes_and_reasoning_apart() -> None:
    prices = Prices(input=1.0, output=10.0, cache_read=0.1, cache_write=1.25, reasoning=20.0)
    assert prices.cost(USAGE) == pytest.approx(0.3 * 1.0 + 0.6 * 0.1 + 0.1 * 1.25 + 0.3 * 10.0 + 0.2 * 20.0)
    assert Prices(input=1.0, output=10.0).cost(USAGE) == pytest.approx(1.0 + 5.0)
    assert Prices(input=1.0, output=1.0, cache_read=0.0).cost(USAGE) == pytest.approx(0.4 + 0.5)


@sync_and_async
def test_without_prices_of_its_own_a_trace_has_the_cost_of_the_run(mode: str) -> None:
    collector = Collector(currency="EUR")
    agent = made(collector, [Reply(call("look", {"city": "Rome"})), Reply("Done.")], look, prices={"m": PER_TOKEN})
    _, running = drive(streaming(agent), mode)
    [run] = collector.spans("invoke_agent")
    assert run.attributes["penstock.cost"] == running.cost > 0
    assert run.attributes["penstock.cost.currency"] == "USD"
    assert sum(span.attributes["penstock.cost"] for span in collector.spans("chat")) == pytest.approx(running.cost)


def test_a_cost_that_is_not_known_or_raises_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def raising(model: str, usage: Usage) -> float:
        raise KeyError(model)

    costs: list[Callable[[str, Usage], float | None]] = [raising, lambda model, usage: None]
    for cost in costs:
        collector = Collector(cost=cost)
        assert made(collector, [Reply("Done.")]).run("Go.").output == "Done."
        [run] = collector.spans("invoke_agent")
        assert "penstock.cost" not in run.attributes
    assert "is not known" in caplog.text
    assert safe_cost(lambda model, usage: 2, "p:m", USAGE) == 2.0
    wrong: Any = {"m": 3}
    with pytest.raises(UsageError, match="Prices"):
        Tracing(cost=wrong)


# -- runs that last ----------------------------------------------------------------------------------------------------


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def test_every_process_that_drives_a_run_continues_its_trace() -> None:
    collector, store = Collector(), penstock.log.memory()
    agent = made(collector, [Reply(call("pay", {})), Reply("Paid.")], pay)
    runs = Runs(store, {"clerk": agent})
    with collector.provider.get_tracer("test").start_as_current_span("request") as request:
        run_id = runs.start("clerk", "Go.", meta={**carrier(), "user": 7})
    runs.drive(run_id)
    waiting = next(event for _, event in runs.follow(run_id) if isinstance(event, ApprovalRequest))
    runs.decide(run_id, waiting.call_id, True)
    runs.drive(run_id)
    first, second = collector.spans("invoke_agent")
    assert [span.attributes["penstock.run.reason"] for span in (first, second)] == ["paused", "answered"]
    assert {span.context.trace_id for span in collector.spans()} == {request.get_span_context().trace_id}
    assert first.parent.span_id == second.parent.span_id == request.get_span_context().span_id
    assert {span.attributes["penstock.run.id"] for span in (first, second)} == {run_id}


def test_a_worker_with_a_span_of_its_own_is_linked() -> None:
    collector, store = Collector(), penstock.log.memory()
    runs = Runs(store, {"clerk": made(collector, [Reply("Done.")])})
    tracer = collector.provider.get_tracer("test")
    with tracer.start_as_current_span("request"):
        run_id = runs.start("clerk", "Go.", meta=carrier())
    with tracer.start_as_current_span("job") as job:
        runs.drive(run_id)
    [run] = collector.spans("invoke_agent")
    assert [link.context.span_id for link in run.links] == [job.get_span_context().span_id]


@pytest.mark.parametrize("meta", [None, 7, {"traceparent": 7}, {"traceparent": "nonsense"}])
def test_other_meta_is_ignored(meta: Any) -> None:
    collector, store = Collector(), penstock.log.memory()
    made(collector, [Reply("Done.")]).run("Go.", log=store, meta=meta)
    [run] = collector.spans("invoke_agent")
    assert run.parent is None


def test_a_detached_run_ends_its_span_when_it_ends() -> None:
    collector, store = Collector(), penstock.log.memory()
    with made(collector, SCRIPT, look, write, broken).stream("Go.", log=store, run_id="r") as run:
        run.detach()
        for _ in run:
            break
    end = threading.Event()
    for _ in range(int(SOON / 0.01)):
        if collector.spans("invoke_agent"):
            break
        end.wait(0.01)
    [span] = collector.spans("invoke_agent")
    assert span.attributes["penstock.run.reason"] == "answered"
    assert len(collector.spans("execute_tool")) == 3


# -- without it --------------------------------------------------------------------------------------------------------


def test_without_tracing_nothing_is_imported() -> None:
    program = (
        "import sys, penstock; penstock.Agent('sim:fast').run('Hi.'); "
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'penstock.tracing', 'mcp'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_mistakes_are_usage_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = trace
    with pytest.raises(UsageError, match=r"penstock\.tracing\.Tracing"):
        Agent("sim:fast", tracing=wrong)
    monkeypatch.setattr("penstock.tracing.tracing.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"penstock-llm\[otel\]"):
        Tracing()
    with pytest.raises(UsageError, match=r"penstock-llm\[otel\]"):
        carrier()


@sync_and_async
def test_the_spans_of_an_agent_inside_are_in_the_span_of_its_call(mode: str) -> None:
    seen = Collector()

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def model(first: Reply, last: str) -> Model:
        return Model("openai:gpt-5", via=Scripted(lambda request: last if request.results else first))

    inner = Agent(model(Reply(call("look")), "inside"), [look], name="inner")
    outer = Agent(
        model(Reply(call("ask", {"prompt": "x"})), "done"), [inner.as_tool("ask", "Ask.")], name="outer",
        tracing=seen.tracing,
    )  # fmt: skip
    drive(streaming(outer), mode)
    [run] = seen.spans("invoke_agent outer")
    [ask] = seen.spans("execute_tool ask")
    [inside] = seen.spans("invoke_agent inner")
    [looked] = seen.spans("execute_tool look")
    assert ask.parent.span_id == run.context.span_id
    assert inside.parent.span_id == ask.context.span_id
    assert looked.parent.span_id == inside.context.span_id
    chats = [span.parent.span_id for span in seen.spans("chat")]
    assert sorted(chats) == sorted([run.context.span_id] * 2 + [inside.context.span_id] * 2)
    assert seen.counter.open == 0
    tokens = "gen_ai.usage.input_tokens"
    steps = [span for span in seen.spans("chat") if span.parent.span_id == inside.context.span_id]
    assert inside.attributes[tokens] == sum(step.attributes[tokens] for step in steps)
    assert run.attributes[tokens] == sum(step.attributes[tokens] for step in seen.spans("chat"))


@sync_and_async
def test_the_cost_of_a_run_has_that_of_the_agents_inside_and_not_of_other_runs(mode: str) -> None:
    seen = Collector(cost={"cheap": Prices(input=1.0, output=1.0), "dear": Prices(input=9.0, output=9.0)})

    def model(name: str, first: Reply, last: str) -> Model:
        return Model(f"openai-compatible:{name}", via=Scripted(lambda request: last if request.results else first))

    other = Agent(model("dear", Reply("Other."), ""), name="other", tracing=seen.tracing)

    @tool
    def run_another() -> str:
        """Run another agent."""
        return other.run("Go.").output

    innermost = Agent(model("dear", Reply("Deep."), ""), name="innermost")
    inner = Agent(
        model("cheap", Reply(call("dig", {"prompt": "x"}), call("run_another")), "inside"),
        [innermost.as_tool("dig", "Dig."), run_another], name="inner",
    )  # fmt: skip
    ask = inner.as_tool("ask", "Ask.")
    outer = Agent(
        model("cheap", Reply(call("ask", {"prompt": "x"})), "done"), [ask], name="outer", tracing=seen.tracing
    )
    drive(streaming(outer), mode)

    def cost(prefix: str) -> float:
        return sum(span.attributes["penstock.cost"] for span in seen.spans(prefix))

    [run] = seen.spans("invoke_agent outer")
    assert cost("invoke_agent innermost") > 0
    [inside] = [span for span in seen.spans("invoke_agent inner") if span.name == "invoke_agent inner"]
    assert inside.attributes["penstock.cost"] > cost("invoke_agent innermost")
    assert run.attributes["penstock.cost"] == pytest.approx(cost("chat") - cost("invoke_agent other"))


# -- the cost of a run is the sum of what was paid ---------------------------------------------------------------------

PER_TOKEN = Prices(input=1e6, output=1e6)
"""With this price of all models, the cost of a run is the number of its tokens, which the run counts by itself."""


def anthropic(name: str, *steps: Any, **options: Any) -> Model:
    """A model that reports its input tokens at the begin of a response."""
    return Model(f"anthropic:{name}", via=Scripted(list(steps)), **options)


def paid_steps() -> dict[str, Any]:
    return {"model": anthropic("m", Reply(call("look", {"city": "Rome"})), "Done."), "tools": [look]}


def paid_retry() -> dict[str, Any]:
    retries = Retries(attempts=2, first_delay=0.0, after_start=True)
    return {"model": anthropic("m", Reply("Half of it", drop()), "Done.", retries=retries)}


def paid_fallback() -> dict[str, Any]:
    model = anthropic("m", Reply("Half of it", drop()), retries=Retries(attempts=0))
    return {"model": model, "before_step": fallback(anthropic("other", "Done."))}


def paid_failure() -> dict[str, Any]:
    return {"model": anthropic("m", Reply("Half of it", drop()), retries=Retries(attempts=0))}


def paid_summary() -> dict[str, Any]:
    script = [*(Reply(call("read", {"number": number})) for number in range(6)), "Done."]

    @tool
    def read(number: int) -> str:
        """Read a page."""
        return "x" * 400

    return {
        "model": anthropic("m", *script), "tools": [read],
        "before_step": compact(300, model=anthropic("small", *["All fine."] * 9), keep=1),
    }  # fmt: skip


def paid_stop() -> dict[str, Any]:
    def stop(step: Step) -> Step:
        return step.add_usage(Usage(100, 10), "anthropic:small").stop("enough")

    return {"model": anthropic("m"), "before_step": stop}


def paid_hook_failure() -> dict[str, Any]:
    def raises(step: Step) -> Step:
        raise ValueError("no luck")

    return {"model": anthropic("m"), "before_step": [lambda step: step.add_usage(Usage(100, 10)), raises]}


def paid_inside() -> dict[str, Any]:
    inner = Agent(**{key: value for key, value in paid_fallback().items() if key != "name"}, name="inner")
    model = anthropic("m", Reply(call("ask", {"prompt": "x"})), "Done.")
    return {"model": model, "tools": [inner.as_tool("ask", "Ask.")]}


PAID = [paid_steps, paid_retry, paid_fallback, paid_failure, paid_summary, paid_stop, paid_hook_failure, paid_inside]


def tokens_of(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


@sync_and_async
@pytest.mark.parametrize("setting", PAID)
def test_the_cost_of_a_run_is_the_sum_of_what_was_paid(setting: Callable[[], dict[str, Any]], mode: str) -> None:
    seen = Collector(cost=lambda model, usage: PER_TOKEN.cost(usage))
    _, run = drive(streaming(Agent(**setting(), tracing=seen.tracing)), mode)
    spans = seen.spans("invoke_agent")
    tokens = sum(point.sum for point in seen.points("gen_ai.client.token.usage"))
    assert tokens == tokens_of(run.usage) > 0
    assert spans[-1].attributes["penstock.cost"] == pytest.approx(tokens)
    asides = sum(event.attributes["penstock.cost"] for span in spans for event in span.events
                 if event.name == "penstock.hook_usage")  # fmt: skip
    chats = sum(span.attributes.get("penstock.cost", 0.0) for span in seen.spans("chat"))
    assert chats + asides == pytest.approx(tokens)
    assert seen.counter.open == 0


@sync_and_async
def test_what_was_paid_has_the_price_of_its_own_model(mode: str) -> None:
    prices = {"m": Prices(input=1e6, output=0.0), "other": Prices(input=1e9, output=0.0)}
    seen = Collector(cost=prices)
    drive(streaming(Agent(**paid_fallback(), tracing=seen.tracing)), mode)
    first, second = seen.spans("chat")
    assert (first.name, second.name) == ("chat m", "chat other")
    assert first.attributes["penstock.cost"] == first.attributes["gen_ai.usage.input_tokens"]
    assert second.attributes["penstock.cost"] == 1000 * second.attributes["gen_ai.usage.input_tokens"]

    seen = Collector(cost={"small": Prices(input=1e6, output=0.0)})
    models = {"little": anthropic("small")}
    named: list[Callable[[Step], Step]] = [
        lambda step: step.add_usage(Usage(7, 1), "little"),  # the name of a model of the agent
        lambda step: step.add_usage(Usage(20, 1), models["little"]).add_usage(Usage(300, 1)).stop("enough"),
    ]
    drive(streaming(Agent(anthropic("m"), before_step=named, models=models, tracing=seen.tracing)), mode)
    [run] = seen.spans("invoke_agent")
    assert run.attributes["penstock.cost"] == 27


@sync_and_async
def test_a_run_around_another_pays_in_its_own_currency(mode: str) -> None:
    inside = Collector(cost={"m": Prices(input=5e6, output=5e6)}, currency="EUR")
    around = Collector(cost={"m": PER_TOKEN})
    inner = Agent(anthropic("m", "Deep."), name="inner", tracing=inside.tracing)
    outer = Agent(anthropic("m", Reply(call("ask", {"prompt": "x"})), "Done."), [inner.as_tool("ask", "Ask.")],
                  tracing=around.tracing)  # fmt: skip
    _, run = drive(streaming(outer), mode)
    [one], [other] = inside.spans("invoke_agent"), around.spans("invoke_agent")
    assert other.attributes["penstock.cost"] == pytest.approx(tokens_of(run.usage))
    assert one.attributes["penstock.cost.currency"] == "EUR"
    assert 0 < one.attributes["penstock.cost"] / 5 < tokens_of(run.usage)


@sync_and_async
def test_what_was_paid_until_a_cancellation_counts(mode: str) -> None:
    seen = Collector(cost={"m": PER_TOKEN})
    model = anthropic("m", Reply("One two three four five six seven eight.", wait(60)))

    def cancel(run: Any, event: StreamEvent) -> None:
        if isinstance(event, Text):
            run.cancel()

    _, run = drive(streaming(Agent(model, tracing=seen.tracing)), mode, cancel)
    [span] = seen.spans("invoke_agent")
    assert span.attributes["penstock.cost"] == pytest.approx(tokens_of(run.usage))
    assert tokens_of(run.usage) > 0
