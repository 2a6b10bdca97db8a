"""When a call starts: during the response, after its end, and never after a bad one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Agent, Model, Retries, ToolCall, ToolCallInvalid, ToolEnd, ToolStart, as_tool, tool
from penstock.testing import Raw, Reply, Scripted, call, drop, fail, refuse, say
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    NAMES,
    Bench,
    Cut,
    answer_with,
    check_history,
    check_pairs,
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
    texts_of,
)

# -- who may start early -----------------------------------------------------------------------------------------------


def test_by_default_only_read_only_tools_start_early() -> None:
    starts = [event for event in events_of(made(script(), *Bench().tools), "sync") if isinstance(event, ToolStart)]
    assert {(event.name, event.is_early) for event in starts} == {("look", True), ("write", False), ("broken", False)}


def test_a_read_only_tool_starts_early_whatever_the_start_policy_of_the_agent() -> None:
    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    agent = made([], look, pay, start="call")
    assert (agent.config.policies["look"].start, agent.config.policies["pay"].start) == ("closed", "call")
    assert made([], look, start="turn").config.policies["look"].start == "turn"


@sync_and_async
@every_wire
def test_a_call_that_is_confirmed_by_the_finish_runs_after_it(wire: str, mode: str) -> None:
    done = end_of(events_of(on(wire, [Reply(call("pay", {"euros": 5})), Reply("Done.")], pay, start="call"), mode))
    assert results(done) == ["paid 5"]


# -- answers that end badly --------------------------------------------------------------------------------------------


BAD_ENDS = {
    "filtered": Reply(call("pay", {"euros": 5}), finish="content_filter"),
    "refused": Reply(call("pay", {"euros": 5}), refuse("I'd rather not.")),
    "failed": Reply(call("pay", {"euros": 5}), fail("server_error", "Sorry.")),
    "dropped": Reply(call("pay", {"euros": 5}), drop()),
}


@sync_and_async
@every_wire
@pytest.mark.parametrize("end", BAD_ENDS)
def test_a_call_that_only_the_finish_confirms_does_not_run_after_a_bad_one(end: str, wire: str, mode: str) -> None:
    """On wires without an end of their own for each call, the frame that ends the answer badly is its confirmation."""
    events = events_of(on(wire, [BAD_ENDS[end]], pay, start="call"), mode)
    by_the_end = {event.id for event in events if isinstance(event, ToolCall) and event.sealed_by in ("finish", "done")}
    started = {event.call_id for event in events if isinstance(event, ToolStart)}
    assert not started & by_the_end
    assert not (started and wire == "openai-chat")
    assert end_of(events).reason != "answered"


@pytest.mark.parametrize("parts", range(1, 4))
@every_wire
def test_no_unconfirmed_call_of_a_cut_response_runs(wire: str, parts: int) -> None:
    first: list[Any] = [say("Let me write."), call("write", {"text": "a"}), call("write", {"text": "b"})][:parts]
    bench = Bench()
    events, running = drive(streaming(on(wire, [Reply(*first, drop())], *bench.tools)), "sync")
    assert end_of(events).reason in ("cut", "error")
    assert not bench.ran
    check_history(running.messages)


@pytest.mark.parametrize("request_number", [1, 2, 3])
@every_wire
def test_a_cut_at_every_piece_of_a_three_step_run_runs_nothing_twice(wire: str, request_number: int) -> None:
    for pieces in range(1, 1000):
        line, bench = Cut(script(), request_number, pieces), Bench()
        model = model_on(wire, via=line, retries=Retries(attempts=0))
        done = end_of(events_of(Agent(model, bench.tools), "sync"))
        if not line.is_cut:
            break
        assert done.reason in ("cut", "error", "answered")  # it may have been whole but for an end mark
        assert all(times == 1 for times in bench.ran.values()), pieces
        written = sum(times for name, times in bench.ran.items() if name.startswith("write"))
        assert written == min(len(line.requests) - 1, 2), pieces
    else:
        pytest.fail("the answer never ended")


@sync_and_async
def test_executions_of_a_broken_stream_are_discarded(mode: str) -> None:
    events = events_of(made([Reply(call("look", {"city": "Rome"}), drop())], *Bench().tools), mode)
    done = end_of(events)
    discarded, failed = [event.result.text for event in events if isinstance(event, ToolEnd)]
    assert discarded == "Discarded: the call is cut."
    assert failed == results(done)[0]
    assert failed.startswith("Not run: the call is cut")
    assert failed.endswith("What was started before that was known has been discarded.")


def test_after_a_filter_no_tool_starts() -> None:
    bench = Bench()
    agent = made([Reply(call("write", {"text": "a"}), finish="content_filter")], *bench.tools)
    events, running = drive(streaming(agent), "sync")
    assert not bench.ran
    assert not any(isinstance(event, ToolStart) for event in events)
    assert end_of(events).reason == "refused"
    check_history(running.messages)


@pytest.mark.parametrize(
    "wire", sorted(NAMES.keys() - {"ollama", "cohere", "gemini-interactions"})
)  # these have no word for it
def test_a_refusal_ends_the_run_and_starts_no_tool(wire: str) -> None:
    bench = Bench()
    done = end_of(events_of(on(wire, [Reply(refuse())], *bench.tools), "sync"))
    assert (done.reason, sum(bench.ran.values())) == ("refused", 0)


def test_a_call_cut_by_length_does_not_run_and_the_run_continues() -> None:
    bench = Bench()
    done = end_of(
        events_of(made([Reply(call("look", '{"city": "Ro'), finish="length"), Reply("Done.")], *bench.tools), "sync")
    )
    assert (done.reason, done.output, sum(bench.ran.values())) == ("answered", "Done.", 0)
    assert isinstance(done.messages[1].parts[0], ToolCallInvalid)


# -- calls that go on after they closed --------------------------------------------------------------------------------


def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def chat(*pieces: str) -> Raw:
    """One call on the wire of Chat Completions, its arguments in these pieces."""
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    rest = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    frames = [frame({"tool_calls": [first]}), *map(frame, rest), frame({}, "tool_calls"), b"data: [DONE]\n\n"]
    return Raw(b"".join(frames))


@sync_and_async
@pytest.mark.parametrize(
    ("pieces", "final"),
    [
        (['{"city": "Rome"}', "\n"], "Rome is sunny"),
        (["{}", '{"city": "Rome"}'], None),
        (['{"city": "Rome"}', '{"city": "Rome"}'], None),
        (['{"city": "Rome"}', '{"city": "Oslo"}'], None),
        (['{"city": "Rome"}', " and so on"], None),
        (['{"city": "Ro', "{}", 'me"}'], "Ro{}me is sunny"),
    ],
)
def test_on_chat_completions_a_call_may_continue_after_its_arguments_closed(
    pieces: list[str], final: str | None, mode: str
) -> None:
    bench = Bench()
    events = events_of(made([chat(*pieces), Reply("Done.")], *bench.tools), mode)
    done = end_of(events)
    endings = [event.ending for event in events if isinstance(event, ToolEnd)]
    if final is None:
        assert endings == ["discarded", "failed"]
        assert results(done)[0].startswith("Not run: ")
    else:
        assert (endings, results(done)) == (["done"], [final])
        assert sum(bench.ran.values()) == 1


# -- damaged calls -----------------------------------------------------------------------------------------------------


DUPLICATED = ['{"city": "Rome"}', '{"city": "Rome"}']


CUMULATIVE = ['{"city"', '{"city": "Ro', '{"city": "Rome"}']


@sync_and_async
@pytest.mark.parametrize("run_repaired", [True, {"duplicated", "cumulative"}, "fault"])
@pytest.mark.parametrize(("pieces", "fault"), [(DUPLICATED, "duplicated"), (CUMULATIVE, "cumulative")])
@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_duplicated_call_runs_once_with_run_repaired(
    is_read_only: bool, pieces: list[str], fault: str, run_repaired: Any, mode: str
) -> None:
    ran: list[str] = []
    run_repaired = fault if run_repaired == "fault" else run_repaired
    is_early = is_read_only and pieces is DUPLICATED  # of the others nothing ever closes

    @tool(read_only=is_read_only)
    def look(city: str) -> str:
        """Look."""
        ran.append(city)
        return f"{city} is sunny"

    line = Scripted([chat(*pieces), Reply("Done.")])
    events = events_of(Agent(Model("openai-compatible:m", via=line), [look], run_repaired=run_repaired), mode)
    done = end_of(events)
    endings = [event.ending for event in events if isinstance(event, ToolEnd)]
    assert endings == (["discarded", "done"] if is_early else ["done"])
    final = [event for event in events if isinstance(event, ToolStart)][-1]
    assert (final.fault, final.is_early, final.arguments) == (fault, False, {"city": "Rome"})
    assert is_early or ran == ["Rome"]
    text = f'The call is {fault}, and its arguments were repaired to {{"city": "Rome"}}.\nRome is sunny'
    assert results(done) == [text]
    assert isinstance(done.messages[1].parts[0], ToolCallInvalid)
    assert "Rome is sunny" in json.dumps(line.requests[1].body)
    check_pairs(events)


@pytest.mark.parametrize("run_repaired", [False, {"cumulative"}])
def test_a_damaged_call_does_not_run_unless_run_repaired_names_its_fault(run_repaired: Any) -> None:
    bench = Bench()
    ready = [as_tool({"name": "look", "input_schema": {"type": "object"}}, lambda **_: bench.ran.update(["look"]))]
    done = end_of(events_of(made([chat(*DUPLICATED), Reply("Done.")], *ready, run_repaired=run_repaired), "sync"))
    assert results(done)[0].startswith("Not run: the call is duplicated")
    assert not bench.ran


@sync_and_async
def test_a_repaired_call_needs_approval_too(mode: str) -> None:
    @tool(approval=True)
    def look(city: str) -> str:
        """Look."""
        return city

    agent = made([chat(*DUPLICATED), Reply("Done.")], look, run_repaired=True)
    assert run_of(agent, mode, "Go.").reason == "paused"
    _, running = drive(streaming(made([chat(*DUPLICATED), Reply("Done.")], look, run_repaired=True)), mode,
                       answer_with(True))  # fmt: skip
    assert texts_of(running.messages)[0].endswith("\nRome")
