"""Mistakes in `before_call`, `after_call` and `prepare` are as loud as those in a tool, and not counted against it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Agent,
    AgentStreamer,
    ArgumentsError,
    Context,
    HookError,
    Limits,
    PendingCall,
    Prepared,
    ToolEnd,
    ToolError,
    ToolResult,
    UsageError,
    tool,
)
from penstock.agent.calls.growing_arguments import GrowingArguments
from penstock.log import memory
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tests.scripted_runs import SOON, Bench, drive, end_of, made, on, results, run_of, streaming, sync_and_async

SECRET = "do-not-print-this"
WRITE = [Reply(call("write", {"text": "a"})), Reply("Done.")]


def before(call: PendingCall) -> None:
    raise LookupError(SECRET)


async def abefore(call: PendingCall) -> None:
    raise LookupError(SECRET)


def after(call: PendingCall, result: ToolResult) -> None:
    raise LookupError(SECRET)


async def aafter(call: PendingCall, result: ToolResult) -> None:
    raise LookupError(SECRET)


def prepare() -> None:
    raise LookupError(SECRET)


async def aprepare() -> None:
    raise LookupError(SECRET)


def edit() -> str:
    """Edit."""
    raise AssertionError


def agent_of(where: str, *script: Any, **options: Any) -> Agent:
    """An agent whose hooks or `prepare` function fail."""
    replies = script or (Reply(call("edit" if "prepare" in where else "write", _arguments(where))), Reply("Done."))
    kind, function = FAILING[where]
    if kind == "prepare":
        return made(replies, tool(edit, prepare=function), name="clerk", **options)
    return made(replies, *Bench().tools, name="clerk", **{kind: function}, **options)


def _arguments(where: str) -> dict[str, Any]:
    return {} if "prepare" in where else {"text": "a"}


FAILING: dict[str, tuple[str, Callable[..., Any]]] = {
    "before": ("before_call", before), "async before": ("before_call", abefore),
    "after": ("after_call", after), "async after": ("after_call", aafter),
    "prepare": ("prepare", prepare), "async prepare": ("prepare", aprepare),
}  # fmt: skip
anywhere = pytest.mark.parametrize("where", FAILING)


@sync_and_async
@anywhere
def test_the_exception_of_a_hook_is_in_the_result(where: str, mode: str) -> None:
    result = run_of(agent_of(where), mode, "Go.")
    assert (result.output, result.reason, result.error) == ("Done.", "answered", None)
    [failure] = result.tool_failures
    assert isinstance(failure, LookupError)
    assert failure.__traceback__ is not None


@sync_and_async
@anywhere
def test_the_exception_of_a_hook_can_end_the_run(where: str, mode: str) -> None:
    with pytest.raises(LookupError, match=SECRET):
        run_of(agent_of(where, tool_exceptions="raise"), mode, "Go.")
    events, run = drive(streaming(agent_of(where, tool_exceptions="raise")), mode)
    assert (run.finish_reason, type(run.error)) == ("error", LookupError)
    assert run.tool_failures == (run.error,)
    assert end_of(events).reason == "error"
    [text] = [result.text for message in run.messages for result in message.results]
    assert text.startswith("It ran" if "after" in where else ("Not run", "LookupError"))


@anywhere
def test_a_run_with_a_log_ends_with_the_exception_too(where: str) -> None:
    store = memory()
    with pytest.raises(LookupError):
        agent_of(where, tool_exceptions="raise").run("Go.", log=store, run_id="r1")
    with agent_of(where, Reply("Never.")).stream("Go.", log=store, run_id="r1") as again:
        list(again)
    assert again.finish_reason == "error"


@anywhere
def test_process_stream_reports_and_raises_it_as_well(where: str) -> None:
    option, function = FAILING[where]
    text = '<function_calls><invoke name="write"><parameter name="text">a</parameter></invoke></function_calls>'

    def write(text: str) -> str:
        """Write."""
        return text

    options: dict[str, Any] = {} if option == "prepare" else {option: function}
    tools = [tool(write, prepare=function if option == "prepare" else None)]
    reported = asyncio.run(AgentStreamer(tools=tools, **options).process_stream([text]))
    assert reported[-1].results[0].is_error
    with pytest.raises(LookupError):
        asyncio.run(AgentStreamer(tools=tools, tool_exceptions="raise", **options).process_stream([text]))


# -- the log record, and standard error --------------------------------------------------------------------------------


class Policy:
    def __call__(self, call: PendingCall) -> None:
        raise LookupError(SECRET)

    def check(self, call: PendingCall) -> None:
        raise LookupError(SECRET)


def first_line(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno


def nothing(call: PendingCall) -> bool:
    return True


def takes_nothing() -> None:
    raise AssertionError


def does_not_fit(call: PendingCall) -> PendingCall:
    return call.with_arguments({"text": 1})


def curried(secret: str, call: PendingCall) -> None:
    raise LookupError(secret)


LINES: dict[str, tuple[Any, str, int]] = {
    "function": (before, "before_call (before) raised LookupError", first_line(before) + 1),
    "async": (abefore, "before_call (abefore) raised LookupError", first_line(abefore) + 1),
    "object": (Policy(), "before_call (Policy.__call__) raised LookupError", first_line(Policy.__call__) + 1),
    "method": (Policy().check, "before_call (Policy.check) raised LookupError", first_line(Policy.check) + 1),
    "partial": (partial(curried, SECRET), "before_call (curried) raised LookupError", first_line(curried) + 1),
    "second": ([lambda call: None, before], "before_call (before) raised LookupError", first_line(before) + 1),
    "another type": (nothing, "before_call (nothing) failed with HookError", first_line(nothing)),
    "takes nothing": (takes_nothing, "before_call (takes_nothing) raised TypeError", first_line(takes_nothing)),
    "does not fit": (does_not_fit, "before_call (does_not_fit) failed with ArgumentsError", first_line(does_not_fit)),
}


@sync_and_async
@pytest.mark.parametrize("which", LINES)
def test_the_record_names_the_hook_and_the_line_of_the_user(
    which: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook, said, line = LINES[which]
    with caplog.at_level(logging.WARNING, "penstock.agent"):
        run_of(made(WRITE, *Bench().tools, before_call=hook), mode, "Go.")
    [record] = [record.getMessage() for record in caplog.records if "before_call" in record.getMessage()]
    assert record.endswith(f"{said} in test_failing_hooks.py, line {line}")
    assert SECRET not in caplog.text


@sync_and_async
def test_a_hook_that_hangs_is_named(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async def hang(call: PendingCall) -> None:
        await asyncio.sleep(SOON)

    agent = made(WRITE, *Bench().tools, before_call=hang, limits=Limits(hook_seconds=0.05))
    with caplog.at_level(logging.WARNING, "penstock.agent"):
        result = run_of(agent, mode, "Go.")
    place = f"in test_failing_hooks.py, line {first_line(hang)}"
    assert f"before_call (hang) took longer than 0.05 seconds {place}" in caplog.text
    [failure] = result.tool_failures
    assert isinstance(failure, TimeoutError)
    assert "before_call (hang) took longer than 0.05 seconds" in str(failure)


PROGRAM = f"""
import penstock
from penstock.testing import Reply, Scripted, call

def policy(*values):
    raise LookupError("{SECRET}")

def save(name: str) -> str:
    '''Save.'''
    return name

def look(name: str):
    return policy()

def go(prepare=None, **options):
    model = penstock.Model("openai:gpt-5", via=Scripted([Reply(call("save", {{"name": "a"}})), "Sorry."]))
    return penstock.Agent(model, [penstock.tool(save, prepare=prepare)], **options).run("Go.")
"""


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("go(before_call=policy)", "before_call (policy)"),
        ("go(after_call=policy)", "after_call (policy)"),
        ("go(prepare=look)", "prepare of the tool save"),
    ],
)
def test_standard_error_has_one_line(code: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + code)
    program = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert program.stderr == f"penstock: {what} raised LookupError in program.py, line 6\n"


# -- the limit of a tool -----------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("has_log", [False, True])
def test_a_failing_hook_does_not_count_against_the_tool(where: str, mode: str, has_log: bool) -> None:
    calls = [Reply(call("write", {"text": str(number)})) for number in range(6)]
    agent = agent_of(where, *calls, Reply("Done."))
    log: Any = {"log": memory(), "run_id": "r1"} if has_log else {}
    events, _ = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **log), mode)
    assert end_of(events).reason == "answered"
    ends = [event for event in events if isinstance(event, ToolEnd)]
    assert [(end.ending, end.is_withheld) for end in ends] == [("failed", where == "after")] * 6


@sync_and_async
def test_a_result_that_a_hook_makes_an_error_counts_against_the_tool(mode: str) -> None:
    calls = [Reply(call("broken", {})) for _ in range(6)]
    agent = made([*calls, Reply("Done.")], *Bench().tools, after_call=lambda call, result: "It broke.")
    events, _ = drive(streaming(agent), mode)
    assert (end_of(events).reason, "failed 4 times in a row" in end_of(events).why) == ("limit", True)


# -- what ends a program, but not a run ------------------------------------------------------------------------------


def raise_it(error: BaseException) -> Any:
    raise error


ENDING = {kind.__name__: kind for kind in (KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError)}
UNLIKELY = [*ENDING.values(), StopIteration, StopAsyncIteration]


@sync_and_async
@pytest.mark.parametrize("option", ["before_call", "after_call", "prepare", "approval", "before_step"])
@pytest.mark.parametrize("kind", UNLIKELY)
def test_what_a_hook_raises_in_its_thread_does_not_end_the_program(
    option: str, kind: type[BaseException], mode: str
) -> None:
    hook: Any = lambda *values: raise_it(kind(SECRET))  # noqa: E731
    bench = Bench()
    if option in ("prepare", "approval"):
        options: Any = {option: (lambda: hook()) if option == "prepare" else hook}
        agent = made([Reply(call("edit", {})), Reply("Done.")], tool(edit, **options))
    else:
        agent = made(WRITE, *bench.tools, **{option: hook})
    result = run_of(agent, mode, "Go.") if option != "before_step" else None
    match option:
        case "before_step":
            with pytest.raises(HookError, match=kind.__name__):
                run_of(agent, mode, "Go.")
        case "approval":
            assert result is not None
            assert (result.reason, len(result.waiting)) == ("paused", 1)
        case "prepare":
            assert result is not None
            assert result.output == "Done."
            assert kind.__name__ in result.messages[2].results[0].text
        case _:
            assert result is not None
            assert result.output == "Done."
            assert f"a hook of this program failed ({kind.__name__})" in result.messages[2].results[0].text
            assert len(result.tool_failures) == 1


@sync_and_async
@pytest.mark.parametrize("option", ["before_call", "after_call", "prepare", "approval"])
def test_a_generator_exit_of_an_async_hook_does_not_end_the_run(option: str, mode: str) -> None:
    async def hook(*values: Any) -> Any:
        await asyncio.sleep(0)
        raise GeneratorExit

    async def prepare() -> None:
        await hook()

    if option in ("prepare", "approval"):
        options: Any = {option: prepare if option == "prepare" else hook}
        agent = made([Reply(call("edit", {})), Reply("Done.")], tool(edit, **options))
    else:
        agent = made(WRITE, *Bench().tools, **{option: hook})
    result = run_of(agent, mode, "Go.")
    assert result.reason == ("paused" if option == "approval" else "answered")


# -- prepare -----------------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_timeout_error_of_prepare_is_its_own(mode: str, is_async: bool, timeout: float | None) -> None:
    def late() -> None:
        raise TimeoutError("the database is slow")

    async def alate() -> None:
        raise TimeoutError("the database is slow")

    edited = tool(edit, prepare=alate if is_async else late, timeout=timeout)
    result = run_of(made([Reply(call("edit", {})), Reply("Done.")], edited), mode, "Go.")
    assert [one.text for message in result.messages for one in message.results] == [
        "TimeoutError: the database is slow"
    ]
    assert [type(failure) for failure in result.tool_failures] == [TimeoutError]


@sync_and_async
def test_a_prepare_that_swallows_its_timeout_is_late(mode: str) -> None:
    async def prepare() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(SOON)
        return "late"

    edited = tool(edit, prepare=prepare, timeout=0.1)
    result = run_of(made([Reply(call("edit", {})), Reply("Done.")], edited), mode, "Go.")
    assert [one.text for message in result.messages for one in message.results] == [
        "The tool timed out after 0.1 seconds."
    ]


@sync_and_async
def test_what_a_prepare_says_to_the_model_is_not_a_failure_of_the_program(mode: str) -> None:
    def prepare() -> None:
        raise ToolError("There is no such file.")

    result = run_of(made([Reply(call("edit", {})), Reply("Done.")], tool(edit, prepare=prepare)), mode, "Go.")
    assert (result.output, result.tool_failures) == ("Done.", ())


@sync_and_async
def test_a_failure_of_prepare_counts_once_if_its_tool_waits_for_it(mode: str) -> None:
    """Also if the call has started, as after an approval in another process."""

    async def prepare() -> None:
        await asyncio.sleep(0.05)
        raise LookupError(SECRET)

    agent = on("anthropic", [Reply(call("edit", {})), Reply("Done.")], tool(edit, prepare=prepare, start="call"))
    events, run = drive(streaming(agent), mode)
    assert end_of(events).reason == "answered"
    assert [type(failure) for failure in run.tool_failures] == [LookupError]


class Deps:
    user = "Ada"


@sync_and_async
def test_a_prepare_that_needs_deps_is_a_mistake_before_the_first_request(mode: str) -> None:
    def prepare(context: Context[Deps]) -> Prepared:
        return Prepared(context.deps.user)

    agent = made([Reply(call("edit", {})), Reply("Done.")], tool(edit, prepare=prepare))
    with pytest.raises(
        UsageError, match=r"prepare of the tool 'edit' takes a Context\[Deps\], and the run has no deps"
    ):
        run_of(agent, mode, "Go.")
    assert results(end_of(drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", deps=Deps()), mode)[0]))


def test_errors_of_hooks_are_kept_as_they_are() -> None:
    agent = made(WRITE, *Bench().tools, before_call=does_not_fit)
    [failure] = agent.run("Go.").tool_failures
    assert isinstance(failure, ArgumentsError)


# -- on_discard --------------------------------------------------------------------------------------------------------


def exits() -> None:
    raise SystemExit(SECRET)


def test_a_cleanup_that_fails_is_reported_without_its_message_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[str] = []
    growing = GrowingArguments()
    growing.on_discard(lambda: called.append("first"))
    growing.on_discard(exits)
    asyncio.run(growing.during(lambda: asyncio.sleep(0)))
    growing.discard()
    assert called == ["first"]
    assert "a function of on_discard raised SystemExit in test_failing_hooks.py, line" in caplog.text
    assert SECRET not in caplog.text


def test_an_async_cleanup_is_a_mistake() -> None:
    async def cleanup() -> None:
        raise AssertionError

    with pytest.raises(UsageError, match="on_discard takes a plain function"):
        GrowingArguments().on_discard(cleanup)
