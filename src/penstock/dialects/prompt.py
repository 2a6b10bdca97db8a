"""Prompts: how tools, calls and results are written for a model that has no native tool calls.

`render` converts a history to plain text. The tokens that a chat template puts around a turn, such as those that name a
role, are left to the template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.declarations import ToolDeclaration
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.registry import ALIASES
from penstock.errors import UnknownDialectError, UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.jsontext.partial import PartialJSON
from penstock.messages import File, Image, Media, Message, Role, ToolResult
from penstock.tools.declare import declare

FAMILIES = ("objects", "named", "tags", "keys", "gemma", "python")
"""The modules of `prompts` that have a table `PROMPTS`."""
NO_PROMPT = {
    "langchain_xml": "its calls have one argument, without a name; use 'xml' instead",
    "plain": "it has no calls; use 'xml' instead",
    "smol_code": "its models write programs, not calls; use 'gemma_tool_code' instead",
}
"""The dialects that are only read, and what to use instead."""

EXAMPLES = (
    ToolCall("call00001", "some_tool", '{"some_text": "any text", "some_list": [1, 2]}'),  # type: ignore[arg-type]
    ToolCall("call00002", "other_tool", '{"some_flag": true}'),  # type: ignore[arg-type]
)
"""The calls that show a model the format."""
GAP = "\n\n"
"""The separator of two texts that are joined."""


class Prompt(Struct, frozen=True, kw_only=True):
    """How a dialect is written for a model.

    - `listing` formats the declared tools, `calls` the calls of an assistant message, `results` the tool results.
    - `rules` are instructions that only some dialects need, for example how values are written.
    - `is_single`: a message has at most one call.
    - `role` is the role of the message with the results.
    - `stop` are stop sequences, at which a model begins to invent results.
    """

    listing: Callable[[Sequence[ToolDeclaration]], str]
    calls: Callable[[Sequence[ToolCall]], str]
    results: Callable[[Sequence[ToolResult]], str]
    rules: tuple[str, ...] = ()
    is_single: bool = False
    role: Literal["user", "tool"] = "user"
    stop: tuple[str, ...] = ()

    def tools(self, tools: Sequence[ToolDeclaration]) -> str:
        """Returns the text of the system message: the tools, and how to call them."""
        example = self.calls(EXAMPLES[:1] if self.is_single else EXAMPLES)
        form = "To call a tool, end your message with the call" if self.is_single else _SEVERAL
        rules = "\n".join(f"- {rule}" for rule in self._rules(example))
        return GAP.join(
            (_INTRODUCTION, self.listing(tools), f"{form} in exactly this form:", example.strip("\n"), rules)
        )

    def _rules(self, example: str) -> Iterator[str]:
        yield "Call only tools from the list, by their exact names; the names in the form above are made up."
        yield "Give every required argument, and none that the tool does not have. Each value must fit its schema."
        yield from self.rules
        if self.is_single:
            yield "Make one call at a time."
        else:
            yield "Make several calls at once only if none of them needs the result of another."
        if FENCE not in example:
            yield "Write the calls directly, not inside a code fence."
        yield "After the last call, stop. The results come in the next message: never write them yourself."
        yield "If no tool is needed, answer without a call."


_INTRODUCTION = "You can call tools. These are all the tools there are:"
_SEVERAL = "To call tools, end your message with the calls"


@cache
def prompts() -> dict[str, Prompt]:
    """Returns the prompts of all dialects that have one, by name."""
    rows: dict[str, Prompt] = {}
    for family in FAMILIES:
        rows |= import_module(f"penstock.dialects.prompts.{family}").PROMPTS
    return rows


def find_prompt(dialect: str) -> Prompt:
    """Returns the prompt of the dialect with this name or alias."""
    known = prompts()
    plain = dialect.replace("-", "_")
    name = ALIASES.get(plain, plain)
    if name in NO_PROMPT:
        raise UsageError(f"the dialect {name!r} has no prompt: {NO_PROMPT[name]}")
    if name not in known:
        raise UnknownDialectError(dialect, (*known, *ALIASES))
    return known[name]


# -- what a request says about its calls ----------------------------------------------------------------------------


def with_choice(messages: Sequence[Message], tool_choice: str = "", is_parallel: bool | None = None) -> list[Message]:
    """Returns the messages, with a sentence at their end if the request requires or forbids calls.

    The sentence is not in the system message, so that requests that differ only in this have the same beginning, and
    the server can use its prompt cache.
    """
    match tool_choice:
        case "" | "auto":
            sentences = []
        case "none":
            sentences = ["Answer without calling a tool."]
        case "required":
            sentences = ["Your next message must call a tool."]
        case name:
            sentences = [f"Your next message must call the tool {name}, and no other."]
    if is_parallel is False and tool_choice != "none":
        sentences.append("Make at most one call.")
    if not sentences:
        return list(messages)
    text = " ".join(sentences)
    match list(messages):
        case [*rest, Message("user") as last] if not last.results:
            return [*rest, _message("user", [*_content(last)], [text])]
        case rest:
            return [*rest, _message("user", [text])]


# -- a history as plain text ---------------------------------------------------------------------------------------

Content = str | Image | File
"""A part of a message in a rendered history."""


def render(messages: Iterable[Message], tools: Iterable[Any] | None, dialect: str | Prompt) -> list[Message]:
    """Returns the history as text: the tools in the system message, calls and results as the dialect writes them.

    Reasoning and vendor state are omitted. You can pass your own `Prompt` instead of the name of a dialect.
    """
    prompt = find_prompt(dialect) if isinstance(dialect, str) else dialect
    callable_tools = [tool for tool in declare(tools) if tool.hosted is None and tool.name]
    history = _with_tools(messages, prompt.tools(callable_tools)) if callable_tools else messages
    return list(_merged(_rendered(history, prompt)))


def _with_tools(messages: Iterable[Message], text: str) -> list[Message]:
    match list(messages):
        case [Message("system") as first, *rest]:
            return [_message("system", [*_content(first)], [text]), *rest]
        case rest:
            return [_message("system", [text]), *rest]


def _rendered(messages: Iterable[Message], prompt: Prompt) -> Iterator[tuple[Message, bool]]:
    """Yields the rendered messages, each with whether it now follows another message than before."""
    order: dict[str, int] = {}
    is_moved = False
    for has_results, group in groupby(messages, key=lambda message: bool(message.results)):
        if has_results:
            yield _results(group, order, prompt), True
            continue
        for message in group:
            rendered = _assistant(message, prompt) if message.role == "assistant" else message
            if rendered:
                yield rendered, is_moved
            is_moved = rendered is None
            order = {call.id: index for index, call in enumerate(_calls(message))} or order


def _merged(messages: Iterable[tuple[Message, bool]]) -> Iterator[Message]:
    """Merges user messages that are adjacent only after rendering."""
    last: Message | None = None
    was_moved = False
    for message, is_moved in messages:
        if last and last.role == message.role == "user" and (is_moved or was_moved):
            last, was_moved = _message("user", [*_content(last)], [*_content(message)]), True
            continue
        if last:
            yield last
        last, was_moved = message, is_moved
    if last:
        yield last


def _assistant(message: Message, prompt: Prompt) -> Message | None:
    """Returns the text of an assistant message with its calls, in their order; None if it is empty."""
    if not _calls(message) and not any(isinstance(part, Reasoning | Refusal | Opaque) for part in message.parts):
        return message
    text = ""
    for piece in _pieces(message, prompt):
        separator = "\n" if text and not text.endswith("\n") and not piece.startswith("\n") else ""
        text += separator + piece
    parts: list[Content] = [text] if text else []
    parts += [part for part in _content(message) if not isinstance(part, str)]
    return _message("assistant", parts) if parts else None


def _pieces(message: Message, prompt: Prompt) -> Iterator[str]:
    """Yields the texts and the blocks of calls in their order; white space between calls does not separate them."""
    parts = [part for part in message.parts if isinstance(part, Text | Refusal | ToolCall | ToolCallInvalid)]
    numbers = [number for number, part in enumerate(parts) if isinstance(part, ToolCall | ToolCallInvalid)]
    kept = [
        part
        for number, part in enumerate(parts)
        if not isinstance(part, Text | Refusal)
        or part.text.strip()
        or not numbers
        or not numbers[0] < number < numbers[-1]
    ]
    for is_text, group in groupby(kept, key=lambda part: isinstance(part, Text | Refusal)):
        if is_text:
            yield "".join(part.text for part in group if isinstance(part, Text | Refusal))
        else:
            yield "\n".join(_blocks([call for call in group if isinstance(call, ToolCall | ToolCallInvalid)], prompt))


def _calls(message: Message) -> list[ToolCall | ToolCallInvalid]:
    return [part for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid)]


def _blocks(calls: Sequence[ToolCall | ToolCallInvalid], prompt: Prompt) -> Iterator[str]:
    """Yields the calls as blocks of text; an invalid call is a block of its own."""
    for is_whole, group in groupby(calls, key=lambda call: isinstance(call, ToolCall)):
        if is_whole:
            yield prompt.calls([call for call in group if isinstance(call, ToolCall)])
        else:
            yield from (_invalid(call, prompt) for call in group if isinstance(call, ToolCallInvalid))


def _invalid(call: ToolCallInvalid, prompt: Prompt) -> str:
    """Returns an invalid call with the arguments that can be read; a description if there are none."""
    view = PartialJSON()
    view.feed(call.arguments_raw or "{}")
    if not call.name or not isinstance(view.value, dict):
        return f"[A call of {call.name or 'a tool without a name'} that could not be read: {call.arguments_raw}]"
    raw = call.arguments_raw or "{}"
    return prompt.calls([ToolCall(call.id, call.name, view.value, raw, sealed_by="call_end")])


def _results(messages: Iterable[Message], order: dict[str, int], prompt: Prompt) -> Message:
    """Returns one message with the results of a turn in the order of the calls, then all other content."""
    messages = list(messages)
    results = [result for message in messages for result in message.results]
    results.sort(key=lambda result: order.get(result.call_id, len(order)))
    attached: list[Content] = []
    texts = [_without_media(result, attached) for result in results]
    others = [part for message in messages for part in _content(message)]
    return _message(prompt.role, [prompt.results(texts), *attached], others)


def _without_media(result: ToolResult, attached: list[Content]) -> ToolResult:
    """Returns the result with a placeholder for each image and file, and moves those to `attached`."""
    content: list[Text | Image | File] = []
    for part in result.content:
        if isinstance(part, Media):
            attached.append(part)
            content.append(Text(0, f"[attachment {len(attached)}: {part.name or part.media_type or 'a file'}]"))
        else:
            content.append(part)
    return msgspec.structs.replace(result, content=tuple(content))


def _content(message: Message) -> Iterator[Content]:
    """Yields the parts of a message that a model can read without rendering."""
    for part in message.parts:
        match part:
            case Text() | Refusal():
                yield part.text
            case Image() | File():
                yield part
            case _:
                pass


def _message(role: Role, first: Sequence[Content], then: Sequence[Content] = ()) -> Message:
    """Returns a message of two sequences of parts; texts at the seam are joined."""
    parts = [*first, *then]
    if first and then and isinstance(before := first[-1], str) and isinstance(after := then[0], str):
        parts = [*first[:-1], before.rstrip("\n") + GAP + after if before else after, *then[1:]]
    return Message(
        role, tuple(Text(block, part) if isinstance(part, str) else part for block, part in enumerate(parts))
    )
