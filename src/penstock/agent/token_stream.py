"""`AgentStreamer.process_stream`: a response that the caller reads itself, as text, with the calls in it run inline.

The calls run one after another, each before the next token is read, so that the text before a call is shown before it
runs, and the text after it afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import Any

from msgspec.structs import replace

from penstock.agent.calls.call_hooks import CallHooks
from penstock.agent.calls.preparations import PreparingCall
from penstock.agent.calls.tool_execution import ToolExecution
from penstock.agent.config import AgentConfig
from penstock.agent.driver.user_code import UserCode, is_async
from penstock.agent.pending_call import PendingCall
from penstock.agent.reader_view import LineBreaks
from penstock.agent.records import RunRecords
from penstock.dialects.parser import TextParser
from penstock.dialects.provenance import Provenance
from penstock.errors import UsageError, type_name
from penstock.events import StreamChunk, Text, ToolCall, ToolCallInvalid
from penstock.guard.guard import StopRun
from penstock.healing.repairs import with_repairs
from penstock.jsontext.values import deep_copy
from penstock.messages import Message, ToolResult, tool_results
from penstock.results import Outcome, as_outcome, error_outcome, failure
from penstock.run.commands import StartTool
from penstock.run.events import StreamEvent, ToolEnd, ToolEnding, ToolStart
from penstock.run.input_checks import hook_note
from penstock.run.numbering import RunNumbering
from penstock.sentences import (
    CANNOT_ASK,
    CANNOT_DEFER,
    invalid_call,
    no_such_tool,
    too_many_calls,
    took_too_long,
)
from penstock.tools.policy import ToolPolicy
from penstock.tools.tool import Context, Tool, as_tool
from penstock.turn import TurnBuilder

Tokens = Iterable[str | None] | AsyncIterable[str | None]
"""Pieces of a response; None and the empty string are skipped."""

Executor = Callable[[str, dict[str, Any]], Any]
"""Runs a call by its name and arguments, and returns what a tool may return, or an awaitable of it."""


class TokenStream:
    """Reads one response as text. With an `executor`, that runs every call; without one, the tools of the agent do."""

    def __init__(self, config: AgentConfig, history: list[Message], executor: Executor | None, deps: Any) -> None:
        if executor is not None and not callable(executor):
            raise UsageError(f"the executor must be a function that takes a name and arguments, not {executor!r}")
        if config.guard is not None:
            raise UsageError("process_stream has no guard: use stream() or astream(), or check the tokens yourself")
        self._config = config
        self._executor = executor
        self._deps = deps
        self._policies = config.policies
        dialect = config.calls
        declarations = [tool.declaration for tool in config.tools.values() if not tool.is_hosted]
        self._parser = TextParser(
            "xml" if dialect == "native" else dialect, declarations, True, provenance=Provenance(history),
            confirm="close",
        )  # fmt: skip
        self._numbering = RunNumbering(history)
        self._line_breaks = LineBreaks() if config.separate_text else None
        self._builder = TurnBuilder()
        self._records = RunRecords(config)
        self._history = tuple(history)
        self._results: list[ToolResult] = []
        self._runs = 0

    async def read(self, tokens: Tokens) -> list[Message]:
        """Reads all tokens; returns the message of the response, and the message with the results if it has calls."""
        async for token in _each(tokens):
            await self._process(self._parser.feed(token))
        await self._process(self._parser.close())
        parts = self._builder.build().parts
        messages = [Message("assistant", parts)] if parts else []
        return [*messages, tool_results(*self._results)] if self._results else messages

    async def _process(self, events: list[StreamChunk]) -> None:
        if self._config.run_repaired:
            events = with_repairs(events)
        for event in self._numbering.feed(events):
            self._builder.add(event)
            await self._call_back(event)
            match event:
                case ToolCall():
                    await self._run(event, event.arguments)
                case ToolCallInvalid(repaired=dict(arguments), why=why) if why in self._config.run_repaired:
                    await self._run(event, arguments)
                case ToolCallInvalid():
                    await self._end(event, error_outcome(invalid_call(event)))
                case _:
                    pass

    async def _run(self, call: ToolCall | ToolCallInvalid, arguments: dict[str, Any]) -> None:
        reviewed = self._find_limit() or await self._review(call, arguments)
        if isinstance(reviewed, Outcome):
            await self._end(call, reviewed)
            return
        arguments = reviewed.arguments
        self._runs += 1
        fault = call.why if isinstance(call, ToolCallInvalid) else ""
        await self._call_back(ToolStart(call.id, call.id, call.name, deep_copy(arguments), is_early=True, fault=fault))
        start = StartTool(call.id, call.id, call.name, arguments)
        try:
            async with asyncio.timeout(self._timeout(call.name)):
                outcome = await self._execute(start)
        except TimeoutError:
            outcome = error_outcome(took_too_long(self._timeout(call.name) or 0.0))
        if self._config.after_call:
            result = ToolResult(call.id, call.name, outcome.content, outcome.is_error)
            policy = self._policies.get(call.name)
            hooks = CallHooks(self._config, UserCode())
            outcome = await hooks.revise(reviewed, result, outcome.data, policy) or outcome
            self._raise_first(hooks.raised)
        if reviewed.review.arguments is not None:
            note = Text(0, f"{hook_note(reviewed.review.arguments)}\n")
            outcome = replace(outcome, content=(note, *outcome.content))
        await self._end(call, outcome)

    async def _execute(self, start: StartTool) -> Outcome:
        if self._executor is not None:
            return await execute(self._executor, start.name, deep_copy(start.arguments))
        context = Context[Any](deps=self._deps, call_id=start.call_id, tool=start.name, step=1, report=_ignore)
        preparing = PreparingCall(self._config.tools[start.name], start.arguments, context)
        prepared = await preparing.run(UserCode())
        self._raise_first(preparing.raised)
        if isinstance(prepared, Outcome):
            return prepared
        context = replace(context, prepared=prepared.value)
        execution = ToolExecution(self._config.tools[start.name], start, context)
        outcome = await execution.run_on_loop(_no_wait)
        self._raise_first(execution.raised)
        return outcome

    def _raise_first(self, exceptions: list[Exception]) -> None:
        if exceptions and self._config.tool_exceptions == "raise":
            raise exceptions[0]

    async def _end(self, call: ToolCall | ToolCallInvalid, outcome: Outcome) -> None:
        result = ToolResult(call.id, call.name, outcome.content, outcome.is_error)
        self._results.append(result)
        ending: ToolEnding = "failed" if outcome.is_error else "done"
        await self._call_back(ToolEnd(call.id, result, ending, outcome.data))

    def _timeout(self, name: str) -> float | None:
        policy = self._policies.get(name)
        return None if policy is None else policy.timeout

    def _find_limit(self) -> Outcome | None:
        limits = [
            limit for limit in (self._config.limits.calls, self._config.limits.calls_per_answer) if limit is not None
        ]
        if limits and self._runs >= min(limits):
            return error_outcome(too_many_calls(min(limits)))
        return None

    async def _review(self, call: ToolCall | ToolCallInvalid, arguments: dict[str, Any]) -> PendingCall | Outcome:
        """The call as hooks let it run, or why it cannot run here. An executor decides for itself about approval."""
        pending = PendingCall(
            id=call.id, name=call.name, arguments=arguments, tool=self._config.tools.get(call.name),
            origin=call.origin, deps=self._deps, messages=self._history, run_id=self._records.run_id,
        )  # fmt: skip
        policy = self._policies.get(call.name) if self._executor is None else ToolPolicy()
        if policy is None:
            return error_outcome(no_such_tool(call.name, self._policies))
        if policy.is_deferred:
            return error_outcome(CANNOT_DEFER)
        hooks = CallHooks(self._config, UserCode())
        review = await hooks.review(pending, policy, step=1)
        self._raise_first(hooks.raised)
        assert not isinstance(review, StopRun)  # there is no guard here
        if isinstance(review, Outcome):
            return review
        if review.verdict == "ask":
            return error_outcome(CANNOT_ASK)
        if review.outcome is not None:
            return review.outcome
        final = arguments if review.arguments is None else review.arguments
        return replace(pending, arguments=final, review=review)

    async def _call_back(self, event: StreamEvent) -> None:
        if self._line_breaks is not None:
            event = self._line_breaks.feed(event)
        self._records.add([event])
        result = self._config.callbacks.call(event)
        if isawaitable(result):
            await result


async def execute(executor: Executor, name: str, arguments: dict[str, Any]) -> Outcome:
    """Runs a call by the caller's executor: on the loop if that is async, else in a thread."""
    try:
        call = partial(executor, name, arguments)
        return as_outcome(await UserCode().call(call, name, is_async=is_async(executor)))
    except Exception as error:  # noqa: BLE001  # the executor is user code: its error is the result
        return failure(error)


def with_executor(config: AgentConfig, executor: Executor) -> AgentConfig:
    """The configuration with tools that are run by the executor."""
    tools = {name: tool if tool.is_hosted else _by_executor(tool, executor) for name, tool in config.tools.items()}
    return replace(config, tools=tools)


def _by_executor(tool: Tool[..., Any], executor: Executor) -> Tool[..., Any]:
    async def call(**arguments: Any) -> Outcome:
        return await execute(executor, tool.name, arguments)

    return as_tool(
        tool.declaration, call, read_only=tool.read_only, start=tool.start, approval=tool.approval,
        timeout=tool.timeout, retries=tool.retries, parallel=tool.parallel,
    )  # fmt: skip


async def _each(tokens: Tokens) -> AsyncIterator[str]:
    if isinstance(tokens, AsyncIterable):
        async for token in tokens:
            if text := _checked(token):
                yield text
    elif isinstance(tokens, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller may pass anything
        for token in [tokens] if isinstance(tokens, str) else tokens:
            if text := _checked(token):
                yield text
    else:
        raise UsageError(f"tokens must be an iterator of text, not {type_name(tokens)}")


def _checked(token: Any) -> str:
    if token is None or isinstance(token, str):
        return token or ""
    raise UsageError(f"tokens must be text, not {type_name(token)}: pass the text of each chunk")


def _ignore(data: Any) -> None:
    """Drops the progress of a tool: there is no reader for it."""


async def _no_wait() -> None:
    """Lets a tool report at any time."""
