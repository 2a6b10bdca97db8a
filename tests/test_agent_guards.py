"""What a run withstands: ends that come late, tools that share a loop, tasks that others cancel, deep arguments."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock.agent import Agent, AgentStreamer
from penstock.errors import ProviderError, UsageError
from penstock.events import Finish, ToolCall, Usage
from penstock.happenings import Done, ToolEnd, ToolProgress, ToolStart
from penstock.json_values import copied
from penstock.messages import user
from penstock.model import Model
from penstock.run import Run
from penstock.run_view import MAX_WAIT
from penstock.testing import Loopback, Reply, Scripted, call, drop, fail, refuse, say, wait
from penstock.tools import tool
from penstock.transport.policy import Retries
from tests.test_agent import COLOURS, NAMES
from tests.test_agent_hard import SOON, end_of, events_of, made, results
from tests.test_agent_review import on, run_of

both_colours = pytest.mark.parametrize("colour", COLOURS)


@tool
def pay(euros: int = 0) -> str:
    """Pay, which cannot be undone."""
    return f"paid {euros}"


# -- what the end of an answer says of its calls -----------------------------------------------------------------------


BAD_ENDS = {
    "filtered": Reply(call("pay", {"euros": 5}), finish="content_filter"),
    "refused": Reply(call("pay", {"euros": 5}), refuse("I'd rather not.")),
    "failed": Reply(call("pay", {"euros": 5}), fail("server_error", "Sorry.")),
    "dropped": Reply(call("pay", {"euros": 5}), drop()),
}


@both_colours
@pytest.mark.parametrize("wire", NAMES)
@pytest.mark.parametrize("end", BAD_ENDS)
def test_a_call_that_only_the_end_confirms_waits_for_a_good_end(end: str, wire: str, colour: str) -> None:
    """On wires without an end of their own for each call, the frame that ends the answer badly is its confirmation."""
    events = events_of(on(wire, [BAD_ENDS[end]], pay, start="call"), colour)
    by_the_end = {event.id for event in events if isinstance(event, ToolCall) and event.sealed_by in ("finish", "done")}
    started = {event.call_id for event in events if isinstance(event, ToolStart)}
    assert not started & by_the_end
    assert not (started and wire == "openai-chat")
    assert end_of(events).reason != "answered"


@both_colours
@pytest.mark.parametrize("wire", NAMES)
def test_a_call_that_is_confirmed_at_the_end_runs_after_a_good_one(wire: str, colour: str) -> None:
    done = end_of(events_of(on(wire, [Reply(call("pay", {"euros": 5})), Reply("Done.")], pay, start="call"), colour))
    assert results(done) == ["paid 5"]


def test_a_tool_that_may_start_early_does_so_whatever_the_agent_says_of_the_others() -> None:
    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    agent = made([Reply(call("look"), wait(0.3), say("So.")), Reply("Done.")], look, pay, start="call")
    assert (agent.policies["look"].start, agent.policies["pay"].start) == ("closed", "call")
    assert made([], look, start="turn").policies["look"].start == "turn"


@both_colours
def test_a_later_read_does_not_overtake_a_write_that_runs_alone(colour: str) -> None:
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
    assert results(end_of(events_of(made([Reply(*calls), Reply("Done.")], read, write), colour))) == [
        "old", "written", "new",
    ]  # fmt: skip


# -- async tools in plain code -----------------------------------------------------------------------------------------


@both_colours
def test_async_tools_of_one_run_share_a_loop(colour: str) -> None:
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
    done = end_of(events_of(made([*answers, Reply("Done.")], careful, plain), colour))
    assert (results(done), len(loops)) == (["0", "1", "2", "3"], 1)


def test_async_callbacks_of_a_plain_run_share_the_loop_of_its_tools_and_its_variables() -> None:
    loops = []

    async def on_text(text: str) -> None:
        loops.append(asyncio.get_running_loop())

    @tool
    async def look() -> str:
        """Look."""
        loops.append(asyncio.get_running_loop())
        return "seen"

    before = threading.active_count()
    made([Reply(say("One two three."), call("look")), Reply("Done.")], look, on_text=on_text).run("Go.")
    assert len(loops) > 3
    assert len(set(loops)) == 1
    assert (loops[0].is_closed(), threading.active_count()) == (True, before)


@both_colours
def test_an_error_of_an_async_callback_is_the_readers(colour: str) -> None:
    async def on_text(text: str) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_of(made([Reply("Hi.")], on_text=on_text), colour, "Go.")


def test_what_does_not_listen_is_waited_for_once() -> None:
    @tool
    async def deaf() -> str:
        """Hear nothing."""
        for _ in range(100):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass
        return "late"

    began = time.monotonic()
    with made([Reply(call("deaf")), Reply("Done.")], deaf).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolStart):
                running.cancel()
    assert time.monotonic() - began < 2 * MAX_WAIT - 0.1


# -- what others do to its tasks ---------------------------------------------------------------------------------------


@both_colours
def test_a_tool_that_cancels_itself_has_failed(colour: str) -> None:
    @tool
    async def suicidal() -> str:
        """Give up."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(SOON)
        return "not reached"

    done = end_of(events_of(made([Reply(call("suicidal")), Reply("Done.")], suicidal), colour))
    assert (results(done), done.reason) == (["CancelledError"], "answered")


def test_a_run_whose_reading_task_is_cancelled_ends() -> None:
    async def run() -> Done:
        ours = asyncio.current_task()
        async with asyncio.timeout(SOON), made([Reply(say("One."), wait(SOON), say("Two."))]).astream("Go.") as running:
            async for _ in running:
                for task in asyncio.all_tasks():
                    if task is not ours:
                        task.cancel()
        assert running.done is not None
        return running.done

    assert asyncio.run(run()).reason == "cancelled"


INTERRUPTED = """
import asyncio, os, signal, time
from penstock import Agent, Model
from penstock.testing import Reply, Scripted, call

async def busy() -> str:
    "Be busy."
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
    return "done"

agent = Agent(Model("openai-compatible:m", via=Scripted([Reply(call("busy")), Reply("Done.")])), [busy])
try:
    asyncio.new_event_loop().run_until_complete(agent.arun("Go."))
except KeyboardInterrupt:
    print("interrupted")
else:
    print("went on")
"""


def test_a_persons_interrupt_is_no_result_of_a_tool() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "interrupted\n", done.stderr


# -- what a model or a tool may be made to do --------------------------------------------------------------------------


def nested(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = json.loads('{"a":' * depth + "1" + "}" * depth)
    return made


@both_colours
@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"approval": lambda given: False}], ids=["usual", "early", "asks"])
@pytest.mark.parametrize("depth", [400, 480, 500, 510])
def test_arguments_as_deep_as_may_be_come_to_an_end(depth: int, options: Any, colour: str) -> None:
    @tool(**options)
    def take(a: Any) -> str:
        """Take it."""
        return "taken"

    done = end_of(events_of(made([Reply(call("take", json.dumps(nested(depth)))), Reply("Done.")], take), colour))
    assert done.reason == "answered"
    assert len(results(done)) == 1


def test_a_copy_is_one_all_the_way_down() -> None:
    given: Any = {"a": [1, {"b": [2.5, None]}], "c": {}, "d": "text"}
    other = copied(given)
    assert other == given
    other["a"][1]["b"].append(3)
    other["c"]["x"] = 1
    assert given == {"a": [1, {"b": [2.5, None]}], "c": {}, "d": "text"}
    deep = copied(nested(100_000 if sys.version_info >= (3, 12) else 900))
    assert deep.keys() == {"a"}
    assert copied("text") == "text"


@both_colours
def test_a_predicate_that_leaves_the_program_asks(colour: str) -> None:
    def leave(given: dict[str, Any]) -> bool:
        sys.exit(1)

    done = end_of(events_of(made([Reply(call("risky")), Reply("Done.")], tool(approval=leave)(risky)), colour))
    assert done.reason == "paused"


def risky() -> str:
    """Do it."""
    return "done"


@both_colours
def test_a_run_that_breaks_within_itself_ends_and_says_so(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *_: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(Run, "tool_done", broken)
    done = end_of(events_of(made([Reply(call("pay")), Reply("Done.")], pay), colour))
    assert (done.reason, done.why) == ("error", "too deep")
    monkeypatch.setattr(Run, "ended", broken)
    done = end_of(events_of(made([Reply("Hi.")], pay), colour))
    assert (done.reason, done.why) == ("error", "too deep")


# -- progress ----------------------------------------------------------------------------------------------------------


@both_colours
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_progress_is_told_when_it_is_made(kind: str, colour: str) -> None:
    made_at: list[float] = []

    def download() -> Iterator[str]:
        """Download."""
        for what in ("loading", "unpacking"):
            made_at.append(time.monotonic())
            yield what
            time.sleep(0.3)

    async def adownload() -> AsyncIterator[str]:
        """Download."""
        for what in ("loading", "unpacking"):
            made_at.append(time.monotonic())
            yield what
            await asyncio.sleep(0.3)

    function: Any = tool(name="download")(download if kind == "plain" else adownload)
    seen: list[float] = []
    agent = made([Reply(call("download")), Reply("Done.")], function)

    async def read() -> None:
        async with agent.astream("Go.") as running:
            async for event in running:
                if isinstance(event, ToolProgress):
                    seen.append(time.monotonic())

    if colour == "async":
        asyncio.run(read())
    else:
        with agent.stream("Go.") as running:
            seen += [time.monotonic() for event in running if isinstance(event, ToolProgress)]
    assert [at - begun < 0.2 for at, begun in zip(seen, made_at, strict=True)] == [True, True]


# -- errors that come in band ------------------------------------------------------------------------------------------


@both_colours
@pytest.mark.parametrize("wire", NAMES)
def test_an_answer_that_begins_with_an_error_that_passes_is_asked_for_again(wire: str, colour: str) -> None:
    quick = Retries(attempts=2, first_delay=0.0)
    busy = "overloaded_error" if wire == "anthropic" else "server_error"
    with Loopback([Reply(fail(busy, "The server is overloaded.")), Reply("Here I am.")]) as server:
        model = Model(NAMES[wire], server.base_url(wire), "a-key-of-mine", retries=quick)
        result = run_of(Agent(model), colour, "Go.")
    assert (result.output, result.reason, len(server.requests)) == ("Here I am.", "answered", 2)


@both_colours
def test_an_error_in_band_is_raised_where_nothing_was_said_and_else_kept(colour: str) -> None:
    never = Retries(attempts=0)
    with pytest.raises(ProviderError, match="Too much"):
        run_of(made([Reply(fail("overloaded_error", "Too much."))], retries=never), colour, "Go.")
    result = run_of(made([Reply(say("One."), fail("overloaded_error", "Too much."))], retries=never), colour, "Go.")
    assert isinstance(result.error, ProviderError)
    assert (result.output, result.reason, str(result.error)) == ("One.", "error", "Too much.")


@both_colours
def test_what_was_withdrawn_has_been_paid_for(colour: str) -> None:
    usage = Usage(input_tokens=10, output_tokens=3)
    replies = [Reply(say("One."), drop(), usage=usage), Reply(say("Two."), usage=usage)]
    agent = on("anthropic", replies, retries=Retries(after_start=True, first_delay=0.0))
    done = end_of(events_of(agent, colour))
    assert done.output == "Two."
    assert done.usage.input_tokens == 20


# -- runs as they are used ---------------------------------------------------------------------------------------------


def test_a_run_can_be_read_event_by_event() -> None:
    running = made([Reply("Hi.")]).stream("Go.")
    first = next(running)
    rest = list(iter(lambda: next(running, None), None))
    told = [type(event).__name__ for event in (first, *rest)]
    assert (told[0], told[-1]) == ("StepStart", "Done")

    async def read() -> list[str]:
        running = made([Reply("Hi.")]).astream("Go.")
        names = [type(await anext(running)).__name__]
        async with running:
            while (event := await anext(running, None)) is not None:
                names.append(type(event).__name__)
        return names

    assert asyncio.run(read()) == told


def test_what_is_no_stored_run_is_refused() -> None:
    agent = made([Reply("Hi.")])
    state = {"penstock_run": 99, "phase": "sleeping"}
    wrong: list[Any] = [None, {}, b"{", b'{"penstock_run": 0}']
    for stored, told in [*((one, "no stored run") for one in wrong), (json.dumps(state), "a later version")]:
        with pytest.raises(UsageError, match=told):
            agent.resume(stored)


def test_a_run_that_was_not_entered_says_so_to_another_thread() -> None:
    agent = made([Reply(call("risky")), Reply("Done.")], tool(approval=True)(risky))
    state = agent.run("Go.").state
    assert state is not None

    async def decide() -> None:
        running = agent.aresume(state)
        with pytest.raises(UsageError, match="enter it first"):
            await asyncio.to_thread(running.decide, "x", True)

    asyncio.run(decide())


@both_colours
def test_a_decision_is_checked_once_where_it_is_made(colour: str) -> None:
    checked: list[int] = []

    @tool(approval=True)
    def risky(number: int) -> str:
        """Do it."""
        return f"did {number}"

    policy = made([], risky).policies["risky"]

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        checked.append(arguments["number"])
        return arguments

    run = Run([user("Go.")], {"risky": type(policy)(needs_approval=lambda given: True, check=check)})
    run.begin()
    run.chunk(ToolCall("c", "risky", {"number": 1}, sealed_by="call_end"))
    run.chunk(Finish("tool_calls"))
    run.ended()
    run.decide("c", True, {"number": 2})
    assert checked.count(2) == 1


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


def test_a_streamer_in_plain_code_starts_inline() -> None:
    text = "<function_calls><invoke name='pay'><parameter name='euros'>3</parameter></invoke></function_calls>"
    agent = AgentStreamer(Model("openai-compatible:m", via=Scripted([Reply(text.replace("'", '"')), "Done."])), [pay])
    ends = [event for event in events_of(agent, "sync") if isinstance(event, ToolEnd)]
    assert [end.result.text for end in ends] == ["paid 3"]
