"""Odd hooks and `prepare` functions: whatever they do, their calls do not run by mistake, and the run goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import force_setattr, replace

from penstock import Context, Limits, PendingCall, Prepared, ToolEnd, ToolResult, tool
from penstock.log import memory
from penstock.messages import Message
from penstock.results import MAX_RESULT
from penstock.run.commands import CallReview
from penstock.testing import Reply, call, wait
from tests.leaks import nothing_is_left  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tests.scripted_runs import SOON, Bench, drive, end_of, made, on, results, run_of, streaming, sync_and_async

THREE = [Reply(*(call("write", {"text": text}, id=f"c{text}") for text in "abc")), Reply("Done.")]
FAILED = "Not run: a hook of this program failed ({})."


def for_b(function: Callable[[PendingCall], Any]) -> Callable[[PendingCall], Any]:
    """A hook that does something odd for the second of three calls."""

    def odd(call: PendingCall) -> Any:
        return function(call) if call.arguments["text"] == "b" else None

    return odd


async def coroutine_of(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def generator(call: PendingCall) -> Any:
    yield call


async def async_generator(call: PendingCall) -> Any:
    yield call


def cancel_task(call: PendingCall) -> Any:
    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    return cancel()


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


class Raises(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")

    __repr__ = __str__


def raise_it(error: BaseException) -> Any:
    raise error


def recurse(call: PendingCall) -> Any:
    return recurse(call)


def with_review(call: PendingCall, **changes: Any) -> PendingCall:
    return replace(call, review=replace(call.review, **changes))


def tamper(call: PendingCall) -> None:
    force_setattr(call, "review", CallReview("refuse"))
    force_setattr(call, "arguments", {"text": "tampered"})
    force_setattr(call, "written", {"text": "tampered"})


ODD: dict[str, tuple[Callable[[PendingCall], Any], str]] = {
    # what the call of the second hook ends with; the others always run
    "returns a coroutine": (lambda call: coroutine_of(call.refuse("no")), "Not run: no."),
    "returns a coroutine of a coroutine": (lambda call: coroutine_of(coroutine_of(None)), FAILED.format("HookError")),
    "returns a generator": (generator, FAILED.format("HookError")),
    "returns an async generator": (async_generator, FAILED.format("HookError")),
    "returns a mock": (lambda call: MagicMock(), FAILED.format("HookError")),
    "returns a class": (lambda call: PendingCall, FAILED.format("HookError")),
    "returns an exception": (lambda call: ValueError("no"), FAILED.format("HookError")),
    "changes its copy": (lambda call: call.arguments.clear(), "written"),
    "changes a frozen copy": (tamper, "written"),
    "raises a group": (lambda call: raise_it(ExceptionGroup("x", [ValueError()])), FAILED.format("ExceptionGroup")),
    "raises what has no text": (lambda call: raise_it(Raises()), FAILED.format("Raises")),
    "recurses": (recurse, FAILED.format("RecursionError")),
    "cancels its task": (cancel_task, FAILED.format("CancelledError")),
    "cyclic arguments": (lambda call: call.with_arguments({"text": cyclic()}), FAILED.format("UsageError")),
    "deep arguments": (lambda call: call.with_arguments({"text": deep(100_000)}), FAILED.format("UsageError")),
    "an unknown argument": (lambda call: call.with_arguments({"text": "b", "x": 1}), FAILED.format("ArgumentsError")),
    "keys that are not text": (lambda call: call.with_arguments({1: "b"}), FAILED.format("ArgumentsError")),  # type: ignore[dict-item]
    "half a character": (lambda call: call.with_arguments({"text": "\ud83d"}), FAILED.format("ArgumentsError")),
    "a reason that is not text": (lambda call: call.refuse(7), FAILED.format("UsageError")),  # type: ignore[arg-type]
    "a huge reason": (lambda call: call.refuse("no " * 10**6), "Not run: no no"),
    "a huge answer": (lambda call: call.answer("x" * 10**7), "xxx"),
    "an answer without a JSON form": (lambda call: call.answer(object()), "The tool returned an object of type object"),
    "a review with another outcome": (lambda call: with_review(call, outcome="text"), FAILED.format("HookError")),
    "a review with another verdict": (lambda call: with_review(call, verdict="run"), FAILED.format("HookError")),
    "a review with other arguments": (
        lambda call: with_review(call, arguments={"text": object()}), FAILED.format("ArgumentsError"),
    ),
    "a review with arguments that are not a dict": (
        lambda call: with_review(call, arguments=["text"]), FAILED.format("HookError"),
    ),
    "a review that asks for no reason": (lambda call: with_review(call, why=7), FAILED.format("HookError")),
}  # fmt: skip


@sync_and_async
@pytest.mark.parametrize("has_log", [False, True])
@pytest.mark.parametrize("how", ODD)
def test_an_odd_hook_decides_about_its_own_call_only(how: str, mode: str, has_log: bool) -> None:
    function, expected = ODD[how]
    bench, store = Bench(), memory()
    agent = made(THREE, *bench.tools, before_call=for_b(function), name="clerk")
    log: Any = {"log": store, "run_id": "r"} if has_log else {}
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **log), mode)
    first, second, third = results(end_of(events))
    assert (first, third, run.output) == ("written", "written", "Done.")
    assert second.startswith(expected)
    assert len(second) < MAX_RESULT + 200
    assert bench.ran["write a"] == bench.ran["write c"] == 1
    assert sum(bench.ran.values()) == 2 + expected.endswith("written")
    assert len(run.tool_failures) == ("a hook of this program failed" in expected)


ODD_RESULTS: dict[str, tuple[Any, str]] = {
    "a coroutine": (lambda call, result: coroutine_of("short"), "short"),
    "a coroutine of a coroutine": (lambda call, result: coroutine_of(coroutine_of(1)), "withheld"),
    "a generator": (lambda call, result: (each for each in "abc"), "withheld"),
    "a huge text": (lambda call, result: "x" * 10**7, "xxx"),
    "a huge result": (
        lambda call, result: replace(result, content=(replace(result.content[0], text="x" * 10**7),)),
        "xxx",
    ),
    "a result of another call": (lambda call, result: ToolResult("other", "other", result.content), "written"),
    "half a character": (lambda call, result: "\ud83d", "�"),
    "the call": (lambda call, result: call, "withheld"),
    "an exception": (lambda call, result: raise_it(Raises()), "withheld"),
    "a task that cancels itself": (lambda call, result: cancel_task(call), "withheld"),
}


@sync_and_async
@pytest.mark.parametrize("has_log", [False, True])
@pytest.mark.parametrize("how", ODD_RESULTS)
def test_an_odd_hook_of_results_never_lets_a_result_pass_by_mistake(how: str, mode: str, has_log: bool) -> None:
    hook, expected = ODD_RESULTS[how]
    bench, store = Bench(), memory()
    agent = made(THREE, *bench.tools, after_call=hook, name="clerk")
    log: Any = {"log": store, "run_id": "r"} if has_log else {}
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **log), mode)
    texts = results(end_of(events))
    assert run.output == "Done."
    assert all(expected in text and len(text) < MAX_RESULT + 200 for text in texts)
    assert {event.call_id for event in events if isinstance(event, ToolEnd)} == {"ca", "cb", "cc"}
    assert bench.ran == {"write a": 1, "write b": 1, "write c": 1}
    assert len(run.tool_failures) == 3 * (expected == "withheld")


# -- prepare -----------------------------------------------------------------------------------------------------------


def prepares(function: Any, order: list[str], **options: Any) -> Any:
    @tool(prepare=function, **options)
    def edit(text: str, context: Context[Any]) -> str:
        """Edit."""
        order.append(text)
        return f"{text} {context.prepared}"

    return edit


def edits() -> list[Reply]:
    return [Reply(*(call("edit", {"text": text}, id=f"c{text}") for text in "abc")), Reply("Done.")]


class Uncopied:
    def __deepcopy__(self, memory: Any) -> Any:
        raise TypeError("a connection")

    def __str__(self) -> str:
        return "connection"


async def return_value(text: str) -> str:
    await asyncio.sleep(0)
    return "later"


async def cancel_prepare(text: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def ask_somebody(text: str, context: Context[Any]) -> Any:
    return context.ask({"question": "?"}, 1.0)


PREPARED: dict[str, tuple[Any, str, int]] = {
    # what the tool gets, or a part of the error; and how many exceptions are reported
    "returns a coroutine": (lambda text: return_value(text), "later", 0),
    "returns what cannot be copied": (lambda text: Uncopied(), "connection", 0),
    "returns nothing": (lambda text: None, "None", 0),
    "returns a huge value": (lambda text: Prepared("v", preview="x" * 10**7), "v", 0),
    "a preview that is not text": (lambda text: Prepared("v", preview=7), "preview", 3),  # type: ignore[arg-type]
    "raises": (lambda text: raise_it(Raises()), "Raises", 3),
    "raises KeyboardInterrupt": (lambda text: raise_it(KeyboardInterrupt()), "KeyboardInterrupt", 3),
    "cancels its task": (cancel_prepare, "CancelledError", 0),
    "asks": (ask_somebody, "Context.ask", 3),
    "has side effects on its arguments": (lambda **arguments: arguments.clear(), "None", 0),
}  # fmt: skip


@sync_and_async
@pytest.mark.parametrize("has_log", [False, True])
@pytest.mark.parametrize("how", PREPARED)
def test_an_odd_prepare_never_ends_the_run(how: str, mode: str, has_log: bool) -> None:
    function, expected, failures = PREPARED[how]
    order: list[str] = []
    agent = made(edits(), prepares(function, order), name="clerk")
    log: Any = {"log": memory(), "run_id": "r"} if has_log else {}
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **log), mode)
    texts = results(end_of(events))
    assert run.output == "Done."
    assert len(texts) == 3
    assert all(expected in text for text in texts), texts
    assert len(run.tool_failures) == failures
    fails = failures or "Cancelled" in expected
    assert sorted(order) == ([] if fails else ["a", "b", "c"])


# -- cancelled runs ----------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("option", ["before_call", "after_call", "prepare"])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_raises_while_it_is_cancelled_ends_quietly(option: str, mode: str, is_async: bool) -> None:
    began, go = threading.Event(), threading.Event()

    def plain(*values: Any, **named: Any) -> None:
        began.set()
        go.wait(SOON)
        raise ValueError("too late")

    async def later(*values: Any, **named: Any) -> None:
        began.set()
        try:
            await asyncio.sleep(SOON)
        finally:
            raise ValueError("while it is cancelled")

    function = later if is_async else plain
    bench, order = Bench(), list[str]()
    if option == "prepare":
        edit = prepares(function, order)
        agent = on("anthropic", [Reply(call("edit", {"text": "a"}), wait(SOON))], edit)
    else:
        agent = made(THREE, *bench.tools, **{option: function}, limits=Limits(hook_seconds=None))

    def start(prefix: str) -> Any:
        run = getattr(agent, f"{prefix}stream")("Go.")

        def cancel() -> None:
            began.wait(SOON)
            run.cancel() if loop is None else loop.call_soon_threadsafe(run.cancel)

        loop = asyncio.get_running_loop() if prefix else None
        threading.Thread(target=cancel).start()
        return run

    try:
        events, run = drive(start, mode)
    finally:
        go.set()
    assert end_of(events).reason == "cancelled"
    assert order == []
    assert run.error is None


@sync_and_async
def test_hooks_may_run_agents(mode: str) -> None:
    judge = made([Reply("fine"), Reply("fine"), Reply("fine")])

    async def ask(call: PendingCall) -> PendingCall | None:
        return None if (await judge.arun("Is it fine?")).output == "fine" else call.refuse("no")

    def ask_plain(call: PendingCall) -> PendingCall | None:
        return None if made([Reply("fine")]).run("Is it fine?").output == "fine" else call.refuse("no")

    bench = Bench()
    assert run_of(made(THREE, *bench.tools, before_call=[ask, ask_plain]), mode, "Go.").tool_failures == ()
    assert sum(bench.ran.values()) == 3


@sync_and_async
def test_callables_of_all_kinds_are_hooks(mode: str) -> None:
    class Sync:
        def __call__(self, call: PendingCall) -> PendingCall:
            return call.ask("object")

    class Async:
        async def __call__(self, call: PendingCall) -> PendingCall:
            return call.ask("async object")

        @staticmethod
        def check(call: PendingCall) -> PendingCall:
            return call.ask("static")

        @classmethod
        async def check_later(cls, call: PendingCall) -> PendingCall:
            return call.ask("class")

    async def named(why: str, call: PendingCall) -> PendingCall:
        return call.ask(why)

    hooks = [
        Sync(),
        Async(),
        Async.check,
        Async.check_later,
        partial(named, "partial"),
        MagicMock(return_value=None),
    ]
    result = run_of(made(THREE, *Bench().tools, before_call=hooks), mode, "Go.")
    assert {request.note for request in result.waiting} == {"object; async object; static; class; partial"}


@sync_and_async
def test_a_hook_that_hangs_does_not_hold_a_cancelled_run(mode: str) -> None:
    release, began = threading.Event(), threading.Event()

    def hang(call: PendingCall) -> None:
        began.set()
        release.wait(SOON)

    agent = made(THREE, *Bench().tools, before_call=hang, limits=Limits(hook_seconds=None, seconds=0.3))
    with suppress(TimeoutError):
        events, _ = drive(streaming(agent), mode)
        assert end_of(events).reason == "limit"
    assert began.is_set()
    release.set()


def test_the_history_in_a_hook_is_of_messages() -> None:
    seen: list[tuple[Message, ...]] = []
    made(THREE, *Bench().tools, before_call=lambda call: seen.append(call.messages)).run("Go.")
    assert all(isinstance(message, Message) for messages in seen for message in messages)
