"""Hooks of an agent: what they see and change, in plain and async code, and what happens when they fail."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import (
    Agent,
    Context,
    Done,
    Error,
    HistoryReplaced,
    HookError,
    Limits,
    MissingKeyError,
    Model,
    Retry,
    Step,
    StepStart,
    StreamEvent,
    UnknownOptionError,
    UsageError,
)
from penstock.agent.options import AgentOptions
from penstock.log import SQLiteStore
from penstock.log.in_memory import MemoryStore
from penstock.log.take_up import read_log
from penstock.messages import assistant, user
from penstock.run.rebuild import rebuild
from penstock.testing import Crashed, FakeClock, Reply, Scripted, Status, always, call, crash_at, say
from penstock.testing.reply import Drop
from tests.scripted_runs import (
    MODES,
    Bench,
    answer_with,
    drive,
    end_of,
    every_wire,
    made,
    model_on,
    on,
    run_of,
    streaming,
    sync_and_async,
)
from tests.timeless import timeless

Hook = Callable[[Any], Any]


def as_async(hook: Hook) -> Hook:
    async def awaited(step: Step) -> Any:
        await asyncio.sleep(0)
        return hook(step)

    return awaited


def both_kinds(hook: Hook) -> list[Hook]:
    return [hook, as_async(hook)]


def line() -> Scripted:
    return Scripted([Reply(call("look", {"city": "Rome"})), Reply(call("look", {"city": "Oslo"})), "All sunny."])


def agent_on(script: Any, *tools: Any, **options: Any) -> Agent:
    return Agent(Model("openai-compatible:m", via=script), tools, **options)


def read(agent: Agent, mode: str) -> tuple[list[StreamEvent], Any]:
    return drive(streaming(agent), mode)


@sync_and_async
@pytest.mark.parametrize("kind", [lambda hook: hook, as_async], ids=["plain", "async"])
def test_a_hook_sees_and_replaces_all_of_a_request(mode: str, kind: Callable[[Hook], Hook]) -> None:
    bench, script, seen = Bench(), line(), list[Step]()
    other = Scripted(["From elsewhere."])

    def hook(step: Step) -> Step | None:
        seen.append(step)
        if step.number != 3:
            return step.replace(tools=["look"], instructions="Hm.", temperature=0.5) if step.number == 2 else None
        return step.replace(messages=[user("Only this.")], model=Model("openai-compatible:other", via=other))

    agent = agent_on(script, *bench.tools, instructions="Be brief.", max_tokens=9, before_step=kind(hook))
    events, run = read(agent, mode)
    assert [step.number for step in seen] == [1, 2, 3]
    assert [len(step.messages) for step in seen] == [1, 3, 5]
    assert (seen[0].instructions, seen[0].model.name, seen[0].options["max_tokens"]) == (
        "Be brief.", "openai-compatible:m", 9,
    )  # fmt: skip
    assert [tool.name for tool in seen[0].tools] == ["look", "write", "broken"]
    first, second = script.requests
    assert len(first.tools) == 3
    assert first.body["messages"][0]["content"] == "Be brief."
    assert [tool.name for tool in second.tools] == ["look"]
    assert (second.body["messages"][0]["content"], second.body["temperature"]) == ("Hm.", 0.5)
    [last] = other.requests
    assert [message["content"] for message in last.body["messages"]] == ["Be brief.", "Only this."]
    assert (last.model, run.output) == ("other", "From elsewhere.")
    starts = [event for event in events if isinstance(event, StepStart)]
    assert starts[0] == StepStart(1)
    assert (starts[1].changes.tools, starts[2].changes.model) == (("look",), "openai-compatible:other")
    assert len(end_of(events).messages) == 6  # the history has everything


@every_wire
def test_a_replaced_history_reaches_every_wire_and_stays(wire: str) -> None:
    def hook(step: Step) -> Step | None:
        return step.replace_history([user("Rome is sunny. And Oslo?")]) if step.number == 2 else None

    bench = Bench()
    model = on(wire, [], *bench.tools).config.model
    agent = Agent(Model(model.name, via=line()), bench.tools, before_step=hook)
    events, run = read(agent, "sync")
    assert [event.type for event in events].count("history_replaced") == 1
    assert run.messages[0] == user("Rome is sunny. And Oslo?")
    assert len(run.messages) == 4
    assert penstock.check(run.messages) == []
    assert run.output == "All sunny."


@sync_and_async
def test_sync_equals_async_with_hooks(mode: str) -> None:
    def hook(step: Step) -> Step:
        return step.replace(tools=["look"], instructions=f"Step {step.number}.")

    def look(city: str) -> str:
        """Look, when the response has ended: so that the order of events does not depend on the time."""
        return f"{city} is sunny"

    def events(mode: str, hook: Hook) -> list[StreamEvent]:
        return timeless(read(agent_on(line(), look, before_step=hook), mode)[0])

    assert events(mode, hook) == events("sync", as_async(hook))


@sync_and_async
def test_a_tool_that_a_step_does_not_have_does_not_run(mode: str) -> None:
    bench = Bench()
    agent = made(
        [Reply(call("write", {"text": "x"})), "Done."],
        *bench.tools,
        before_step=lambda step: step.replace(tools=["look"]),
    )
    events, run = read(agent, mode)
    assert not bench.ran
    assert "write" in run.messages[2].results[0].text
    end_of(events)


@sync_and_async
def test_a_hook_may_bring_a_tool_of_its_own(mode: str) -> None:
    def extra(city: str) -> str:
        """Something else."""
        return f"{city} is far"

    agent = made(
        [Reply(call("extra", {"city": "Rome"})), "Done."],
        before_step=lambda step: step.replace(tools=[*step.tools, extra]),
    )
    _, run = read(agent, mode)
    assert run.messages[2].results[0].text == "Rome is far"


@sync_and_async
def test_several_hooks_get_the_steps_of_those_before(mode: str) -> None:
    async def shout(step: Step) -> Step:
        return step.replace(instructions=step.instructions + "!")

    def twice(step: Step) -> Step:
        return step.replace(instructions=step.instructions * 2)

    script = Scripted(["Hi."])
    read(agent_on(script, instructions="Hm", before_step=[shout, twice, shout]), mode)
    assert script.requests[0].body["messages"][0]["content"] == "Hm!Hm!!"


# -- hooks that fail ---------------------------------------------------------------------------------------------------


def raises(step: Step) -> Step:
    raise ValueError("no luck")


class BrokenError(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no text")


def raises_broken(step: Step) -> Step:
    raise BrokenError


class Broken:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no text")


BAD: list[tuple[Hook, str]] = [
    (raises_broken, "before_step raised BrokenError: <BrokenError whose __str__ raised ValueError>"),
    (lambda step: Broken(), "or None, not a Broken"),
    (raises, "before_step raised ValueError: no luck; no request was sent for this step"),
    (lambda step: "nonsense", "before_step must return the step, a changed copy of it .*, or None, not a str"),
    (lambda step: {"messages": []}, "before_step must return the step"),
    (lambda step: step.replace(messages=[]), "a step needs messages"),
    (lambda step: step.replace(tools=["nothing"]), "the agent has no tool 'nothing'"),
    (lambda step: step.replace(tools="look"), "must be a list of tools or names, not a str"),
    (lambda step: step.replace(model="small"), "the agent has no model 'small': add it"),
    (lambda step: step.replace(model=7), "must be a Model, or the name of one, not an int"),
    (lambda step: step.replace(temprature=1), "did you mean 'temperature'"),
    (lambda step: step.replace(temperature="hot"), "temperature must be a number"),
    (lambda step: step.replace(extra={"x": object()}), "options that cannot be written as JSON"),
    (lambda step: step.replace(instructions=5), "a step whose `instructions` is an int: use step.replace"),
    (lambda step: step.stop(5), "why must be a string, not an int"),
    (lambda step: step.replace(fallbacks="openai:m"), "must be a list of models, not a str"),
    (lambda step: step.replace(temperature=float("nan")), "temperature must be a finite number"),
    (lambda step: step.replace(extra="x"), "extra must be a dict"),
    (lambda step: step.add_usage(penstock.Usage(-1, 0)), "takes the usage of a response"),
    (lambda step: step.replace_history([user("Go."), assistant("Gone.")]), "ends with a response: add what to answer"),
    (lambda step: step.replace_history([{"role": "system", "content": "Be brief."}]), "ends with instructions: add"),
    (lambda step: msgspec.structs.replace(step, options=None), "a step whose `options` is None"),
    (lambda step: msgspec.structs.replace(step, history=(1, 2)), "an item of another type in its `history`"),
    (lambda step: msgspec.structs.replace(step, tools=("look",)), "an item of another type in its `tools`"),
    (lambda step: step.replace_history([user("Go."), assistant(penstock.ToolCall("c", "look", {}))]), "keep each call"),
]  # fmt: skip


@sync_and_async
def test_the_message_of_what_a_hook_raised_is_cut(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jsontext.error_text.MAX_MESSAGE", 6)
    _, run = read(agent_on(line(), before_step=raises), mode)
    assert str(run.error) == "before_step raised ValueError: no luc; no request was sent for this step"


@sync_and_async
@pytest.mark.parametrize(("hook", "message"), BAD)
def test_a_hook_that_raises_or_returns_nonsense_ends_the_run_with_a_clear_error(
    mode: str, hook: Hook, message: str
) -> None:
    script = line()
    late: Hook = lambda step: hook(step) if step.number == 2 else None  # noqa: E731
    events, run = read(agent_on(script, *Bench().tools, before_step=late), mode)
    done = end_of(events)
    assert done.reason == "error"
    assert isinstance(run.error, HookError)
    with pytest.raises(HookError, match=message):
        raise run.error
    assert any(isinstance(event, Error) and event.code == "HookError" for event in events)
    assert len(script.requests) == 1
    assert penstock.check(list(done.messages)) == []


@sync_and_async
def test_a_hook_that_fails_at_the_first_step_raises_from_run(mode: str) -> None:
    with pytest.raises(HookError, match="no luck"):
        run_of(agent_on(line(), before_step=raises), mode, "Go.")


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_hangs_is_not_waited_for(mode: str, is_async: bool) -> None:
    is_over = threading.Event()

    async def forever(step: Step) -> None:
        await asyncio.sleep(3600)

    def blocked(step: Step) -> None:
        is_over.wait(60)

    agent = agent_on(line(), before_step=forever if is_async else blocked, limits=Limits(hook_seconds=0.05))
    events, run = read(agent, mode)
    is_over.set()
    assert end_of(events).reason == "error"
    assert isinstance(run.error, HookError)
    assert "took longer than 0.05 seconds; make it faster, or set Limits(hook_seconds=…)" in str(run.error)


@sync_and_async
def test_a_run_can_be_cancelled_while_a_hook_decides(mode: str) -> None:
    script, begun = line(), threading.Event()

    async def forever(step: Step) -> None:
        begun.set()
        await asyncio.sleep(3600)

    agent = agent_on(script, before_step=forever)
    run: Any = None

    def cancel() -> None:
        begun.wait(5)
        run.cancel("enough")

    def start(prefix: str) -> Any:
        nonlocal run
        run = getattr(agent, f"{prefix}stream")("Go.")
        threading.Thread(target=cancel, daemon=True).start()
        return run

    events, _ = drive(start, mode)
    assert [event.type for event in events] == ["done"]
    assert end_of(events).reason == "cancelled"
    assert script.requests == []


def test_wrong_hooks_and_models_are_refused_at_once() -> None:
    for options, message in [
        ({"before_step": 5}, "before_step must be a function that takes a Step, or a list"),
        ({"before_step": ["x"]}, "before_step must be a function that takes a Step"),
        ({"models": "openai:gpt-5"}, "models must be a dict of models by name"),
        ({"instructions": 5}, "instructions must be a string, or a function that takes a Context"),
        ({"limits": Limits(hook_seconds=1)}, ""),
    ]:
        settings: AgentOptions = options  # type: ignore[assignment]
        if not message:
            made(["Hi."], **settings)
            continue
        with pytest.raises(UsageError, match=message):
            made(["Hi."], **settings)


# -- logs --------------------------------------------------------------------------------------------------------------


def test_with_a_log_models_and_tools_are_those_of_the_agent() -> None:
    def extra() -> str:
        """Something else."""
        return ""

    other = Model("openai-compatible:other", via=Scripted(["Hi."]))
    small = Model("openai-compatible:small", via=Scripted(always("Small.")))
    wrong: list[tuple[Hook, str]] = [
        (lambda step: step.replace(tools=[extra]), "chose the tool 'extra', which the agent does not have"),
        (lambda step: step.replace(model=other), "add it to the agent, as in Agent"),
        (lambda step: step.replace(fallbacks=[other]), "add it to the agent, as in Agent"),
    ]
    for hook, message in wrong:
        agent = agent_on(line(), before_step=hook, name="a")
        with pytest.raises(HookError, match=message):
            agent.run("Go.", log=MemoryStore())
    for chosen in ("small", small):
        choose: Hook = partial(Step.replace, model=chosen)
        named = agent_on(line(), before_step=choose, name="a", models={"small": small})
        with named.stream("Go.", log=MemoryStore()) as run:
            starts = [event for event in run if isinstance(event, StepStart)]
        assert (run.output, starts[0].changes.model) == ("Small.", "small")


@sync_and_async
def test_a_step_that_is_asked_for_again_uses_what_was_decided(mode: str, tmp_path: Path) -> None:
    """The process ends after the second `step_start`; in the next one, the hook is not called for this step."""
    clock, calls = FakeClock(), list[int]()
    store = SQLiteStore(tmp_path / "runs.db", lease=30.0, clock=clock)

    def hook(step: Step) -> Step:
        calls.append(step.number)
        return step.replace(instructions=f"Decided {len(calls)}.")

    def start(script: Scripted) -> Callable[[str], Any]:
        agent = agent_on(script, *Bench().tools, before_step=hook, name="a")
        return lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r")

    with crash_at("before_request", number=2), pytest.raises(Crashed):
        drive(start(line()), mode)
    clock.advance(60)
    script = Scripted([Reply(call("look", {"city": "Oslo"})), "All sunny."])
    events, run = drive(start(script), mode)
    assert run.output == "All sunny."
    assert calls == [1, 2, 3]
    contents = [request.body["messages"][0]["content"] for request in script.requests]
    assert contents == ["Decided 2.", "Decided 3."]
    assert sum(isinstance(event, StepStart) for event in events) == 3


@sync_and_async
def test_a_history_that_grew_after_tools_is_rebuilt_from_the_log(mode: str) -> None:
    store = MemoryStore()

    def hook(step: Step) -> Step | None:
        return step.replace_history([*step.messages, user("Hurry.")]) if step.number == 2 else None

    script = Scripted([Reply(call("look", {"city": "Oslo"})), "Sunny."])
    agent = agent_on(script, *Bench().tools, before_step=hook, name="a")
    _, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode)
    assert user("Hurry.") in run.messages
    assert rebuild([event for _, _, event in read_log(store, "r")], {}).state.messages == list(run.messages)


# -- settings of a run, and instructions -------------------------------------------------------------------------------


@sync_and_async
def test_settings_of_a_run_replace_those_of_the_agent(mode: str) -> None:
    own, other = Scripted(["Own."]), Scripted(['{"city": "Rome"}'])
    agent = agent_on(own, *Bench().tools, instructions="Own.", temperature=0.1)
    model = Model("openai-compatible:other", via=other)
    settings: dict[str, Any] = {
        "model": model, "tools": [], "instructions": "Other.", "temperature": 0.9, "output": dict[str, str],
        "before_step": lambda step: step.replace(seed=5), "limits": Limits(steps=1),
    }  # fmt: skip
    result = agent.run("Go.", **settings) if mode == "sync" else asyncio.run(agent.arun("Go.", **settings))
    assert result.output == {"city": "Rome"}
    [request] = other.requests
    assert request.tools == []
    assert request.body["messages"][0]["content"].startswith("Other.")
    assert (request.body["temperature"], request.body["seed"]) == (0.9, 5)
    assert agent.run("Go.").output == "Own."
    assert own.requests[0].body["temperature"] == 0.1


@sync_and_async
def test_a_stored_run_takes_the_settings_that_it_was_started_with(mode: str) -> None:
    paid = list[int]()

    @penstock.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    other = Scripted([Reply(call("pay", {"amount": 5}, id="c")), '{"paid": 5}'])
    settings: dict[str, Any] = {
        "model": Model("openai-compatible:other", via=other), "tools": [pay], "instructions": "Other.", "seed": 5,
        "output": dict[str, int], "before_step": lambda step: step.replace(temperature=0.5),
    }  # fmt: skip
    agent = agent_on(Scripted([]), instructions="Own.")
    _, paused = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **settings), mode)
    stored = paused.dump(b"secret")

    def again(prefix: str) -> Any:
        return getattr(agent, f"{prefix}resume")(stored, key=b"secret", **settings)

    _, run = drive(again, mode, answer_with(True))
    assert (paid, run.output) == ([5], {"paid": 5})
    request = other.requests[1]
    assert "pay" in [tool.name for tool in request.tools]
    assert request.body["messages"][0]["content"].startswith("Other.")
    assert (request.body["temperature"], request.body["seed"]) == (0.5, 5)


def test_a_stored_run_refuses_what_is_not_a_setting() -> None:
    with pytest.raises(UnknownOptionError, match="did you mean 'instructions'"):
        agent_on(line()).resume(b"", instruction="x")  # type: ignore[call-overload]
    with pytest.raises(UnknownOptionError, match="log"):
        agent_on(line()).resume(b"", log=MemoryStore())  # type: ignore[call-overload]


@pytest.mark.parametrize("option", ["model", "tools", "instructions", "output", "temperature", "before_step"])
def test_settings_of_a_run_with_a_log_are_refused(option: str) -> None:
    values = {
        "model": "openai:m",
        "tools": [],
        "instructions": "x",
        "output": dict,
        "temperature": 1,
        "before_step": None,
    }
    agent = agent_on(line(), name="a")
    with pytest.raises(UsageError, match=f"{option}= cannot be combined with log="):
        agent.stream("Go.", log=MemoryStore(), **{option: values[option]})  # type: ignore[call-overload]


def test_an_unknown_setting_of_a_run_is_refused() -> None:
    with pytest.raises(UnknownOptionError, match="did you mean 'instructions'"):
        agent_on(line()).stream("Go.", instruction="x")  # type: ignore[call-overload]


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_instructions_may_be_a_function_of_the_context(mode: str, is_async: bool) -> None:
    def plain(context: Context[str]) -> str:
        return f"{context.deps} {context.step}"

    async def awaited(context: Context[str]) -> str:
        return plain(context)

    script = line()
    agent = agent_on(script, *Bench().tools, instructions=awaited if is_async else plain)
    if mode == "sync":
        agent.run("Go.", deps="Ada")
    else:
        asyncio.run(agent.arun("Go.", deps="Ada"))
    assert [request.body["messages"][0]["content"] for request in script.requests] == ["Ada 1", "Ada 2", "Ada 3"]


@sync_and_async
def test_instructions_that_are_not_a_string_are_an_error(mode: str) -> None:
    wrong: Any = lambda context: 5  # noqa: E731
    with pytest.raises(HookError, match="the function instructions must return a string, not an int"):
        run_of(agent_on(line(), instructions=wrong), mode, "Go.")


# -- fallback models ---------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("first", [Status(401), Status(400), Reply(say("Let me"), Drop())], ids=str)
def test_another_model_is_asked_before_the_first_chunk_and_after_it(mode: str, first: Any) -> None:
    spare = Model("anthropic:spare", via=Scripted(["Here."]))
    agent = made([first], before_step=penstock.hooks.fallback(Model("gemini:no", via=Scripted([Status(403)])), spare))
    events, run = read(agent, mode)
    retries = [event for event in events if isinstance(event, Retry)]
    assert [event.model for event in retries] == ["gemini:no", "anthropic:spare"]
    assert (run.output, end_of(events).reason, run.error) == ("Here.", "answered", None)
    assert run.messages[-1].text == "Here."


@sync_and_async
@pytest.mark.parametrize(
    ("cut", "problem"),
    [
        (slice(2, None), "the result '.*' has no call before it"),
        (slice(0, 2), "the call '.*' has no result after it"),
    ],
)
def test_trimming_that_separates_a_call_from_its_result_is_an_error_of_the_hook(
    mode: str, cut: slice, problem: str
) -> None:
    """Else most providers refuse the request, in words of their own."""

    def trim(step: Step) -> Step | None:
        return step.replace(messages=step.messages[cut]) if step.number == 2 else None

    _, run = drive(streaming(agent_on(line(), *Bench().tools, before_step=trim)), mode)
    assert run.finish_reason == "error"
    assert isinstance(run.error, HookError)
    assert re.search(f"step.replace: {problem}; keep each call with its result, or use repair", str(run.error))


@every_wire
def test_a_hook_may_add_a_message_and_repair_what_it_trimmed(wire: str) -> None:
    def remind(step: Step) -> Step:
        return step.replace(messages=[*penstock.repair(step.messages[-2:]), user("Be brief.")])

    agent = agent_on(line(), *Bench().tools, before_step=remind).with_model(model_on(wire, via=line()))
    assert run_of(agent, "sync", "Go.").output == "All sunny."


@sync_and_async
def test_another_model_is_asked_if_there_is_no_key(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    spare = Model("openai-compatible:m", via=Scripted(["Here."]))
    agent = Agent("mistral:m", before_step=penstock.hooks.fallback("mistral:n", spare))
    events, run = drive(streaming(agent), mode)
    assert [event.model for event in events if isinstance(event, Retry)] == ["mistral:n", "openai-compatible:m"]
    assert (run.output, run.error) == ("Here.", None)
    _, run = drive(streaming(Agent("mistral:m", before_step=penstock.hooks.fallback("mistral:n"))), mode)
    assert (run.finish_reason, type(run.error)) == ("error", MissingKeyError)


@sync_and_async
def test_if_all_models_fail_the_last_error_counts(mode: str) -> None:
    spare = Model("anthropic:spare", via=Scripted([Status(403)]))
    events, run = read(made([Status(401)], before_step=penstock.hooks.fallback(spare)), mode)
    assert end_of(events).reason == "error"
    assert run.error.status == 403


@pytest.mark.parametrize("mode", MODES)
def test_a_hook_that_stops_ends_the_run_as_stopped(mode: str) -> None:
    events, run = read(agent_on(line(), *Bench().tools, before_step=penstock.hooks.stop_after(tool="look")), mode)
    done = end_of(events)
    assert (done.reason, done.why) == ("stopped", "the tool look has returned")
    assert isinstance(events[-1], Done)
    assert not any(isinstance(event, HistoryReplaced) for event in events)
    assert run.finish_reason == "stopped"


@sync_and_async
def test_a_history_that_is_replaced_in_the_step_that_stops_stays_replaced(mode: str) -> None:
    store, short = MemoryStore(), user("Short.")

    def hook(step: Step) -> Step | None:
        return step.replace_history([short]).stop("enough") if step.number == 2 else None

    agent = agent_on(line(), *Bench().tools, before_step=hook, name="a")
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode)
    done = end_of(events)
    assert (done.reason, done.messages, list(run.messages)) == ("stopped", (short,), [short])
    assert [type(event) for event in events[-2:]] == [HistoryReplaced, Done]
    assert rebuild([event for _, _, event in read_log(store, "r")], {}).state.messages == [short]
