"""The agent of LangChain Dart: `run` and `runStream`, which yield text and whole messages."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Unpack
from uuid import uuid4

from msgspec.structs import replace

from penstock.adapters.langchain_dart.chat_message import ChatMessage
from penstock.agent import agent
from penstock.agent.options import AgentOptions
from penstock.errors import ProviderError, ToolError
from penstock.events import Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import Message, ToolResult
from penstock.model.model import Model
from penstock.run.events import Done, StepStart
from penstock.tools.tool import Tool
from penstock.tools.tool_table import as_tools

_GENERATED = re.compile(r"(text_)?call_\d+(_\d+)?\Z")  # the id of a call that the provider sent without one


@dataclass
class ChatResult:
    """A result of a run: a piece of its output, or messages for the history."""

    output: str = ""
    messages: list[ChatMessage] = field(default_factory=list[ChatMessage])


class Agent:
    """An agent: `async for result in agent.runStream("…")`, or `await agent.run("…")`."""

    def __init__(self, model: Model | str, tools: Iterable[Any] = (), **options: Unpack[AgentOptions]) -> None:
        defaults: AgentOptions = {"separate_text": True}
        self.agent = agent.Agent(model, [_with_json_errors(tool) for tool in as_tools(tools)], **(defaults | options))

    async def runStream(self, prompt: str, *, history: Iterable[ChatMessage] = ()) -> AsyncIterator[ChatResult]:
        """Yields text as it arrives, and each message when it is complete: one with all results of a turn.

        Raises the error of a request that failed, or of a response that broke off, after the last message.
        """
        ids = defaultdict[str, str](lambda: str(uuid4()))
        async with self.agent.astream(prompt, [message.to_message() for message in history]) as run:
            count = len(run.messages)
            async for event in run:
                if isinstance(event, Text | Refusal):
                    yield ChatResult(event.text)
                elif isinstance(event, StepStart | Done):
                    new = run.messages[count:]
                    count += len(new)
                    for message in new:
                        yield ChatResult("", [ChatMessage.from_message(_with_uuids(message, ids))])
        if run.done is not None and run.done.reason in ("error", "cut"):
            raise run.error or ProviderError(run.done.why)

    async def run(self, prompt: str, *, history: Iterable[ChatMessage] = ()) -> ChatResult:
        """The whole output, and all new messages."""
        results = [result async for result in self.runStream(prompt, history=history)]
        messages = [message for result in results for message in result.messages]
        return ChatResult("".join(result.output for result in results), messages)


def _with_uuids(message: Message, ids: defaultdict[str, str]) -> Message:
    """The message, with a UUID for each call that came without an id."""
    parts = list(message.parts)
    for index, part in enumerate(parts):
        match part:
            case ToolCall() | ToolCallInvalid() if _GENERATED.match(part.id):
                parts[index] = replace(part, id=ids[part.id])
            case ToolResult() if _GENERATED.match(part.call_id):
                parts[index] = replace(part, call_id=ids[part.call_id])
            case _:
                pass
    return replace(message, parts=tuple(parts))


def _with_json_errors(tool: Tool[..., Any]) -> Tool[..., Any]:
    """The tool, with its exceptions as JSON for the model: `{"error": …}`."""
    if tool.is_generator or tool.is_deferred:
        return tool
    wrapped, function = copy(tool), tool.function

    def call(**arguments: Any) -> Any:
        with _errors_as_json():
            return function(**arguments)

    async def acall(**arguments: Any) -> Any:
        with _errors_as_json():
            return await function(**arguments)

    wrapped.function = acall if tool.is_async else call
    return wrapped


@contextmanager
def _errors_as_json() -> Generator[None]:
    try:
        yield
    except Exception as error:  # a tool may raise anything
        raise ToolError(json.dumps({"error": str(error)}, ensure_ascii=False)) from error
