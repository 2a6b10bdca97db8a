"""Errors in a run: which end it, which are retried, and what stays in the history."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from penstock import (
    Agent,
    AuthenticationError,
    BadRequestError,
    Done,
    Error,
    Limits,
    MissingKeyError,
    Model,
    ProviderError,
    Retries,
    StepEnd,
    Text,
    Usage,
    tool,
)
from penstock.messages import assistant, user
from penstock.run.machine import Run
from penstock.testing import Loopback, Reply, Status, always, call, drop, fail, say
from penstock.transport.threads.worker_threads import WorkerThreads
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    MODES,
    Bench,
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
    streaming,
    sync_and_async,
    texts_of,
)

# -- requests that fail ------------------------------------------------------------------------------------------------


def test_run_raises_for_a_wrong_key_and_stream_emits_an_error() -> None:
    with pytest.raises(AuthenticationError):
        made([Status(401)], *Bench().tools).run("Go.")
    events, running = drive(streaming(made([Status(401)], *Bench().tools)), "sync")
    assert end_of(events).reason == "error"
    assert [message.role for message in running.messages] == ["user"]


@sync_and_async
def test_a_failed_request_is_an_error_event_before_the_end(mode: str) -> None:
    with Loopback([Status(401), Reply(call("look", {"city": "Rome"})), Status(400, "no such field")]) as server:
        model = Model("openai:gpt", server.base_url("openai-responses"), "sk-wrong")
        events, running = drive(streaming(Agent(model, Bench().tools)), mode)
        assert isinstance(running.error, AuthenticationError)
        error, step_end, done = events[-3:]
        assert error == Error(running.error.message, running.error.code or "AuthenticationError")
        assert isinstance(step_end, StepEnd)
        assert isinstance(done, Done)
        assert (done.reason, done.why) == ("error", running.error.message)
        events, running = drive(streaming(Agent(model, Bench().tools)), mode)
    assert isinstance(running.error, BadRequestError)
    assert [event.message for event in events if isinstance(event, Error)] == [running.error.message]


@sync_and_async
def test_a_missing_key_is_an_error_when_the_agent_runs(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = Agent("openai:gpt")
    events, running = drive(streaming(agent), mode)
    assert isinstance(running.error, MissingKeyError)
    assert Error(str(running.error), "MissingKeyError", origin="program") in events
    assert end_of(events).reason == "error"
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        run_of(agent, mode, "Go.")


def test_any_failure_of_the_request_ends_the_run() -> None:
    class Broken:
        def connect(self) -> Any:
            raise ZeroDivisionError("oh")

        aconnect = connect

    agent = Agent(Model("openai-compatible:m", via=Broken()))
    for mode in MODES:
        done = end_of(events_of(agent, mode))
        assert (done.reason, done.why) == ("error", "ZeroDivisionError: oh")
    with pytest.raises(ZeroDivisionError):
        agent.run("Go.")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(agent.arun("Go."))


@sync_and_async
def test_after_tools_had_effects_a_failed_run_returns_its_error_and_history(mode: str) -> None:
    bench = Bench()
    result = run_of(made([Reply(call("write", {"text": "a"})), Status(400)], *bench.tools), mode, "Go.")
    assert isinstance(result.error, BadRequestError)
    assert (result.reason, str(result.error)) == ("error", result.why)
    assert texts_of(result.messages) == ["written"]
    with pytest.raises(BadRequestError):
        run_of(made([Status(400)]), mode, "Go.", [user("Hm?"), assistant("Well."), user("So?"), assistant("Yes.")])
    assert run_of(made([Reply("Hi.")]), mode, "Go.").error is None


# -- errors that come in band ------------------------------------------------------------------------------------------


def test_an_error_in_the_stream_ends_the_run() -> None:
    agent = made([Reply(say("Hm."), fail("overloaded", "Too much."))], *Bench().tools)
    events, running = drive(streaming(agent), "sync")
    done = end_of(events)
    assert (done.reason, done.why) == ("error", "Too much.")
    assert [part for part in running.messages[-1].parts if isinstance(part, Text)]


@sync_and_async
def test_an_in_band_error_is_raised_if_there_is_no_response_and_else_returned(mode: str) -> None:
    never = Retries(attempts=0)
    with pytest.raises(ProviderError, match="Too much"):
        run_of(made([Reply(fail("overloaded_error", "Too much."))], retries=never), mode, "Go.")
    result = run_of(made([Reply(say("One."), fail("overloaded_error", "Too much."))], retries=never), mode, "Go.")
    assert isinstance(result.error, ProviderError)
    assert (result.text, result.reason, str(result.error)) == ("One.", "error", "Too much.")


@sync_and_async
@every_wire
def test_a_response_that_begins_with_a_retryable_error_is_requested_again(wire: str, mode: str) -> None:
    quick = Retries(attempts=2, first_delay=0.0)
    busy = "overloaded_error" if wire == "anthropic" else "server_error"
    with Loopback([Reply(fail(busy, "The server is overloaded.")), Reply("Here I am.")]) as server:
        model = model_on(wire, server.base_url(wire), "a-key-of-mine", retries=quick)
        result = run_of(Agent(model), mode, "Go.")
    assert (result.output, result.reason, len(server.requests)) == ("Here I am.", "answered", 2)


@sync_and_async
def test_usage_includes_withdrawn_responses(mode: str) -> None:
    usage = Usage(input_tokens=10, output_tokens=3)
    replies = [Reply(say("One."), drop(), usage=usage), Reply(say("Two."), usage=usage)]
    agent = on("anthropic", replies, retries=Retries(after_start=True, first_delay=0.0))
    done = end_of(events_of(agent, mode))
    assert done.output == "Two."
    assert done.usage.input_tokens == 20


# -- error events ------------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("reply", [Reply("x", drop()), Reply(say("x"), fail("overloaded", "Too much.")), Status(400)])
def test_on_error_is_called_when_the_response_is_not_complete(reply: Any, mode: str) -> None:
    errors: list[str] = []
    done = end_of(events_of(made([reply], on_error=errors.append), mode))
    assert done.reason in ("cut", "error")
    assert errors == [done.why]
    assert errors[0]


def test_on_error_is_not_called_for_other_ends() -> None:
    errors: list[str] = []
    end_of(events_of(made([Reply("Hi.")], on_error=errors.append), "sync"))
    end_of(events_of(made([Reply("Hi.")], on_error=errors.append, limits=Limits(steps=0)), "sync"))
    assert not errors


@sync_and_async
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
def test_every_start_has_an_end_however_a_run_ends(replies: Any, mode: str) -> None:
    for wire in ("openai-chat", "anthropic"):
        events = events_of(on(wire, replies, *Bench().tools), mode)
        check_pairs(events)
        end_of(events)


# -- the run itself ----------------------------------------------------------------------------------------------------


@sync_and_async
def test_an_internal_error_ends_the_run_with_an_error_event(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *_: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(Run, "tool_done", broken)
    done = end_of(events_of(made([Reply(call("pay")), Reply("Done.")], pay), mode))
    assert (done.reason, done.why) == ("error", "RecursionError: too deep")
    monkeypatch.setattr(Run, "ended", broken)
    done = end_of(events_of(made([Reply("Hi.")], pay), mode))
    assert (done.reason, done.why) == ("error", "RecursionError: too deep")


def test_a_run_ends_if_no_thread_for_a_tool_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start = WorkerThreads.start
    for parallel in (True, False):

        @tool(parallel=parallel, timeout=5, retries=None)
        def work(at: int) -> str:
            """Work."""
            return "worked"

        def refuse(threads: WorkerThreads, call: Any, name: str, variables: Any, after: Any = None) -> Any:
            if "work" in name:
                raise RuntimeError("can't start new thread")
            return start(threads, call, name, variables, after)

        monkeypatch.setattr(WorkerThreads, "start", refuse)
        replies = [Reply(*(call("work", {"at": at}) for at in range(400))), Reply("Done.")]
        done = end_of(events_of(made(replies, work, limits=Limits(calls_per_answer=None)), "sync"))
        assert done.reason == "answered"
        failed = results(done)[: 400 if parallel else 1]
        assert failed == ["RuntimeError: can't start new thread"] * len(failed)
        assert len(results(done)) == 400
        assert all(text.startswith("Not run: work (") for text in results(done)[len(failed) :])


def test_a_run_without_tools_needs_no_worker_thread_unless_its_http_client_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with Loopback(always(Reply("Hi."))) as server, httpx2.Client() as client:
        agents = [
            Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-", client=used))
            for used in (None, client)
        ]
        monkeypatch.setattr(WorkerThreads, "start", refuse)
        plain, blocking = (end_of(events_of(agent, "sync")) for agent in agents)
    assert (plain.reason, plain.why) == ("answered", "")
    assert (blocking.reason, blocking.why) == ("error", "RuntimeError: can't start new thread")
