"""The other side of a dialect: how tools, past calls and results are written for a model without tools of its own.

`render` makes of a history one that is plain text. What a chat template puts around a turn, such as the tokens that
name a role, is the template's and is not written here; what stands within a turn is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.registry import ALIASES
from penstock.errors import UnknownDialectError, UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.jsontext.partial import PartialJSON
from penstock.messages import File, Image, Media, Message, Role, ToolResult

FAMILIES = ("objects", "named", "tagged", "keyed", "gemma", "python")
"""The modules of `prompts` that hold prompts, each in a table `PROMPTS`."""
UNWRITTEN = {
    "langchain_xml": "its calls have one argument that has no name; 'xml' has names, and models know it as well",
    "plain": "it has no calls; 'xml' has them, and any model can write it",
    "smol_code": "its models write programs, not calls; 'gemma_tool_code' is the nearest that is a call",
}
"""The dialects that are not written for a model, and what to use instead."""

EXAMPLES = (
    ToolCall("call00001", "some_tool", '{"some_text": "any text", "some_list": [1, 2]}'),  # type: ignore[arg-type]
    ToolCall("call00002", "other_tool", '{"some_flag": true}'),  # type: ignore[arg-type]
)
"""The calls that show the form."""
GAP = "\n\n"
"""What stands between two texts that become one."""


class Prompt(Struct, frozen=True, kw_only=True):
    """How a dialect is written for the model.

    `listing` writes the declared tools, `calls` what the assistant wrote, and `results` what the tools gave back, which
    goes into a message of the `role`. `rules` are those that not every dialect has: how values are written, say. Where
    it `is_single`, a message has one call at most. At a `stop` sequence the model is to be stopped: it begins to make
    up results.
    """

    listing: Callable[[Sequence[ToolDeclaration]], str]
    calls: Callable[[Sequence[ToolCall]], str]
    results: Callable[[Sequence[ToolResult]], str]
    rules: tuple[str, ...] = ()
    is_single: bool = False
    role: Literal["user", "tool"] = "user"
    stop: tuple[str, ...] = ()

    def tools(self, tools: Sequence[ToolDeclaration]) -> str:
        """What the system message says: which tools there are, and how they are called."""
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
    """The prompt side of all dialects that have one: name to row."""
    found: dict[str, Prompt] = {}
    for family in FAMILIES:
        found |= import_module(f"penstock.dialects.prompts.{family}").PROMPTS
    return found


def find_prompt(dialect: str) -> Prompt:
    """How the dialect of this name or alias is written."""
    known = prompts()
    plain = dialect.replace("-", "_")
    name = ALIASES.get(plain, plain)
    if name in UNWRITTEN:
        raise UsageError(f"the dialect {name!r} cannot be written for a model: {UNWRITTEN[name]}")
    if name not in known:
        raise UnknownDialectError(dialect, (*known, *ALIASES))
    return known[name]


# -- a history as plain text ---------------------------------------------------------------------------------------

Written = str | Image | File
"""What a message of a rendered history is made of."""


def render(messages: Iterable[Message], tools: Iterable[Any] | None, dialect: str | Prompt) -> list[Message]:
    """The history as a model without tools can read it: the tools in the system message, calls and results as text.

    Reasoning and vendor state are left out. A `Prompt` of your own does instead of a dialect's name.
    """
    prompt = find_prompt(dialect) if isinstance(dialect, str) else dialect
    callable_tools = [tool for tool in read_declarations(tools) if tool.hosted is None and tool.name]
    history = _with_tools(messages, prompt.tools(callable_tools)) if callable_tools else messages
    return list(_merged(_rendered(history, prompt)))


def _with_tools(messages: Iterable[Message], text: str) -> list[Message]:
    match list(messages):
        case [Message("system") as first, *rest]:
            return [_message("system", [*_content(first)], [text]), *rest]
        case rest:
            return [_message("system", [text]), *rest]


def _rendered(messages: Iterable[Message], prompt: Prompt) -> Iterator[tuple[Message, bool]]:
    """The messages, and of each whether it stands where it did not stand before."""
    order: dict[str, int] = {}
    is_moved = False
    for has_results, group in groupby(messages, key=lambda message: bool(message.results)):
        if has_results:
            yield _results(group, order, prompt), True
            continue
        for message in group:
            written = _assistant(message, prompt) if message.role == "assistant" else message
            if written:
                yield written, is_moved
            is_moved = written is None
            order = {call.id: at for at, call in enumerate(_calls(message))} or order


def _merged(messages: Iterable[tuple[Message, bool]]) -> Iterator[Message]:
    """One message of what are now several of the user in a row."""
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
    """What the assistant said, and below it the calls that it made; None if there is nothing."""
    calls = _calls(message)
    if not calls and not any(isinstance(part, Reasoning | Refusal | Opaque) for part in message.parts):
        return message
    said = [*_content(message)]
    text = "".join(part for part in said if isinstance(part, str))
    written = "\n".join(_blocks(calls, prompt))
    joint = "\n" if text and written and not text.endswith("\n") else ""
    parts: list[Written] = [text + joint + written] if text or written else []
    parts += [part for part in said if not isinstance(part, str)]
    return _message("assistant", parts) if parts else None


def _calls(message: Message) -> list[ToolCall | ToolCallInvalid]:
    return [part for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid)]


def _blocks(calls: Sequence[ToolCall | ToolCallInvalid], prompt: Prompt) -> Iterator[str]:
    """The calls as the assistant wrote them, a broken one apart from the others."""
    for is_whole, group in groupby(calls, key=lambda call: isinstance(call, ToolCall)):
        if is_whole:
            yield prompt.calls([call for call in group if isinstance(call, ToolCall)])
        else:
            yield from (_broken(call, prompt) for call in group if isinstance(call, ToolCallInvalid))


def _broken(call: ToolCallInvalid, prompt: Prompt) -> str:
    """A call that was cut or malformed, as far as it went; in words if it never became a call with arguments."""
    view = PartialJSON()
    view.feed(call.arguments_raw or "{}")
    if not call.name or not isinstance(view.value, dict):
        return f"[A call of {call.name or 'a tool without a name'} that could not be read: {call.arguments_raw}]"
    raw = call.arguments_raw or "{}"
    return prompt.calls([ToolCall(call.id, call.name, view.value, raw, sealed_by="call_end")])


def _results(messages: Iterable[Message], order: dict[str, int], prompt: Prompt) -> Message:
    """The results of one turn, in the order of the calls, then what else the messages hold."""
    messages = list(messages)
    results = [result for message in messages for result in message.results]
    results.sort(key=lambda result: order.get(result.call_id, len(order)))
    attached: list[Written] = []
    shown = [_without_media(result, attached) for result in results]
    others = [part for message in messages for part in _content(message)]
    return _message(prompt.role, [prompt.results(shown), *attached], others)


def _without_media(result: ToolResult, attached: list[Written]) -> ToolResult:
    """The result with a mention of each picture and file in the place of it; they go to `attached`."""
    content: list[Text | Image | File] = []
    for part in result.content:
        if isinstance(part, Media):
            attached.append(part)
            content.append(Text(0, f"[attachment {len(attached)}: {part.name or part.media_type or 'a file'}]"))
        else:
            content.append(part)
    return msgspec.structs.replace(result, content=tuple(content))


def _content(message: Message) -> Iterator[Written]:
    """What of a message a model can read as it stands."""
    for part in message.parts:
        match part:
            case Text() | Refusal():
                yield part.text
            case Image() | File():
                yield part
            case _:
                pass


def _message(role: Role, first: Sequence[Written], then: Sequence[Written] = ()) -> Message:
    """A message of all that is given; where text meets text in its middle, they become one."""
    parts = [*first, *then]
    if first and then and isinstance(before := first[-1], str) and isinstance(after := then[0], str):
        parts = [*first[:-1], before.rstrip("\n") + GAP + after if before else after, *then[1:]]
    return Message(role, tuple(Text(at, part) if isinstance(part, str) else part for at, part in enumerate(parts)))
