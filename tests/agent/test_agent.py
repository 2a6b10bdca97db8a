"""An agent as it is used: the whole loop on every wire, sync and async, its callbacks and its options."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    Agent,
    AgentStreamer,
    Done,
    Limits,
    Model,
    Retries,
    Said,
    StreamEvent,
    Text,
    Timeouts,
    ToolEnd,
    ToolError,
    ToolOutput,
    ToolResults,
    Usage,
    UsageError,
    tool,
)
from penstock.agent.driver.sync_driver import SyncDriver
from penstock.run import outbox
from penstock.run.commands import StartTool
from penstock.run.events import decode, encode
from penstock.run.machine import Run
from penstock.testing import Hang, Loopback, Reply, Scripted, Status, call, say
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    SOON,
    Bench,
    check_history,
    drive,
    end_of,
    events_of,
    every_wire,
    made,
    model_on,
    on,
    pay,
    results,
    run_of,
    script,
    streaming,
    sync_and_async,
)
from tests.timeless import timeless

# -- the whole loop ----------------------------------------------------------------------------------------------------


def settled(events: list[StreamEvent]) -> list[Any]:
    """The events without their order across calls: tools that run side by side end in any order."""
    return sorted(repr(event) for event in timeless(events) if not isinstance(event, Done))


@every_wire
def test_sync_equals_async_on_every_wire(wire: str) -> None:
    one, other = Bench(), Bench()
    events, running = drive(streaming(on(wire, script(), *one.tools)), "sync")
    async_events, async_running = drive(streaming(on(wire, script(), *other.tools)), "async")
    assert settled(events) == settled(async_events)
    assert running.messages == async_running.messages
    done = end_of(events)
    assert (done.reason, done.output) == ("answered", "All done.")
    assert one.ran == other.ran == Counter({"look Rome": 1, "write a": 1, "broken": 1, "write b": 1})
    check_history(running.messages)
    for event in events:
        assert decode(encode(event)) == event


def test_a_run_can_be_read_event_by_event() -> None:
    running = made([Reply("Hi.")]).stream("Go.")
    first = next(running)
    rest = list(iter(lambda: next(running, None), None))
    names = [type(event).__name__ for event in (first, *rest)]
    assert (names[0], names[-1]) == ("StepStart", "Done")

    async def read() -> list[str]:
        running = made([Reply("Hi.")]).astream("Go.")
        names = [type(await anext(running)).__name__]
        async with running:
            while (event := await anext(running, None)) is not None:
                names.append(type(event).__name__)
        return names

    assert asyncio.run(read()) == names


@sync_and_async
def test_usage_is_summed_over_the_run(mode: str) -> None:
    first, second = Usage(100, 10, 50, 5), Usage(200, 20, 150, 0)
    replies = [Reply(call("write", {"text": "a"}), usage=first), Reply("Done.", usage=second)]
    usage = end_of(events_of(made(replies, *Bench().tools), mode)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (300, 30, 200)


# -- calls in text -----------------------------------------------------------------------------------------------------


def test_an_in_text_agent_writes_and_reads_xml() -> None:
    bench = Bench()
    text = 'Look. <function_calls><invoke name="write"><parameter name="text">hi</parameter></invoke></function_calls>'
    line = Scripted([Reply(text), Reply("Done.")])
    texts: list[str] = []
    streamer = AgentStreamer(Model("openai-compatible:m", via=line), bench.tools, on_text=texts.append)
    result = streamer.run("Go.")
    assert (result.output, "".join(texts)) == ("Done.", "Look. Done.")
    assert bench.ran == Counter({"write hi": 1})
    assert "<function_results>" in str(line.requests[1].body["messages"][-1])


def test_a_streamer_in_sync_code_starts_inline() -> None:
    text = "<function_calls><invoke name='pay'><parameter name='euros'>3</parameter></invoke></function_calls>"
    agent = AgentStreamer(Model("openai-compatible:m", via=Scripted([Reply(text.replace("'", '"')), "Done."])), [pay])
    ends = [event for event in events_of(agent, "sync") if isinstance(event, ToolEnd)]
    assert [end.result.text for end in ends] == ["paid 3"]


@sync_and_async
def test_a_leaked_call_is_rescued_if_asked_for(mode: str) -> None:
    leak = '<tool_call>\n{"name": "write", "arguments": {"text": "a"}}\n</tool_call>'
    written: list[str] = []

    @tool(approval=False)
    def write(text: str) -> str:
        """Write something down."""
        written.append(text)
        return "written"

    done = end_of(events_of(made([Reply(leak), Reply("Done.")], write, rescue=True), mode))
    assert results(done) == ["written"]
    end_of(events_of(made([Reply(leak)], write), mode))
    assert written == ["a"]


# -- results -----------------------------------------------------------------------------------------------------------


@sync_and_async
def test_the_message_with_all_results_is_an_event(mode: str) -> None:
    calls = [call("write", {"text": "a"}), call("look", {"city": "Rome"}), call("nothing", {})]
    events = events_of(made([Reply(*calls), Reply(call("write", {"text": "b"})), Reply("Done.")], *Bench().tools), mode)
    done = end_of(events)
    messages = [event.message for event in events if isinstance(event, ToolResults)]
    assert messages == [message for message in done.messages if message.role == "tool"]
    assert [len(message.results) for message in messages] == [3, 1]
    order = [event.type for event in events if event.type in ("step_start", "tool_end", "tool_results", "done")]
    assert order == ["step_start", *["tool_end"] * 3, "tool_results", "step_start", "tool_end", "tool_results",
                     "step_start", "done"]  # fmt: skip
    [again] = [decode(encode(event)) for event in events[-1:]]
    assert again == done
    assert [decode(encode(event)) for event in events if isinstance(event, ToolResults)] == [
        *map(ToolResults, messages)
    ]


@sync_and_async
def test_the_results_of_a_run_that_a_limit_ends_are_an_event_too(mode: str) -> None:
    agent = made([Reply(call("write", {"text": "a"}))], *Bench().tools, limits=Limits(steps=1))
    events = events_of(agent, mode)
    assert [event.type for event in events][-2:] == ["tool_results", "done"]
    assert end_of(events).messages[-1] == events[-2].message  # type: ignore[union-attr]


# -- callbacks and separate text ---------------------------------------------------------------------------------------


def test_callbacks_are_called_and_text_is_separated() -> None:
    values: list[Any] = []
    agent = made(
        script()[::2], *Bench().tools, separate_text=True, on_text=values.append, on_reasoning=values.append,
        on_tool_start=lambda id, name, arguments: values.append((name, arguments)),
        on_tool_end=lambda id, result: values.append(result),
    )  # fmt: skip
    agent.run("Go.")
    assert "\nAll" in values or "\nAll done." in values
    assert ("look", {"city": "Rome"}) in values
    assert "written" in values


@sync_and_async
@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ([Reply("A.", call("look", {"city": "Rome"}), say("B.")), Reply("C.")], "A.\nB.\nC."),
        ([Reply("A.", call("look", {"city": "Rome"})), Reply("\nC.")], "A.\nC."),
        ([Reply("A.", say(" And B.")), Reply("C.")], "A. And B."),
    ],
)
def test_text_after_tools_begins_on_a_line_of_its_own_once(replies: Any, text: str, mode: str) -> None:
    for wire in ("anthropic", "gemini"):
        events = events_of(on(wire, replies, *Bench().tools, separate_text=True), mode)
        assert "".join(event.text for event in events if isinstance(event, Text)) == text


@sync_and_async
def test_callbacks_may_be_async(mode: str) -> None:
    values: list[Any] = []

    async def on_text(text: str) -> None:
        await asyncio.sleep(0)
        values.append(text)

    async def on_tool_end(id: str, result: Any) -> None:
        values.append(result)

    agent = made([Reply(call("write", {"text": "a"})), Reply("Hi")], *Bench().tools, on_text=on_text,
                 on_tool_end=on_tool_end)  # fmt: skip
    end_of(events_of(agent, mode))
    assert values[0] == "written"
    assert "".join(values[1:]) == "Hi"


@dataclass
class Report:
    total: int = 3


@sync_and_async
def test_the_end_of_a_tool_has_what_it_returned_and_the_text_beside_it(mode: str) -> None:
    report, values = Report(), dict[str, list[Any]]()

    @tool
    def look(city: str) -> Any:
        """Look."""
        if city == "Oslo":
            raise ToolError("closed")
        if city == "Bonn":
            return ToolOutput("for the model", data=report)
        return {"Rome": report, "Pisa": None}[city]

    def two(id: str, result: Any) -> None:
        values.setdefault(id, []).append(result)

    def three(id: str, result: Any, text: str) -> None:
        values.setdefault(id, []).append((result, text))

    calls = [call("look", {"city": city}, id=city) for city in ("Rome", "Pisa", "Bonn", "Oslo")]
    for callback in (two, three):
        end_of(events_of(made([Reply(*calls), Reply("Hi")], look, on_tool_end=callback), mode))
    assert values == {
        "Rome": [report, (report, '{"total":3}')],
        "Pisa": [None, (None, "null")],
        "Bonn": [report, (report, "for the model")],
        "Oslo": ["closed", ("closed", "closed")],
    }


def test_a_callback_keeps_parameters_of_its_own() -> None:
    log: list[Any] = []
    for callback in (lambda id, result, log=log: log.append(result), lambda *values: log.append(values[1:])):
        made([Reply(call("write", {"text": "a"})), Reply("Hi")], *Bench().tools, on_tool_end=callback).run("Go.")
    assert log == ["written", ("written",)]


def test_async_callbacks_of_a_plain_run_share_the_loop_of_its_tools_and_its_variables() -> None:
    loops = []

    async def on_text(text: str) -> None:
        loops.append(asyncio.get_running_loop())

    @tool
    async def look() -> str:
        """Look."""
        loops.append(asyncio.get_running_loop())
        return "seen"

    for _ in range(2):  # the loop is that of the process, so that clients which tools keep survive a run
        made([Reply(say("One two three."), call("look")), Reply("Done.")], look, on_text=on_text).run("Go.")
    assert len(loops) > 6
    assert len(set(loops)) == 1
    assert not loops[0].is_closed()
    assert sum(thread.name == "penstock-loop" for thread in threading.enumerate()) == 1


@sync_and_async
def test_a_callback_gets_a_copy_of_the_arguments(mode: str) -> None:
    def on_tool_start(id: str, name: str, arguments: dict[str, Any]) -> None:
        arguments["text"] = "other"

    bench = Bench()
    done = end_of(
        events_of(
            made([Reply(call("write", {"text": "a"})), Reply("Done.")], *bench.tools, on_tool_start=on_tool_start),
            mode,
        )
    )
    assert done.messages[1].tool_calls[0].arguments == {"text": "a"}


@sync_and_async
def test_an_error_of_an_async_callback_reaches_the_reader(mode: str) -> None:
    async def on_text(text: str) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_of(made([Reply("Hi.")], on_text=on_text), mode, "Go.")


# -- what an agent is made of ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (None, {}, "must be a Model.*, not None"), (5, {}, "must be a Model.*, not 5"),
        ("sim:fast", {"calls": "nope"}, "nope"),
        ("sim:fast", {"calls": "plain"}, "plain"), ("sim:fast", {"rescue": ["nope"]}, "nope"),
        ("sim:fast", {"rescue": "nope"}, "nope"), ("sim:fast", {"on_tool_error": print}, "on_tool_error"),
        ("sim:fast", {"on_text": "print"}, "on_text must be a function"),
        ("sim:fast", {"approvals": "never"}, "approvals must be"),
        ("sim:fast", {"limits": 5}, "limits must be a Limits"),
        ("sim:fast", {"timeouts": 5}, "timeouts must be a Timeouts"),
        ("sim:fast", {"instructions": 5}, "instructions must be a str"),
        ("sim:fast", {"run_repaired": ["cut"]}, "run_repaired"),
        ("sim:fast", {"start": "closed"}, "start must be .*, not 'closed'.*read_only"),
        ("sim:fast", {"start": "now"}, "start must be .*, not 'now'.*read_only"),
    ],
)  # fmt: skip
def test_wrong_options_of_an_agent_are_errors_at_once(model: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Agent(model, **options)


@pytest.mark.parametrize(
    ("option", "suggestion"),
    [
        ("system_prompt", "instructions"),
        ("tolls", "did you mean 'tools'"),
        ("temprature", "did you mean 'temperature'"),
    ],
)
def test_an_unknown_keyword_is_an_error_with_a_suggestion(option: str, suggestion: str) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(UsageError, match=f"{option}.*{suggestion}"):
        Agent("sim:fast", **options)


def test_an_agent_takes_the_request_options_of_a_model() -> None:
    line = Scripted([Reply("Hi.")])
    agent = Agent(Model("openai-compatible:m", via=line), Bench().tools, temperature=0.5, tool_choice="required",
                  rescue=["hermes"])  # fmt: skip
    assert agent.run("Go.").output == "Hi."
    assert (line.requests[0].body["temperature"], line.requests[0].body["tool_choice"]) == (0.5, "required")


@sync_and_async
def test_an_agent_has_its_own_timeouts_and_retries(mode: str) -> None:
    with Loopback([Hang(), Status(503), Hang(), Status(503)]) as server:
        model = Model("openai-compatible:m", server.base_url("openai-chat"), "-")
        patient = Timeouts(first_event=0.2)
        began = time.monotonic()
        done = end_of(events_of(Agent(model, timeouts=patient, retries=Retries(attempts=0)), mode))
        assert (done.reason, time.monotonic() - began < SOON) == ("error", True)
        done = end_of(events_of(Agent(model, timeouts=patient, retries=Retries(attempts=0)), mode))
        assert "503" in done.why
        assert len(server.requests) == 2
    assert Agent(model).config.model is model


@sync_and_async
def test_with_model_changes_only_the_model(mode: str) -> None:
    bench = Bench()
    agent = Agent("openai:gpt", bench.tools, "Be brief.", limits=Limits(steps=2), retries=Retries(attempts=0))
    script = Scripted([Reply(call("look", {"city": "Rome"})), Reply("Sunny.")])
    other = agent.with_model(Model("anthropic:claude", via=script))
    assert run_of(other, mode, "Go.").output == "Sunny."
    assert bench.ran == {"look Rome": 1}
    assert "Be brief." in json.dumps(script.requests[0].body)
    assert other.config.limits == agent.config.limits
    assert agent.config.model.name == "openai:gpt"
    busy = Scripted([Status(503), Reply("Hi.")])
    events, _ = drive(streaming(agent.with_model(Model("openai:gpt", via=busy))), mode)
    assert end_of(events).reason == "error"
    assert len(busy.requests) == 1
    with pytest.raises(UsageError, match=r"must be a Model.* not 5"):
        agent.with_model(5)  # type: ignore[arg-type]


def test_an_agent_with_other_approvals_is_a_copy() -> None:
    agent = Agent("openai:gpt", approvals="wait")
    assert agent.with_approvals("pause").config.approvals == "pause"
    assert agent.config.approvals == "wait"
    with pytest.raises(UsageError, match="must be 'pause' or 'wait'"):
        agent.with_approvals("never")  # type: ignore[arg-type]


def test_the_repr_of_an_agent_shows_its_model_and_tools_and_no_secrets() -> None:
    agent = Agent(Model("openai:gpt", api_key="sk-secret"), Bench().tools, "Be brief.")
    assert repr(agent) == "Agent('openai:gpt', tools=['look', 'write', 'broken'])"


def test_a_string_is_not_a_history() -> None:
    agent = Agent("openai:gpt")
    for prompt in (None, "And Rome?"):
        with pytest.raises(UsageError, match="pass text as the prompt"):
            agent.stream(prompt, messages="What is the weather in Oslo?")


@sync_and_async
@every_wire
@pytest.mark.parametrize("choice", ["required", "spend", "none", "auto"])
def test_a_forced_tool_choice_holds_for_the_first_step(choice: str, wire: str, mode: str) -> None:
    spent: list[int] = []

    @tool
    def spend(n: int = 0) -> str:
        """Spend it."""
        spent.append(n)
        return "spent"

    def obey(request: Any) -> Reply:
        is_forced = request.tool_choice in ("required", "spend")
        return Reply(call("spend", {"n": len(spent)})) if is_forced else Reply("Done.")

    script = Scripted(obey)
    result = run_of(Agent(model_on(wire, via=script), [spend], tool_choice=choice), mode, "Go.")
    assert (result.reason, result.output) == ("answered", "Done.")
    first, *others = [request.tool_choice for request in script.requests]
    if first in ("required", "spend"):  # not every wire has a choice
        assert (len(spent), others) == (1, [""])
    assert (choice in ("required", "spend")) >= bool(others)


@sync_and_async
def test_a_message_said_during_a_run_reaches_the_next_request(mode: str) -> None:
    script = Scripted(["Rome is sunny.", "Oslo is not."])
    agent = Agent(Model("openai:gpt-5", via=script))

    messages = iter(["And Oslo?"])

    def speak(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Text) and (message := next(messages, None)):
            running.say(message)

    events, running = drive(streaming(agent), mode, speak)
    assert [event.message.text for event in events if isinstance(event, Said)] == ["And Oslo?"]
    assert running.output == "Oslo is not."
    assert [message.role for message in running.messages] == ["user", "assistant", "user", "assistant"]
    with pytest.raises(UsageError, match="the run is over"):
        running.say("Thanks.")


@pytest.mark.parametrize("has_callback", [False, True])
def test_a_run_that_nobody_watches_wakes_its_reader_at_its_end(
    has_callback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait = list[None](), SyncDriver._wait

    def counted(driver: SyncDriver) -> None:
        waits.append(None)
        wait(driver)

    monkeypatch.setattr(SyncDriver, "_wait", counted)
    seen = list[str]()
    agent = Agent(
        Model("openai-compatible:m", via=Scripted([Reply(*(say("piece ") for _ in range(100)))], cuts=1)),
        on_text=seen.append if has_callback else None,
    )
    assert agent.run("Go.").output == "piece " * 100
    assert bool(waits) == has_callback


def test_what_fails_in_a_run_that_nobody_watches_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails in the thread in which the response has ended, which nobody waits for."""

    def broken(run: Run, command: object) -> bool:
        if isinstance(command, StartTool):
            raise OverflowError("too much")
        return bool(reached(run, command))

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    reached: Any = Run.reached
    monkeypatch.setattr(Run, "reached", broken)
    agent = Agent(Model("openai-compatible:m", via=Scripted([Reply(call("pay")), "Done."])), [pay])
    with pytest.raises(OverflowError, match="too much"):
        agent.run("Go.")


@pytest.mark.parametrize("ahead", [3, 16])
def test_a_run_that_nobody_watches_goes_on_when_its_outbox_is_full(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_AHEAD", ahead)
    script = Scripted([Reply(*(say("piece ") for _ in range(100)))], cuts=1)
    agent = Agent(Model("openai-compatible:m", via=script), limits=Limits(seconds=20))
    assert agent.run("Go.").output == "piece " * 100
