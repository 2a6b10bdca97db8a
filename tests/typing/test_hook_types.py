"""The types of hooks around a call and of `prepare`: mypy and pyright check this file, and it runs as a test.

A line with `type: ignore` must be an error for both: an ignore that is not needed is an error itself.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import pytest

import penstock
from penstock import (
    Agent,
    Context,
    Growing,
    Model,
    PendingCall,
    Prepared,
    Source,
    Tool,
    ToolOutput,
    ToolResult,
    UsageError,
)
from penstock.hooks import LargeResults, ask_if_from
from penstock.testing import Reply, Scripted, call


def scripted(*script: Reply | str) -> Model:
    return Model("openai:gpt-5", via=Scripted(list(script)))


@penstock.tool
def pay(euros: int, to: str = "Ada") -> str:
    """Pay."""
    return f"{to} {euros}"


def decide(pending: PendingCall) -> PendingCall | None:
    assert_type(pending.arguments, dict[str, Any])
    assert_type(pending.raw_arguments, dict[str, Any])
    assert_type(pending.tool, Tool[..., Any] | None)
    assert_type(pending.sources.get("to"), tuple[Source, ...] | None)
    assert_type(pending.with_arguments({"euros": 2}), PendingCall)
    assert_type(pending.ask("why").refuse("no"), PendingCall)
    return pending.answer({"paid": 0}) if pending.arguments["euros"] > 100 else None


async def decide_later(pending: PendingCall) -> PendingCall | None:
    return None if await pending.asources() else pending


def note(pending: PendingCall) -> None:
    assert pending.name


def shorten(pending: PendingCall, result: ToolResult) -> str | None:
    return result.text[:10] or None


async def shorten_later(pending: PendingCall, result: ToolResult) -> ToolOutput:
    return ToolOutput(result.text, data=1)


def test_hooks_of_calls_are_functions_or_lists_of_them() -> None:
    large = LargeResults(limit=500)
    hooks: list[Callable[[PendingCall], Any]] = [decide, decide_later, note, ask_if_from("tool")]
    agent = Agent(
        scripted(Reply(call("pay", {"euros": 1})), "Done."), [pay, *large.tools], before_call=hooks,
        after_call=[shorten, shorten_later, large],
    )  # fmt: skip
    result = agent.run("Go.")
    assert_type(result.tool_failures, tuple[Exception, ...])
    assert (result.output, result.tool_failures) == ("Done.", ())
    for hook in (decide, decide_later, note):
        Agent(scripted(), [pay], before_call=hook)
    Agent(scripted(), [pay], after_call=shorten).run  # noqa: B018
    assert Agent(scripted("Hi."), [pay]).run("Go.", before_call=decide, after_call=None).output == "Hi."


def test_other_hooks_are_errors() -> None:
    def returns_text(pending: PendingCall) -> str:
        return pending.name

    def takes_result(pending: PendingCall, result: ToolResult) -> None:
        return None

    Agent(scripted(), [pay], before_call=returns_text)  # type: ignore[arg-type]
    Agent(scripted(), [pay], before_call=takes_result)  # type: ignore[arg-type]
    Agent(scripted(), [pay], after_call=note)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Agent(scripted(), [pay], before_call="text")  # type: ignore[arg-type]


def look(path: str, context: Context[int]) -> Prepared:
    return Prepared(path * context.deps, preview=path)


async def look_later(path: str) -> str:
    return path


async def read(arguments: Growing, context: Context[int]) -> str:
    text = ""
    async for place, piece in arguments:
        assert_type(place, tuple[str | int, ...])
        text += str(piece)
    arguments.on_discard(lambda: None)
    return text


def test_prepare_keeps_the_type_of_its_tool() -> None:
    @penstock.tool(prepare=look)
    def edit(path: str, context: Context[int]) -> str:
        """Edit."""
        assert_type(context.prepared, Any)
        return f"{context.prepared}"

    @penstock.tool(prepare=look_later, parallel=False)
    async def move(path: str) -> int:
        """Move."""
        return len(path)

    @penstock.tool(prepare=read)
    def save(text: str) -> None:
        """Save."""

    assert_type(edit("a", Context(1)), str)
    assert_type(save("a"), None)
    agent = Agent[int](scripted(Reply(call("edit", {"path": "ab"})), "Done."), [edit, move, save])
    result = agent.run("Go.", deps=2)
    assert result.messages[2].results[0].text == "abab"
    with pytest.raises(UsageError):
        penstock.tool(prepare="text")(pay.__wrapped__)  # type: ignore[call-overload]
