"""What a run promises to whoever trusts it: approvals, limits, endings, and words that are true."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from enum import Enum
from typing import Any

import pytest

from penstock.agent import Agent, RunResult
from penstock.commands import Start
from penstock.errors import ArgumentsError, AuthenticationError, BadRequestError, MissingKeyError, UsageError
from penstock.events import (
    Error,
    Finish,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.execution import ToolPolicy
from penstock.happenings import (
    ApprovalRequest,
    Done,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolProgress,
    ToolStart,
    decode,
    encode,
)
from penstock.limits import Limits
from penstock.messages import assistant, user
from penstock.model import Model
from penstock.run import Run
from penstock.run_view import MAX_WAIT
from penstock.testing import Hang, Loopback, Reply, Scripted, Status, call, drop, fail, say, wait
from penstock.tool_outcome import Outcome
from penstock.tools import Tool, as_tool, tool
from penstock.transport.policy import Retries, Timeouts
from tests.growth import assert_linear
from tests.test_agent import COLOURS, NAMES, Bench, check_history, drive, resuming, script, streaming
from tests.test_agent_hard import LOOK, SOON, Machine, chat, check_ends, end_of, events_of, made, results


def on(wire: str, replies: Any, *tools: Any, **options: Any) -> Agent:
    return Agent(Model(NAMES[wire], via=Scripted(replies)), tools, **options)


def run_of(agent: Agent, colour: str, *given: Any) -> RunResult:
    return agent.run(*given) if colour == "sync" else asyncio.run(agent.arun(*given))


def answer_with(approved: bool, *rest: Any) -> Callable[[Any, StreamEvent], None]:
    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.decide(event.call_id, approved, *rest)

    return on_event


def texts_of(messages: Any) -> list[str]:
    return [result.text for message in messages for result in message.results]


# -- who is asked, and about what --------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_a_predicate_sees_what_the_tool_would_get(colour: str) -> None:
    ran: list[Any] = []

    class Size(Enum):
        SMALL = "small"
        LARGE = "large"

    @tool(approval=lambda given: given.get("force") is True or given["size"] is Size.LARGE)
    def wipe(path: str, force: bool = False, size: Size = Size.SMALL) -> str:
        """Wipe."""
        ran.append((path, force, size))
        return "wiped"

    @tool(approval=lambda given: given.get("amount", 0) == 500)
    def pay(amount: int = 500) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    asked = [
        call("wipe", {"path": "/", "force": "true"}), call("wipe", {"path": "/", "size": "large"}),
        call("pay", {}), call("pay", {"amount": "500"}), call("pay", {"amount": None}),
    ]  # fmt: skip
    free = [call("wipe", {"path": "a", "force": "no"}), call("pay", {"amount": 5})]
    events = events_of(made([Reply(*asked, *free)], wipe, pay), colour)
    assert sum(isinstance(event, ApprovalRequest) for event in events) == len(asked)
    assert sorted(map(str, ran)) == sorted(["('a', False, <Size.SMALL: 'small'>)", "5"])


def test_a_predicate_knows_the_defaults_of_tools_that_have_a_schema() -> None:
    def pay(amount: int = 500) -> str:
        return f"paid {amount}"

    plain = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    told = {"type": "object", "properties": {"amount": {"type": "integer", "default": 500}}}
    for schema, function in ((plain, pay), (told, None)):
        payer = Tool.from_schema("pay", "Pay.", schema, function, approval=lambda given: given.get("amount") == 500)
        done = end_of(events_of(made([Reply(call("pay", {}))], payer), "sync"))
        assert (done.reason, done.why) == ("paused", "a call waits for approval")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("approval", [True, lambda given: True])
def test_nobody_is_asked_about_arguments_that_do_not_fit(approval: Any, colour: str) -> None:
    @tool(approval=approval)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    events = events_of(made([Reply(call("pay", {"amount": "much"})), Reply("Done.")], pay), colour)
    done = end_of(events)
    assert done.reason == "answered"
    assert "amount" in results(done)[0]
    assert not any(isinstance(event, ApprovalRequest) for event in events)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_predicate_is_asked_once_and_changes_nothing(colour: str) -> None:
    asked: list[Any] = []
    ran: list[Any] = []

    def is_large(given: dict[str, Any]) -> bool:
        asked.append(dict(given))
        given["items"].append("more")
        given["other"].append("more")
        return True

    @tool(approval=is_large, read_only=True)
    def take(items: Any, other: list[str] = ["one"]) -> str:  # noqa: B006  # it must not be changed, that is the point
        """Take."""
        ran.append((items, list(other)))
        return "taken"

    agent = on("anthropic", [Reply(call("take", {"items": ["a"]})), Reply("Done.")], take)
    _, running = drive(streaming(agent), colour, answer_with(True))
    assert len(asked) == 1
    assert ran == [(["a"], ["one"])]
    assert running.messages[1].tool_calls[0].arguments == {"items": ["a"]}


@pytest.mark.parametrize("colour", COLOURS)
def test_what_a_callback_is_given_is_its_own(colour: str) -> None:
    def on_tool_start(id: str, name: str, arguments: dict[str, Any]) -> None:
        arguments["text"] = "other"

    bench = Bench()
    done = end_of(
        events_of(
            made([Reply(call("write", {"text": "a"})), Reply("Done.")], *bench.tools, on_tool_start=on_tool_start),
            colour,
        )
    )
    assert done.messages[1].tool_calls[0].arguments == {"text": "a"}


async def _later(given: dict[str, Any]) -> bool:
    return True


class _Later:
    async def __call__(self, given: dict[str, Any]) -> bool:
        return True


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "5"}, {"timeout": True}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"timeout": 0},
        {"retries": "2"}, {"retries": 1.5}, {"retries": -1}, {"retries": True}, {"name": 5}, {"name": None},
        {"description": 5}, {"approval": "yes"}, {"approval": None}, {"approval": _later}, {"approval": _Later()},
        {"parallel": "no"}, {"read_only": 1}, {"deferred": "no"}, {"start": "now"}, {"strict": "yes"},
    ],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_an_option_that_makes_no_sense_is_refused_where_the_tool_is_made(options: Any) -> None:
    def look() -> str:
        """Look."""
        return ""

    [name] = options
    with pytest.raises(UsageError, match=f"{name} is "):
        tool(**options)(look)
    with pytest.raises(UsageError, match=f"{name} is "):
        as_tool({"name": "look", "description": "Look.", "input_schema": {"type": "object"}}, look, **options)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_no_is_not_the_tools_failure(colour: str) -> None:
    @tool(approval=True, retries=0)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    replies = [*(Reply(call("pay", {"amount": at})) for at in range(3)), Reply("Done.")]
    events, running = drive(streaming(made(replies, pay)), colour, answer_with(False))
    assert running.finish_reason == "answered"
    assert [event.ending for event in events if isinstance(event, ToolEnd)] == ["declined"] * 3
    for event in events:
        assert decode(encode(event)) == event


@pytest.mark.parametrize("colour", COLOURS)
def test_the_model_is_told_that_the_arguments_were_changed(colour: str) -> None:
    @tool(approval=True)
    def pay(amount: int, to: str = "Zoë") -> str:
        """Pay."""
        return f"paid {amount} to {to}"

    for given, told in (({"amount": 5, "to": "Zoë"}, "The user changed"), ({"amount": 500}, "paid 500")):
        agent = made([Reply(call("pay", {"amount": 500})), Reply("Done.")], pay)
        _, running = drive(streaming(agent), colour, answer_with(True, given))
        [text] = texts_of(running.messages)
        assert text.startswith(told)
        assert text.endswith(f"paid {given['amount']} to Zoë")
        assert (json.dumps(given, ensure_ascii=False) in text) is (told != "paid 500")


def test_a_person_can_only_give_arguments_that_json_can_hold() -> None:
    @tool(approval=True)
    def pay(amount: Any) -> str:
        """Pay."""
        return "paid"

    with made([Reply(call("pay", {"amount": 1})), Reply("Done.")], pay).stream("Go.") as running:
        for event in running:
            if isinstance(event, ApprovalRequest):
                for wrong in ([5], {"amount": object()}):
                    with pytest.raises(UsageError, match="JSON"):
                        running.decide(event.call_id, True, wrong)  # type: ignore[arg-type]
                running.decide(event.call_id, True)
    assert running.finish_reason == "answered"


@pytest.mark.parametrize("colour", COLOURS)
def test_a_resumed_run_says_if_a_tool_is_there_no_more(colour: str) -> None:
    bench = Bench()

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    _, running = drive(streaming(made([Reply(call("pay"))], pay)), colour)
    agent = made([Reply("Done.")], *bench.tools)
    _, resumed = drive(resuming(agent, running.dump()), colour, answer_with(True))
    assert resumed.finish_reason == "answered"
    assert texts_of(resumed.messages) == ["There is no tool called 'pay'. There are: look, write, broken."]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_run_to_the_end_pauses_where_nobody_can_decide(colour: str) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = made([Reply(call("pay"))], pay, approvals="wait", limits=Limits(seconds=SOON))
    assert run_of(agent, colour, "Go.").reason == "paused"


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("start", ["call", "closed", "turn"])
def test_the_limit_of_calls_holds_however_they_start(start: Any, is_parallel: bool, colour: str) -> None:
    ran: list[int] = []

    @tool(read_only=True, start=start, parallel=is_parallel)
    def one(number: int) -> str:
        """One."""
        ran.append(number)
        return "one"

    replies = [Reply(*(call("one", {"number": at}) for at in range(5)), wait(0.05))]
    done = end_of(events_of(on("anthropic", replies, one, limits=Limits(calls=2)), colour))
    assert done.reason == "limit"
    assert len(ran) <= 2


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("start", ["call", "closed"])
def test_the_same_call_does_not_start_early_more_often_than_it_may(start: Any, colour: str) -> None:
    ran: list[str] = []

    @tool(read_only=True, start=start)
    def one(text: str, number: float = 1) -> str:
        """One."""
        ran.append(text)
        return "one"

    same = [call("one", '{"text": "a", "number": 1}'), call("one", '{ "number":1,"text":"a"}')]
    other = [call("one", '{"text": "a", "number": 1.0}'), call("one", '{"text": "a", "number": 2}')]
    done = end_of(events_of(on("anthropic", [Reply(*same, *other, wait(0.05))], one, limits=Limits(repeats=1)), colour))
    assert (done.reason, "came 2 times" in done.why) == ("limit", True)
    assert len(ran) <= 3
    replies = [Reply(*other), Reply("Done.")]
    assert end_of(events_of(on("anthropic", replies, one, limits=Limits(repeats=1)), colour)).reason == "answered"


def test_repeats_count_over_answers_however_the_call_is_written() -> None:
    ways = ['{"text":"a"}', '{ "text" : "a" }', '{"text":"\\u0061"}']
    replies = [Reply(call("write", way)) for way in ways]
    bench = Bench()
    done = end_of(events_of(made(replies, *bench.tools, limits=Limits(repeats=2)), "sync"))
    assert (done.reason, bench.ran["write a"]) == ("limit", 2)


def test_no_call_starts_early_when_the_tokens_are_known_to_be_used_up() -> None:
    machine = Machine(look=LOOK)
    machine.run = Run([user("Go.")], {"look": LOOK}, Limits(tokens=100))
    machine.run.begin()
    machine.feed(ToolCallClosed(0, "a", "look", {}), Usage(90, 20), ToolCallClosed(1, "b", "look", {"city": "Rome"}))
    assert [start.call_id for start in machine.starts] == ["a"]


@pytest.mark.parametrize("colour", COLOURS)
def test_tools_that_do_not_exist_are_called_only_so_often(colour: str) -> None:
    line = Scripted(Reply(call(f"nope{at}", {"at": at})) for at in range(60))
    done = end_of(events_of(Agent(Model("openai-compatible:m", via=line)), colour))
    assert (done.reason, len(line.requests)) == ("limit", 4)
    assert "tools that do not exist" in done.why
    mixed = [Reply(call("write", {"text": str(at)}) if at % 2 else call("nope")) for at in range(12)]
    assert end_of(events_of(made([*mixed, Reply("Done.")], *Bench().tools), colour)).reason == "answered"


@pytest.mark.parametrize(
    "wrong",
    [{"steps": -1}, {"steps": "3"}, {"steps": 1.5}, {"steps": True}, {"calls": -1}, {"tokens": "9"}, {"repeats": 0.5},
     {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": -1}, {"seconds": "5"}],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(wrong: Any) -> None:
    [name] = wrong
    with pytest.raises(UsageError, match=f"Limits: {name} is "):
        Limits(**wrong)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("limits", [Limits(steps=0), Limits(seconds=0)], ids=["steps", "seconds"])
def test_with_nothing_to_use_the_model_is_not_asked(limits: Limits, colour: str) -> None:
    line = Scripted([Reply("Hi.")])
    [done] = events_of(Agent(Model("openai-compatible:m", via=line), limits=limits), colour)
    assert isinstance(done, Done)
    assert (done.reason, len(line.requests), len(done.messages)) == ("limit", 0, 1)


# -- what an agent is made of ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "told"),
    [
        (None, {}, "the model of an agent is None"), (5, {}, "is 5"), ("sim:fast", {"calls": "nope"}, "nope"),
        ("sim:fast", {"calls": "plain"}, "plain"), ("sim:fast", {"rescue": ["nope"]}, "nope"),
        ("sim:fast", {"rescue": "nope"}, "nope"), ("sim:fast", {"on_tool_error": print}, "on_tool_error"),
        ("sim:fast", {"on_text": "print"}, "on_text is"), ("sim:fast", {"temprature": 1}, "temprature"),
        ("sim:fast", {"approvals": "never"}, "approvals is"), ("sim:fast", {"limits": 5}, "limits is"),
        ("sim:fast", {"timeouts": 5}, "timeouts is"), ("sim:fast", {"instructions": 5}, "instructions is"),
        ("sim:fast", {"run_repaired": ["cut"]}, "run_repaired"), ("sim:fast", {"start": "closed"}, "start is"),
    ],
)  # fmt: skip
def test_an_agent_that_could_not_run_is_refused_where_it_is_made(model: Any, options: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Agent(model, **options)


def test_what_a_model_takes_with_a_request_an_agent_takes_too() -> None:
    line = Scripted([Reply("Hi.")])
    agent = Agent(Model("openai-compatible:m", via=line), Bench().tools, temperature=0.5, tool_choice="required",
                  rescue=["hermes"])  # fmt: skip
    assert agent.run("Go.").output == "Hi."
    assert (line.requests[0].body["temperature"], line.requests[0].body["tool_choice"]) == (0.5, "required")


@pytest.mark.parametrize("colour", COLOURS)
def test_an_agent_has_timeouts_and_retries_of_its_own(colour: str) -> None:
    with Loopback([Hang(), Status(503), Hang(), Status(503)]) as server:
        model = Model("openai-compatible:m", server.base_url("openai-chat"), "-")
        patient = Timeouts(first_event=0.2)
        began = time.monotonic()
        done = end_of(events_of(Agent(model, timeouts=patient, retries=Retries(attempts=0)), colour))
        assert (done.reason, time.monotonic() - began < SOON) == ("error", True)
        done = end_of(events_of(Agent(model, timeouts=patient, retries=Retries(attempts=0)), colour))
        assert "503" in done.why
        assert len(server.requests) == 2
    assert Agent(model).settings.model is model


# -- how a run ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_after_tools_had_effects_a_run_comes_out_with_its_error_and_its_history(colour: str) -> None:
    bench = Bench()
    result = run_of(made([Reply(call("write", {"text": "a"})), Status(400)], *bench.tools), colour, "Go.")
    assert isinstance(result.error, BadRequestError)
    assert (result.reason, str(result.error)) == ("error", result.why)
    assert texts_of(result.messages) == ["written"]
    with pytest.raises(BadRequestError):
        run_of(made([Status(400)]), colour, "Go.", [user("Hm?"), assistant("Well."), user("So?"), assistant("Yes.")])
    assert run_of(made([Reply("Hi.")]), colour, "Go.").error is None


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("reply", [Reply("x", drop()), Reply(say("x"), fail("overloaded", "Too much.")), Status(400)])
def test_on_error_is_called_when_there_is_no_whole_answer(reply: Any, colour: str) -> None:
    told: list[str] = []
    done = end_of(events_of(made([reply], on_error=told.append), colour))
    assert done.reason in ("cut", "error")
    assert told == [done.why]
    assert told[0]


def test_on_error_is_not_called_for_other_ends() -> None:
    told: list[str] = []
    end_of(events_of(made([Reply("Hi.")], on_error=told.append), "sync"))
    end_of(events_of(made([Reply("Hi.")], on_error=told.append, limits=Limits(steps=0)), "sync"))
    assert not told


def check_pairs(events: list[StreamEvent]) -> None:
    """What begins ends, once; and every call that has a result was told to have ended, with that result."""
    check_ends(events)
    begun = [event.step for event in events if isinstance(event, StepStart)]
    assert [event.step for event in events if isinstance(event, StepEnd)] == begun
    done = events[-1]
    assert isinstance(done, Done)
    ends = {event.result.call_id: event.result for event in events if isinstance(event, ToolEnd)}
    for message in done.messages:
        for result in message.results:
            assert ends[result.call_id] == result


def end_when_cancelled(wire: str, colour: str, stop: int) -> str:
    """How a run ended that was to be cancelled at the event of that number; what it told was told right."""
    count, told = iter(range(1000)), Counter[str]()

    def cancel(running: Any, event: StreamEvent) -> None:
        if next(count) == stop:
            running.cancel()

    agent = on(
        wire, script(), *Bench().tools, on_tool_start=lambda id, *_: told.update([f"start {id}"]),
        on_tool_end=lambda id, _: told.update([f"end {id}"]),
    )  # fmt: skip
    events, running = drive(streaming(agent), colour, cancel)
    check_pairs(events)
    check_history(running.messages)
    starts = [name for name in told if name.startswith("start ")]
    assert all(told[name.replace("start", "end")] == told[name] for name in starts)
    return str(running.finish_reason)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("wire", NAMES)
def test_whatever_begins_is_told_to_end_when_a_run_is_cancelled_anywhere(wire: str, colour: str) -> None:
    ends = (end_when_cancelled(wire, colour, stop) for stop in range(200))
    assert "answered" in ends  # when it was too late to cancel it


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    "replies",
    [
        [Reply(call("look", {"city": "Rome"}), call("write", {"text": "a"})), Status(400)],
        [Reply(call("look", {"city": "Rome"}), call("write", {"text": "a"}), drop())],
        [Reply(call("look", {"city": "Rome"}), call("write", {"text": "a"}), fail("overloaded", "Too much."))],
        [Reply(call("look", {"city": "Rome"}), call("write", {"text": "a"}), finish="content_filter")],
        [Reply(call("look", {"city": "Rome"}), call("write", '{"text": '), finish="length"), Reply("Done.")],
        [Reply(call("look", {"city": "Rome"}), call("nope"), call("broken"))] * 5,
        [Reply(*[call("write", {"text": "a"})] * 12)],
    ],
    ids=["refused", "dropped", "failed", "filtered", "cut", "worn out", "repeated"],
)  # fmt: skip
def test_whatever_begins_is_told_to_end_however_a_run_ends(replies: Any, colour: str) -> None:
    for wire in ("openai-chat", "anthropic"):
        events = events_of(on(wire, replies, *Bench().tools), colour)
        check_pairs(events)
        end_of(events)


def test_a_call_without_an_end_is_told_to_be_cut() -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
    machine.feed(ToolCallStart(1, "d", "look"), Finish("tool_calls"))
    machine.commands += machine.run.ended()
    assert [event.ending for event in machine.told if isinstance(event, ToolEnd)] == ["discarded", "failed", "failed"]
    assert all("the call is cut" in result.text for result in machine.asked[1][-1].results)


# -- words that are true -----------------------------------------------------------------------------------------------


def cancelled(policy: ToolPolicy, *chunks: StreamChunk) -> list[str]:
    machine = Machine(look=policy)
    machine.feed(*chunks)
    machine.commands += machine.run.cancel()
    check_ends(machine.told)
    return [result.text for result in machine.run.messages[-1].results]


CLOSED = (ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
WHOLE = (*CLOSED, ToolCall("c", "look", {}, "{}", sealed_by="call_end"))


def test_what_is_said_of_a_cancelled_call_is_true() -> None:
    started = "Cancelled after it had been started"
    assert cancelled(LOOK, *CLOSED) == [f"{started}: the run was cancelled."]
    assert cancelled(LOOK, *WHOLE) == [f"{started}: the run was cancelled."]
    effect = f"{started}, so it may have had an effect: the run was cancelled."
    assert cancelled(ToolPolicy(start="call"), *WHOLE) == [effect]
    assert cancelled(ToolPolicy(start="call", is_read_only=True), *WHOLE) == [f"{started}: the run was cancelled."]
    assert cancelled(ToolPolicy(), *WHOLE) == ["Not run: the run was cancelled."]
    assert cancelled(ToolPolicy(), *CLOSED[:1]) == ["Not run: the run was cancelled."]


@pytest.mark.parametrize("colour", COLOURS)
def test_of_a_read_only_tool_nobody_says_that_it_may_have_had_an_effect(colour: str) -> None:
    released = threading.Event()

    @tool(read_only=True, timeout=0.1)
    def hang() -> str:
        """Hang."""
        released.wait(SOON)
        return "late"

    done = end_of(events_of(made([Reply(call("hang")), Reply("Done.")], hang), colour))
    released.set()
    assert results(done) == ["The tool took longer than 0.1 seconds and was given up."]


@pytest.mark.parametrize("colour", COLOURS)
def test_what_was_started_for_a_stream_that_broke_is_discarded_for_that(colour: str) -> None:
    events = events_of(made([Reply(call("look", {"city": "Rome"}), drop())], *Bench().tools), colour)
    done = end_of(events)
    discarded, failed = [event.result.text for event in events if isinstance(event, ToolEnd)]
    assert discarded == "Discarded: the call is cut."
    assert failed == results(done)[0]
    assert failed.startswith("Not run: the call is cut")
    assert failed.endswith("What was started before that was known has been discarded.")


def test_while_a_call_is_not_confirmed_the_history_says_how_far_it_is() -> None:
    machine = Machine(look=LOOK)
    machine.feed(*CLOSED)
    assert texts_of(machine.run.history) == ["It was still running when this was written."]
    machine.done(machine.starts[0].key, "early")
    assert texts_of(machine.run.history) == ["It ran, but its call was not confirmed yet when this was written."]


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic", "cohere", "bedrock"])
def test_ids_that_a_provider_repeats_are_told_apart(wire: str, colour: str) -> None:
    names: dict[str, list[str]] = {}

    def told(id: str, *_: Any) -> None:
        names.setdefault("start", []).append(id)

    once = Reply(call("write", {"text": "a"}, id="c1"), call("look", {"city": "Rome"}, id="c2"))
    agent = on(wire, [once, once, Reply("Done.")], *Bench().tools, on_tool_start=told)
    events, running = drive(streaming(agent), colour)
    wanted = {"c1", "c2", "c1_2", "c2_2"}
    for kind in (ToolCallStart, ToolCall):
        assert {event.id for event in events if isinstance(event, kind)} == wanted
    assert {event.call_id for event in events if isinstance(event, ToolStart)} == wanted == set(names["start"])
    assert [call.id for message in running.messages for call in message.tool_calls] == ["c1", "c2", "c1_2", "c2_2"]
    assert Counter(event.result.call_id for event in events if isinstance(event, ToolEnd)) == Counter(wanted)
    check_history(running.messages)
    again = on(wire, [once, Reply("Done.")], *Bench().tools)
    later = run_of(again, colour, "And now?", running.messages)
    assert [call.id for call in later.messages[-3].tool_calls] == ["c1_3", "c2_3"]


def test_a_stored_run_knows_the_ids_that_were_used() -> None:
    machine = Machine(write=ToolPolicy())
    written = ToolCall("c", "write", {}, "{}", sealed_by="call_end")
    machine.feed(written, Finish("tool_calls"))
    machine.commands += machine.run.ended()
    machine.run = Run.load(machine.run.dump(), {"write": ToolPolicy()})
    machine.commands += machine.run.begin()
    machine.feed(written, Finish("tool_calls"))
    machine.commands += machine.run.ended()
    assert [start.call_id for start in machine.starts] == ["c", "c_2"]


# -- damaged calls -----------------------------------------------------------------------------------------------------

DUPLICATED = ['{"city": "Rome"}', '{"city": "Rome"}']
CUMULATIVE = ['{"city"', '{"city": "Ro', '{"city": "Rome"}']


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("wanted", [True, {"duplicated", "cumulative"}, "fault"])
@pytest.mark.parametrize(("pieces", "fault"), [(DUPLICATED, "duplicated"), (CUMULATIVE, "cumulative")])
@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_call_that_came_twice_runs_once_if_that_is_wanted(
    is_read_only: bool, pieces: list[str], fault: str, wanted: Any, colour: str
) -> None:
    ran: list[str] = []
    wanted = fault if wanted == "fault" else wanted
    is_early = is_read_only and pieces is DUPLICATED  # of the others nothing ever closes

    @tool(read_only=is_read_only)
    def look(city: str) -> str:
        """Look."""
        ran.append(city)
        return f"{city} is sunny"

    line = Scripted([chat(*pieces), Reply("Done.")])
    events = events_of(Agent(Model("openai-compatible:m", via=line), [look], run_repaired=wanted), colour)
    done = end_of(events)
    endings = [event.ending for event in events if isinstance(event, ToolEnd)]
    assert endings == (["discarded", "done"] if is_early else ["done"])
    final = [event for event in events if isinstance(event, ToolStart)][-1]
    assert (final.mended, final.is_early, final.arguments) == (fault, False, {"city": "Rome"})
    assert is_early or ran == ["Rome"]
    told = f'The call is {fault}, and its arguments were mended to {{"city": "Rome"}}.\nRome is sunny'
    assert results(done) == [told]
    assert isinstance(done.messages[1].parts[0], ToolCallInvalid)
    assert "Rome is sunny" in json.dumps(line.requests[1].body)
    check_pairs(events)


@pytest.mark.parametrize("wanted", [False, {"cumulative"}])
def test_a_damaged_call_does_not_run_unless_its_fault_is_named(wanted: Any) -> None:
    bench = Bench()
    ready = [as_tool({"name": "look", "input_schema": {"type": "object"}}, lambda **_: bench.ran.update(["look"]))]
    done = end_of(events_of(made([chat(*DUPLICATED), Reply("Done.")], *ready, run_repaired=wanted), "sync"))
    assert results(done)[0].startswith("Not run: the call is duplicated")
    assert not bench.ran


def test_a_cut_call_does_not_run_whatever_is_wanted() -> None:
    run = Run([user("Go.")], {"look": ToolPolicy()}, mended=["cut"])
    run.begin()
    told = [*run.chunk(ToolCallInvalid(0, "c", "look", "{", "cut", repaired={})), *run.chunk(Finish("tool_calls"))]
    assert not any(isinstance(command, Start) for command in [*told, *run.ended()])


@pytest.mark.parametrize("colour", COLOURS)
def test_a_mended_call_needs_approval_too(colour: str) -> None:
    @tool(approval=True)
    def look(city: str) -> str:
        """Look."""
        return city

    agent = made([chat(*DUPLICATED), Reply("Done.")], look, run_repaired=True)
    assert run_of(agent, colour, "Go.").reason == "paused"
    _, running = drive(streaming(made([chat(*DUPLICATED), Reply("Done.")], look, run_repaired=True)), colour,
                       answer_with(True))  # fmt: skip
    assert texts_of(running.messages)[0].endswith("\nRome")


def test_a_call_whose_arguments_change_their_kind_has_changed() -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {"number": 1}))
    machine.feed(ToolCall("c", "look", {"number": True}), Finish("tool_calls"))
    assert [start.arguments["number"] is True for start in machine.starts] == [False, True]
    assert machine.cancelled == ["1.0"]


# -- many calls --------------------------------------------------------------------------------------------------------


def many_calls(count: int, policy: ToolPolicy) -> None:
    """The machine's work for an answer of so many calls."""
    run = Run([user("Go.")], {"look": policy}, Limits(repeats=None))
    due = run.begin()
    for at in range(count):
        arguments = {"at": at}
        due += run.chunk(ToolCallClosed(at, f"c{at}", "look", arguments))
        due += run.chunk(ToolCall(f"c{at}", "look", arguments, sealed_by="call_end", block=at))
    run.chunk(Finish("tool_calls"))
    due += run.ended()
    ended = 0
    while starts := [command for command in due if isinstance(command, Start)]:
        due = []
        for start in starts:
            assert not run.is_waiting
            ended += 1
            due += run.tool_done(start.key, Outcome((Text(0, "ok"),)))
    assert ended == count
    assert run.step == 2


@pytest.mark.parametrize("policy", [LOOK, ToolPolicy(), ToolPolicy(is_parallel=False)], ids=["early", "turn", "alone"])
def test_many_calls_in_one_answer_take_time_in_proportion(policy: ToolPolicy) -> None:
    assert_linear(lambda count: lambda: many_calls(count, policy), 500, 8)


def test_many_approvals_take_time_in_proportion() -> None:
    def work(count: int) -> Callable[[], object]:
        run = Run([user("Go.")], {"pay": ToolPolicy(needs_approval=lambda given: True)}, Limits(repeats=None))
        run.begin()
        for at in range(count):
            run.chunk(ToolCall(f"c{at}", "pay", {"at": at}, sealed_by="call_end", block=at))
        run.chunk(Finish("tool_calls"))
        run.ended()

        def decide() -> None:
            for at in range(count):
                run.decide(f"c{at}", False)
            assert run.step == 2

        return decide

    assert_linear(work, 500, 8)


# -- what tools give ---------------------------------------------------------------------------------------------------


class Rude:
    def __str__(self) -> str:
        raise ValueError("no")


def _odd() -> Iterator[Any]:
    endless: dict[str, Any] = {"name": "me"}
    endless["self"] = endless
    yield from (
        {"half": "\ud800"},
        endless,
        {(1, 2): 3},
        Rude(),
        {"big": 10**40},
        object(),
        "\udfff",
        [Rude(), {"\ud800": 1}],
    )


@pytest.mark.parametrize("colour", COLOURS)
def test_whatever_a_tool_reports_can_be_told(colour: str) -> None:
    @tool
    def odd() -> Iterator[Any]:
        """Report what is no JSON."""
        yield from _odd()
        yield {"half": "\ud800", "self": list(_odd())}

    events = events_of(made([Reply(call("odd")), Reply("Done.")], odd), colour)
    reports = [event for event in events if isinstance(event, ToolProgress)]
    assert len(reports) == len(list(_odd())) + 1
    for event in events:
        told: Any = decode(encode(event))
        assert type(told) is type(event)
    assert json.loads(encode(reports[0]))["data"] == {"half": "\ufffd"}
    assert json.loads(encode(reports[1]))["data"] == {"name": "me", "self": "<this dict again>"}


class Promise:
    """Something to be awaited that is no coroutine."""

    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        return "kept"


@pytest.mark.parametrize("colour", COLOURS)
def test_what_a_tool_gives_is_awaited_or_drained_whatever_kind_the_tool_is(colour: str) -> None:
    def pieces() -> Iterator[str]:
        yield from ["one", "two", "end"]

    @tool
    def promise() -> Awaitable[str]:
        """Give a promise."""
        return Promise()

    @tool
    async def apromise() -> Awaitable[str]:
        """Give a promise, later."""
        return Promise()

    @tool
    def generator() -> Any:
        """Give a generator."""
        return pieces()

    @tool
    async def agenerator() -> Any:
        """Give a generator, later."""
        return pieces()

    tools: list[Tool[..., Any]] = [promise, apromise, generator, agenerator]
    events = events_of(made([Reply(*(call(one.name) for one in tools)), Reply("Done.")], *tools), colour)
    assert results(end_of(events)) == ["kept", "kept", "end", "end"]
    for name in ("generator", "agenerator"):
        reports = [event for event in events if isinstance(event, ToolProgress) and event.name == name]
        assert [event.data for event in reports] == ["one", "two", "end"]


def test_leaving_a_sync_run_waits_for_the_async_tools_that_it_ended() -> None:
    ended = threading.Event()
    began = threading.Event()

    @tool
    async def slow_to_end() -> str:
        """Take a while to end."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(MAX_WAIT / 3)
            ended.set()
        return "late"

    with made([Reply(call("slow_to_end"))], slow_to_end).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolStart):
                assert began.wait(SOON)
                break
    assert ended.is_set()
    assert not any("slow_to_end" in thread.name for thread in threading.enumerate())


def test_without_threads_for_its_tools_a_run_still_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    for parallel in (True, False):

        @tool(parallel=parallel, timeout=5, retries=None)
        def work(at: int) -> str:
            """Work."""
            return "worked"

        def refuse(thread: threading.Thread) -> None:
            if "work" in thread.name:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        replies = [Reply(*(call("work", {"at": at}) for at in range(400))), Reply("Done.")]
        done = end_of(events_of(made(replies, work), "sync"))
        assert done.reason == "answered"
        assert results(done) == ["RuntimeError: can't start new thread"] * 400


def test_without_a_thread_for_the_model_a_run_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    agent = made([Reply("Hi.")])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = end_of(events_of(agent, "sync"))
    assert (done.reason, done.why) == ("error", "can't start new thread")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_model_that_cannot_be_asked_is_told_before_the_end(colour: str) -> None:
    with Loopback([Status(401), Reply(call("look", {"city": "Rome"})), Status(400, "no such field")]) as server:
        model = Model("openai:gpt", server.base_url("openai-responses"), "sk-wrong")
        events, running = drive(streaming(Agent(model, Bench().tools)), colour)
        assert isinstance(running.error, AuthenticationError)
        error, step_end, done = events[-3:]
        assert error == Error(running.error.message, running.error.code or "AuthenticationError")
        assert isinstance(step_end, StepEnd)
        assert isinstance(done, Done)
        assert (done.reason, done.why) == ("error", running.error.message)
        events, running = drive(streaming(Agent(model, Bench().tools)), colour)
    assert isinstance(running.error, BadRequestError)
    assert [event.message for event in events if isinstance(event, Error)] == [running.error.message]


@pytest.mark.parametrize("colour", COLOURS)
def test_an_agent_is_made_without_a_key_and_told_so_when_it_runs(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = Agent("openai:gpt")
    events, running = drive(streaming(agent), colour)
    assert isinstance(running.error, MissingKeyError)
    assert Error(str(running.error), "MissingKeyError") in events
    assert end_of(events).reason == "error"
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        run_of(agent, colour, "Go.")


# -- what waits, for another process -----------------------------------------------------------------------------------


class Till:
    """An agent that pays, if a person says so, and what was paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay somebody."""
            self.paid.append(amount)
            return f"paid {amount}"

        calls = [call("pay", {"amount": amount}, id=f"call_{amount}") for amount in (1, 2)]
        self.agent = on("openai-chat", [Reply(*calls), Reply("Paid.")], pay)


class Answered:
    """A run that is answered as soon as it is entered, before it is read."""

    def __init__(self, running: Any, answer: Callable[[Any], None]) -> None:
        self._running, self._answer = running, answer

    def __enter__(self) -> Any:
        running = self._running.__enter__()
        self._answer(running)
        return running

    def __exit__(self, *given: object) -> None:
        self._running.__exit__(*given)

    async def __aenter__(self) -> Any:
        running = await self._running.__aenter__()
        self._answer(running)
        return running

    async def __aexit__(self, *given: object) -> None:
        await self._running.__aexit__(*given)


def resumed(agent: Agent, stored: bytes, answer: Callable[[Any], None]) -> Callable[[str], Any]:
    return lambda prefix: Answered(resuming(agent, stored)(prefix), answer)


@pytest.mark.parametrize("colour", COLOURS)
def test_the_result_of_a_paused_run_can_be_resumed_and_says_what_waits(colour: str) -> None:
    till = Till()
    paused = run_of(till.agent, colour, "Pay.")
    assert (paused.reason, paused.finish_reason) == ("paused", "paused")
    assert [one.call_id for one in paused.waiting] == ["call_1", "call_2"]

    def answer(running: Any) -> None:
        assert running.waiting == list(paused.waiting)
        for one in running.waiting:
            running.decide(one.call_id, approved=True)

    events, running = drive(resumed(till.agent, paused.state, answer), colour)
    assert (sorted(till.paid), running.output, running.waiting) == ([1, 2], "Paid.", [])
    assert not any(isinstance(event, ApprovalRequest) for event in events)
    assert end_of(events).reason == "answered"


def test_a_run_that_has_ended_has_nothing_to_resume() -> None:
    result = made([Reply("Hi.")]).run("Go.")
    assert (result.finish_reason, result.waiting, result.state) == ("answered", (), b"")


@pytest.mark.parametrize("colour", COLOURS)
def test_of_a_stored_run_only_what_is_undecided_is_asked_again(colour: str) -> None:
    till = Till()
    stored = run_of(till.agent, colour, "Pay.").state

    def answer(running: Any) -> None:
        running.decide("call_1", approved=False)

    events, running = drive(resumed(till.agent, stored, answer), colour)
    assert [event.call_id for event in events if isinstance(event, ApprovalRequest)] == ["call_2"]
    assert [one.call_id for one in running.waiting] == ["call_2"]
    assert end_of(events).reason == "paused"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("place", ["here", "thread"])
def test_arguments_of_a_person_that_do_not_fit_are_told_to_the_person(place: str, colour: str) -> None:
    till = Till()
    stored = run_of(till.agent, colour, "Pay.").state
    raised: list[Exception] = []

    def attempt(running: Any, arguments: Any) -> None:
        try:
            running.decide("call_1", approved=True, arguments=arguments)
        except (ArgumentsError, UsageError) as error:
            raised.append(error)

    def answer(running: Any) -> None:
        for arguments in ({"amount": "many"}, {}, {"amount": {1}}):
            if place == "here":
                attempt(running, arguments)
            else:
                thread = threading.Thread(target=attempt, args=(running, arguments))
                thread.start()
                thread.join()
        assert [one.call_id for one in running.waiting] == ["call_1", "call_2"]
        running.decide("call_1", approved=True, arguments={"amount": 3})
        running.decide("call_2", approved=False, arguments={"amount": "many"})

    events, _ = drive(resumed(till.agent, stored, answer), colour)
    assert [type(error) for error in raised] == [ArgumentsError, ArgumentsError, UsageError]
    assert "amount" in str(raised[0])
    assert till.paid == [3]
    assert not any("many" in text for text in results(end_of(events)))


# -- how it is made ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_an_agent_may_have_another_model_and_is_otherwise_the_same(colour: str) -> None:
    bench = Bench()
    agent = Agent("openai:gpt", bench.tools, "Be brief.", limits=Limits(steps=2), retries=Retries(attempts=0))
    script = Scripted([Reply(call("look", {"city": "Rome"})), Reply("Sunny.")])
    other = agent.with_model(Model("anthropic:claude", via=script))
    assert run_of(other, colour, "Go.").output == "Sunny."
    assert bench.ran == {"look Rome": 1}
    assert "Be brief." in json.dumps(script.requests[0].body)
    assert other.settings.limits == agent.settings.limits
    assert agent.settings.model.name == "openai:gpt"
    busy = Scripted([Status(503), Reply("Hi.")])
    events, _ = drive(streaming(agent.with_model(Model("openai:gpt", via=busy))), colour)
    assert end_of(events).reason == "error"
    assert len(busy.requests) == 1
    with pytest.raises(UsageError, match="give a Model"):
        agent.with_model(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("system_prompt", "instructions"),
        ("tolls", "did you mean 'tools'"),
        ("temprature", "did you mean 'temperature'"),
    ],
)
def test_a_keyword_that_no_agent_has_is_told_with_the_one_that_was_meant(option: str, told: str) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(UsageError, match=f"{option}.*{told}"):
        Agent("sim:fast", **options)


# -- around it ---------------------------------------------------------------------------------------------------------


def test_the_model_is_told_only_of_tools_that_it_can_call_here() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    done = end_of(events_of(on("anthropic", [Reply(call("nope")), Reply("Done.")], *Bench().tools, hosted), "sync"))
    assert results(done) == ["There is no tool called 'nope'. There are: look, write, broken."]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("replies", "shown"),
    [
        ([Reply("A.", call("look", {"city": "Rome"}), say("B.")), Reply("C.")], "A.\nB.\nC."),
        ([Reply("A.", call("look", {"city": "Rome"})), Reply("\nC.")], "A.\nC."),
        ([Reply("A.", say(" And B.")), Reply("C.")], "A. And B."),
    ],
)
def test_text_after_tools_begins_on_a_line_of_its_own_once(replies: Any, shown: str, colour: str) -> None:
    for wire in ("anthropic", "gemini"):
        events = events_of(on(wire, replies, *Bench().tools, separate_text=True), colour)
        assert "".join(event.text for event in events if isinstance(event, Text)) == shown


@pytest.mark.parametrize("given", [(), ("",), (None, []), ("", [])])
def test_with_nothing_said_there_is_nothing_to_answer(given: Any) -> None:
    for start in (made([]).stream, made([]).astream, made([]).run):
        with pytest.raises(UsageError, match="nothing to answer"):
            start(*given)
    with pytest.raises(UsageError, match="nothing to answer"):
        asyncio.run(made([]).arun(*given))


@pytest.mark.parametrize("colour", COLOURS)
def test_who_speaks_on_has_said_one_message(colour: str) -> None:
    result = run_of(made([Reply("Hi.")]), colour, "And Oslo?", [user("What of Rome?")])
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert [part.text for part in result.messages[0].parts if isinstance(part, Text)] == ["What of Rome?", "And Oslo?"]
    result = run_of(made([Reply("Hi.")]), colour, "", [user("What of Rome?")])
    assert [message.text for message in result.messages] == ["What of Rome?", "Hi."]
