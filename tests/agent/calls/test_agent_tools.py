"""Tools in a run: every kind of function, parallel calls, failures and unusual arguments."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from typing import Any

import pytest

from penstock import (
    Agent,
    Context,
    Model,
    StreamEvent,
    Tool,
    ToolEnd,
    ToolError,
    ToolProgress,
    ToolStart,
    UsageError,
    as_tool,
    tool,
)
from penstock.jsontext.values import deep_copy
from penstock.run.outbox import MAX_AHEAD
from penstock.testing import Reply, Scripted, call, say, wait
from penstock.transport.threads.loop_thread import shared_loop
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import SOON, Bench, drive, end_of, events_of, made, on, results, streaming, sync_and_async

# -- every kind of tool ------------------------------------------------------------------------------------------------


@sync_and_async
def test_every_kind_of_tool_works_sync_and_async(mode: str) -> None:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")

    @tool
    async def later(context: Context[str]) -> str:
        """Later."""
        await asyncio.sleep(0)
        return f"{seen.get()} {context.deps} {context.tool} {context.step}"

    @tool
    def now(context: Context[str]) -> str:
        """Now."""
        return f"{seen.get()} {context.deps} {context.tool} {context.step}"

    @tool
    def pieces() -> Iterator[str]:
        """Pieces."""
        yield from ["one", "two", "end"]

    @tool
    async def later_pieces() -> AsyncIterator[str]:
        """Pieces, later."""
        for piece in ["one", "two", "end"]:
            await asyncio.sleep(0)
            yield piece

    names = ["later", "now", "pieces", "later_pieces"]
    agent = made([Reply(*map(call, names)), Reply("Done.")], later, now, pieces, later_pieces)
    token = seen.set("here")
    try:
        events = events_of(agent, mode, deps="deps")
    finally:
        seen.reset(token)
    done = end_of(events)
    assert results(done) == ["here deps later 1", "here deps now 1", "end", "end"]
    for name in names[2:]:
        reports = [event.data for event in events if isinstance(event, ToolProgress) and event.name == name]
        assert reports == ["one", "two", "end"]


class Promise:
    """An awaitable that is not a coroutine."""

    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        return "kept"


@sync_and_async
def test_results_that_are_awaitable_or_generators_are_run_to_their_end(mode: str) -> None:
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
    events = events_of(made([Reply(*(call(one.name) for one in tools)), Reply("Done.")], *tools), mode)
    assert results(end_of(events)) == ["kept", "kept", "end", "end"]
    for name in ("generator", "agenerator"):
        reports = [event for event in events if isinstance(event, ToolProgress) and event.name == name]
        assert [event.data for event in reports] == ["one", "two", "end"]


@pytest.mark.filterwarnings("ignore:.*blocks the event loop")
def test_a_sync_run_works_inside_a_running_loop() -> None:
    texts: list[str] = []

    @tool
    async def later() -> str:
        """Later."""
        await asyncio.sleep(0)
        return "later"

    async def on_text(text: str) -> None:
        await asyncio.sleep(0)
        texts.append(text)

    async def cell() -> str:
        return made([Reply(call("later")), Reply("Done.")], later, on_text=on_text).run("Go.").output

    assert asyncio.run(cell()) == "".join(texts) == "Done."


@sync_and_async
def test_async_tools_of_one_run_share_a_loop(mode: str) -> None:
    one_at_a_time = asyncio.Semaphore(1)
    loops = set()

    @tool
    async def careful(number: int) -> int:
        """Do it alone."""
        loops.add(asyncio.get_running_loop())
        async with one_at_a_time:
            await asyncio.sleep(0.01)
        return number

    def plain(number: int) -> Any:
        """Give something to await."""
        return careful.function(number)

    answers = [Reply(*(call("careful", {"number": at}) for at in range(3))), Reply(call("plain", {"number": 3}))]
    done = end_of(events_of(made([*answers, Reply("Done.")], careful, plain), mode))
    assert (results(done), len(loops)) == (["0", "1", "2", "3"], 1)


# -- side by side ------------------------------------------------------------------------------------------------------


def test_tools_run_in_parallel_and_the_history_is_in_order() -> None:
    both, second_has_ended = threading.Barrier(2, timeout=SOON), threading.Event()

    @tool
    def meet(which: str) -> str:
        """Wait for the other."""
        both.wait()
        if which == "first":
            assert second_has_ended.wait(SOON)
        return which

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolEnd):
            second_has_ended.set()

    replies = [Reply(call("meet", {"which": "first"}), call("meet", {"which": "second"})), Reply("Done.")]
    events, running = drive(streaming(made(replies, meet)), "sync", on_event)
    assert [event.result.text for event in events if isinstance(event, ToolEnd)] == ["second", "first"]
    assert [result.text for result in running.messages[2].results] == ["first", "second"]


@sync_and_async
def test_tools_that_are_not_parallel_run_alone(mode: str) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def work(name: str) -> str:
        running[name] += 1
        most["all"] = max(most["all"], running.total())
        most[name] = max(most[name], running.total())
        time.sleep(0.03)
        running[name] -= 1
        return name

    @tool(parallel=False)
    def alone() -> str:
        """Alone."""
        return work("alone")

    @tool
    def beside() -> str:
        """Beside others."""
        return work("beside")

    names = ["alone", "beside", "alone", "beside", "beside"]
    done = end_of(events_of(made([Reply(*map(call, names)), Reply("Done.")], alone, beside), mode))
    assert results(done) == names
    assert most["alone"] == 1
    assert most["beside"] > 1


@sync_and_async
def test_a_later_read_does_not_overtake_a_write_that_runs_alone(mode: str) -> None:
    kept = {"a": "old", "b": "old"}

    @tool
    def read(name: str) -> str:
        """Read."""
        time.sleep(0.05)
        return kept[name]

    @tool(parallel=False)
    def write(name: str) -> str:
        """Write."""
        kept[name] = "new"
        return "written"

    calls = call("read", {"name": "b"}), call("write", {"name": "a"}), call("read", {"name": "a"})
    assert results(end_of(events_of(made([Reply(*calls), Reply("Done.")], read, write), mode))) == [
        "old", "written", "new",
    ]  # fmt: skip


# -- what tools do -----------------------------------------------------------------------------------------------------


@sync_and_async
def test_a_failing_tool_does_not_harm_the_run(
    mode: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)

    @tool
    def loud() -> str:
        """Print a lot, and return a lot."""
        for _ in range(100):
            print("x" * 10_000)  # noqa: T201
        return "y" * 3_000_000

    @tool
    def thing() -> object:
        """Return an object."""
        return object()

    @tool
    def half() -> list[Any]:
        """Return what is no JSON."""
        return ["\ud800", float("nan"), float("inf")]

    @tool
    def odd() -> dict[str, Any]:
        """Return what is no JSON, with names."""
        return {"nan": float("nan"), "half": "\ud800"}

    @tool
    def fork() -> str:
        """Start a thread that dies."""
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return "forked"

    @tool
    async def self_cancelled() -> str:
        """Await what was cancelled."""
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
        return "never"

    @tool
    def interrupted() -> str:
        """Be interrupted."""
        raise KeyboardInterrupt

    @tool
    def leave() -> str:
        """Leave the process."""
        raise SystemExit(3)

    @tool
    def sorry() -> str:
        """Say sorry."""
        raise ToolError("Try Rome.")

    tools: list[Tool[..., Any]] = [loud, thing, half, odd, fork, self_cancelled, interrupted, leave, sorry]
    events = events_of(made([Reply(*(call(one.name) for one in tools)), Reply("Done.")], *tools), mode)
    done = end_of(events)
    assert (done.reason, len(died)) == ("answered", 1)
    texts = results(done)
    assert "characters omitted" in texts[0]
    assert len(texts[0]) < 300_000
    assert "object" in texts[1]
    assert "NaN" in texts[2]
    assert "NaN" in texts[3]
    assert texts[4] == "forked"
    assert "CancelledError" in texts[5]
    assert (texts[6], texts[8]) == ("KeyboardInterrupt", "Try Rome.")
    assert [result.is_error for result in done.messages[2].results] == [False, True] + [False] * 3 + [True] * 4
    json.dumps(texts).encode()
    capsys.readouterr()


@sync_and_async
def test_a_tool_that_cancels_itself_has_failed(mode: str) -> None:
    @tool
    async def suicidal() -> str:
        """Give up."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(SOON)
        return "not reached"

    done = end_of(events_of(made([Reply(call("suicidal")), Reply("Done.")], suicidal), mode))
    assert (results(done), done.reason) == (["CancelledError"], "answered")


@sync_and_async
def test_a_tool_that_changes_its_arguments_does_not_change_the_history(mode: str) -> None:
    def take(items: list[int]) -> int:
        return items.pop()

    schema = {"type": "object", "properties": {"items": {"type": "array"}}}
    taking = Tool.from_schema("take", "Take.", schema, take, read_only=True)
    line = Scripted([Reply(call("take", {"items": [1, 2]}), say("Hm."), wait(0.1)), Reply("Done.")])
    events = events_of(Agent(Model("openai-compatible:m", via=line), [taking]), mode)
    done = end_of(events)
    assert results(done) == ["2"]
    assert done.messages[1].tool_calls[0].arguments == {"items": [1, 2]}
    assert sum(isinstance(event, ToolStart) for event in events) == 1


@sync_and_async
def test_a_tool_may_print_100_megabytes(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def loud() -> str:
        """Print a lot."""
        return str(sum(sys.stdout.write("x" * 1_000_000) for _ in range(100)))

    _, running = drive(streaming(made([Reply(call("loud")), Reply("Done.")], loud)), mode)
    assert len(capsys.readouterr().out) == 100_000_000
    assert running.messages[2].results[0].text == "100000000"
    assert running.finish_reason == "answered"


# -- arguments ---------------------------------------------------------------------------------------------------------


@sync_and_async
def test_the_model_gets_a_result_for_each_wrong_call(mode: str) -> None:
    replies = [
        Reply(call("look", {"city": 3}), call("look", {}), call("look", {"city": "a", "odd": 1}), call("loook", {}),
              call("look", '{"city": '), call("look", "[1]")),
        Reply("Done."),
    ]  # fmt: skip
    done = end_of(events_of(made(replies, *Bench().tools), mode))
    texts = results(done)
    assert all("city" in text for text in texts[:2])
    assert "odd" in texts[2]
    assert all(result.is_error for result in done.messages[2].results)
    assert "look" in texts[3]
    assert all(text.startswith("Not run: ") for text in texts[4:])
    assert done.reason == "answered"


def test_the_model_is_offered_only_tools_that_it_can_call() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    done = end_of(events_of(on("anthropic", [Reply(call("nope")), Reply("Done.")], *Bench().tools, hosted), "sync"))
    assert results(done) == ["There is no tool called 'nope'. There are: look, write, broken."]


def nested(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = json.loads('{"a":' * depth + "1" + "}" * depth)
    return made


@sync_and_async
@pytest.mark.parametrize(
    "options", [{}, {"read_only": True}, {"approval": lambda arguments: False}], ids=["usual", "early", "asks"]
)
@pytest.mark.parametrize("depth", [400, 480, 500, 510])
def test_arguments_of_the_greatest_depth_work(depth: int, options: Any, mode: str) -> None:
    @tool(**options)
    def take(a: Any) -> str:
        """Take it."""
        return "taken"

    done = end_of(events_of(made([Reply(call("take", json.dumps(nested(depth)))), Reply("Done.")], take), mode))
    assert done.reason == "answered"
    assert len(results(done)) == 1


def test_a_deep_copy_shares_no_container() -> None:
    value: Any = {"a": [1, {"b": [2.5, None]}], "c": {}, "d": "text"}
    other = deep_copy(value)
    assert other == value
    other["a"][1]["b"].append(3)
    other["c"]["x"] = 1
    assert value == {"a": [1, {"b": [2.5, None]}], "c": {}, "d": "text"}
    for _ in range(100_000):
        value = {"a": value}
    assert deep_copy(value).keys() == {"a"}
    assert deep_copy("text") == "text"


# -- how a tool is made ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "5"}, {"timeout": True}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"timeout": 0},
        {"retries": "2"}, {"retries": 1.5}, {"retries": -1}, {"retries": True}, {"name": 5}, {"name": None},
        {"description": 5}, {"approval": "yes"}, {"approval": 1},
        {"parallel": "no"}, {"read_only": 1}, {"deferred": "no"}, {"start": "now"}, {"strict": "yes"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)  # fmt: skip
def test_wrong_options_of_a_tool_are_errors_at_once(options: Any) -> None:
    def look() -> str:
        """Look."""
        return ""

    [name] = options
    with pytest.raises(UsageError, match=f"{name} must be "):
        tool(**options)(look)
    with pytest.raises(UsageError, match=f"{name} must be "):
        as_tool({"name": "look", "description": "Look.", "input_schema": {"type": "object"}}, look, **options)


def test_a_callable_object_is_described_by_its_class() -> None:
    class Look:
        """Look around."""

        def __call__(self, where: str) -> str:
            return where

    class Listen:
        """A class that listens."""

        def __call__(self) -> str:
            """Listen to it."""
            return ""

    described = [tool(name=name)(made_of).description for name, made_of in (("look", Look()), ("listen", Listen()))]
    assert described == ["Look around.", "Listen to it."]


def test_two_tools_with_the_same_name_are_an_error() -> None:
    def look() -> None:
        """Look."""

    with pytest.raises(UsageError, match="two tools have the name 'look'"):
        made([], look, tool(name="look")(lambda: None))


# -- the loop of a plain run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_tool_with_many_reports_does_not_block_callbacks_on_its_loop(kind: str) -> None:
    async def later(context: Context[Any]) -> str:
        """Report."""
        for at in range(2 * MAX_AHEAD):
            context.report(at)
        return "done"

    def now(context: Context[Any]) -> Any:
        """Report from a coroutine."""
        return later(context)

    async def on_tool_start(*_: Any) -> None:
        await asyncio.sleep(0)

    function = tool(name="report")(later if kind == "async" else now)
    agent = made([Reply(call("report")), Reply("Done.")], function, on_tool_start=on_tool_start)
    assert results(end_of(events_of(agent, "sync"))) == ["done"]


def test_a_run_ends_if_no_loop_for_async_tools_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop() -> None:
        raise OSError(24, "Too many open files")

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    shared_loop.close()
    monkeypatch.setattr("penstock.transport.threads.loop_thread.asyncio.Runner", no_loop)
    [text] = results(end_of(events_of(made([Reply(call("look")), Reply("Done.")], look), "sync")))
    assert "the event loop could not be started" in text


def test_a_tool_that_calls_sys_exit_does_not_end_the_loop() -> None:
    async def leave() -> None:
        sys.exit(3)

    @tool
    def rude() -> Any:
        """Leave."""
        return leave()

    @tool
    async def other() -> str:
        """Stay."""
        await asyncio.sleep(0.05)
        return "stayed"

    done = end_of(
        events_of(made([Reply(call("rude"), call("other")), Reply(call("other")), "Done."], rude, other), "sync")
    )
    assert results(done) == ["SystemExit: 3", "stayed", "stayed"]


def test_an_awaitable_result_for_a_closed_run_starts_no_loop() -> None:
    if (thread := shared_loop.close()) is not None:  # of earlier tests
        thread.join(SOON)
    has_begun, released = threading.Event(), threading.Event()

    async def never() -> None:
        raise AssertionError("nobody wants it")

    @tool
    def slow(context: Context[Any]) -> Any:
        """Take a while."""
        context.report("started")
        has_begun.set()
        released.wait(SOON)
        return never()

    with made([Reply(call("slow")), Reply("Done.")], slow).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolProgress):
                assert has_begun.wait(SOON)
                break
    released.set()
    end = time.monotonic() + SOON
    while any(thread.name == "penstock-slow" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-loop"]
