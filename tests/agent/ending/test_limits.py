"""The limits of a run: steps, calls, tokens, time, repeats and retries."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from penstock import Agent, Done, Limits, Model, Usage, UsageError, tool
from penstock.testing import Reply, Scripted, always, call, say, wait
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    SOON,
    Bench,
    check_history,
    drive,
    end_of,
    events_of,
    made,
    on,
    results,
    streaming,
    sync_and_async,
)

# -- limits of a run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(steps=3), "limit of 3 steps"),
        (Limits(calls=2), "there may be 2"),
        (Limits(tokens=1), "may use 1"),
        (Limits(repeats=2), "may come 2 times"),
    ],
)
def test_a_limit_ends_the_run_with_its_reason(limits: Limits, why: str) -> None:
    agent = made([Reply(call("write", {"text": "a"}))] * 9, *Bench().tools, limits=limits)
    events, running = drive(streaming(agent), "sync")
    done = end_of(events)
    assert done.reason == "limit"
    assert why in done.why
    check_history(running.messages)


def test_a_run_ends_at_its_time_limit() -> None:
    agent = made([Reply(say("Hm."), wait(20))], *Bench().tools, limits=Limits(seconds=1))
    events, running = drive(streaming(agent), "sync")
    done = end_of(events)
    assert (done.reason, done.output) == ("limit", "Hm.")
    check_history(running.messages)


@sync_and_async
@pytest.mark.parametrize("limits", [Limits(steps=0), Limits(seconds=0)], ids=["steps", "seconds"])
def test_with_a_limit_of_zero_no_request_is_sent(limits: Limits, mode: str) -> None:
    line = Scripted([Reply("Hi.")])
    [done] = events_of(Agent(Model("openai-compatible:m", via=line), limits=limits), mode)
    assert isinstance(done, Done)
    assert (done.reason, len(line.requests), len(done.messages)) == ("limit", 0, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"steps": -1}, {"steps": "3"}, {"steps": 1.5}, {"steps": True}, {"calls": -1}, {"tokens": "9"}, {"repeats": 0.5},
     {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": -1}, {"seconds": "5"}],
    ids=lambda limits: next(iter(limits)),
)  # fmt: skip
def test_a_wrong_limit_is_an_error(wrong: Any) -> None:
    [name] = wrong
    with pytest.raises(UsageError, match=f"Limits: {name} must be "):
        Limits(**wrong)


# -- calls that start early --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["call", None])
def test_limits_hold_for_tools_that_start_early_too(start: Any) -> None:
    for limits in (Limits(calls=2), Limits(steps=1)):
        bench = Bench()
        cities = [call("look", {"city": name}) for name in "abcd"]
        done = end_of(events_of(made([Reply(*cities)], *bench.tools, start=start, limits=limits), "sync"))
        assert done.reason == "limit"
        assert sum(bench.ran.values()) <= (limits.calls or 0)


@sync_and_async
@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("start", ["call", "closed", "turn"])
def test_the_limit_of_calls_holds_however_they_start(start: Any, is_parallel: bool, mode: str) -> None:
    ran: list[int] = []

    @tool(read_only=True, start=start, parallel=is_parallel)
    def one(number: int) -> str:
        """One."""
        ran.append(number)
        return "one"

    replies = [Reply(*(call("one", {"number": at}) for at in range(5)), wait(0.05))]
    done = end_of(events_of(on("anthropic", replies, one, limits=Limits(calls=2)), mode))
    assert done.reason == "limit"
    assert len(ran) <= 2


@sync_and_async
@pytest.mark.parametrize("start", ["call", "closed"])
def test_the_limit_of_repeats_holds_for_early_starts(start: Any, mode: str) -> None:
    ran: list[str] = []

    @tool(read_only=True, start=start)
    def one(text: str, number: float = 1) -> str:
        """One."""
        ran.append(text)
        return "one"

    same = [call("one", '{"text": "a", "number": 1}'), call("one", '{ "number":1,"text":"a"}')]
    other = [call("one", '{"text": "a", "number": 1.0}'), call("one", '{"text": "a", "number": 2}')]
    done = end_of(events_of(on("anthropic", [Reply(*same, *other, wait(0.05))], one, limits=Limits(repeats=1)), mode))
    assert (done.reason, "came 2 times" in done.why) == ("limit", True)
    assert len(ran) <= 3
    replies = [Reply(*other), Reply("Done.")]
    assert end_of(events_of(on("anthropic", replies, one, limits=Limits(repeats=1)), mode)).reason == "answered"


# -- repeats and tries -------------------------------------------------------------------------------------------------


def test_repeats_count_over_responses_however_the_arguments_are_written() -> None:
    ways = ['{"text":"a"}', '{ "text" : "a" }', '{"text":"\\u0061"}']
    replies = [Reply(call("write", way)) for way in ways]
    bench = Bench()
    done = end_of(events_of(made(replies, *bench.tools, limits=Limits(repeats=2)), "sync"))
    assert (done.reason, bench.ran["write a"]) == ("limit", 2)


def test_a_run_ends_when_a_tool_fails_too_often_in_a_row() -> None:
    ran: Counter[str] = Counter()

    @tool(retries=2)
    def broken() -> str:
        """Break."""
        ran["broken"] += 1
        raise ValueError("no")

    done = end_of(events_of(made(always(Reply(call("broken"))), broken), "sync"))
    assert (done.reason, ran["broken"]) == ("limit", 3)
    assert "broken failed 3 times in a row" in done.why


def test_parallel_calls_that_fail_are_one_try() -> None:
    done = end_of(events_of(made([Reply(*[call("broken")] * 5), Reply("Done.")], *Bench().tools), "sync"))
    assert done.reason == "answered"


@sync_and_async
def test_a_run_ends_when_unknown_tools_are_called_too_often(mode: str) -> None:
    line = Scripted(Reply(call(f"nope{at}", {"at": at})) for at in range(60))
    done = end_of(events_of(Agent(Model("openai-compatible:m", via=line)), mode))
    assert (done.reason, len(line.requests)) == ("limit", 4)
    assert "tools that do not exist" in done.why
    mixed = [Reply(call("write", {"text": str(at)}) if at % 2 else call("nope")) for at in range(12)]
    assert end_of(events_of(made([*mixed, Reply("Done.")], *Bench().tools), mode)).reason == "answered"


# -- the time of a tool ------------------------------------------------------------------------------------------------


@sync_and_async
def test_a_tool_that_hangs_times_out(mode: str) -> None:
    released = threading.Event()

    @tool(timeout=0.1)
    def hang() -> str:
        """Never return."""
        released.wait(20)
        return "late"

    events, running = drive(streaming(made([Reply(call("hang", {})), Reply("Done.")], hang)), mode)
    released.set()
    assert "timed out after 0.1 seconds" in running.messages[2].results[0].text
    assert end_of(events).reason == "answered"


@sync_and_async
def test_the_timeout_of_a_read_only_tool_warns_of_no_effect(mode: str) -> None:
    released = threading.Event()

    @tool(read_only=True, timeout=0.1)
    def hang() -> str:
        """Hang."""
        released.wait(SOON)
        return "late"

    done = end_of(events_of(made([Reply(call("hang")), Reply("Done.")], hang), mode))
    released.set()
    assert results(done) == ["The tool timed out after 0.1 seconds."]


def test_cached_tokens_and_reasoning_count() -> None:
    """The provider's own counts leave the cache out of the input, and Gemini's the thoughts out of the output."""
    usage = Usage(input_tokens=760, output_tokens=5, cached_tokens=700, cache_write_tokens=50)
    thoughts = Usage(input_tokens=10, output_tokens=755, reasoning_tokens=750)
    for wire, used in (("anthropic", usage), ("bedrock", usage), ("gemini", thoughts)):
        replies = [Reply(call("write", {"text": "a"}), usage=used)] * 3
        done = end_of(events_of(on(wire, replies, *Bench().tools, limits=Limits(tokens=100)), "sync"))
        assert (done.reason, done.usage) == ("limit", used), wire
