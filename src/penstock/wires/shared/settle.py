"""A history as providers want it: what all encoders ask of a request before they write it in their provider's words.

People and agents may keep a history as it happened: results of one turn in several messages and in the order in which
the tools finished, calls that were cut, states of several vendors. Providers take none of that, so it is settled first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

import msgspec
from msgspec.structs import replace

from penstock.calls.arguments import strict_object
from penstock.declarations import ToolDeclaration
from penstock.errors import UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import MESSAGE, File, Image, Message, Part, ToolResult, last_block
from penstock.wires.shared.body import Json
from penstock.wires.shared.foreign_blocks import parts_for
from penstock.wires.shared.ids import Ids, fit_name
from penstock.wires.shared.pairing import Hosted, Pair, Pairing
from penstock.wires.shared.request import Request

ALLOWED: dict[str, tuple[type[Part], ...]] = {
    "system": (Text, Opaque),
    "user": (Text, Image, File, ToolResult, Opaque),
    "assistant": (Text, Reasoning, Refusal, ToolCall, ToolCallInvalid, Opaque, Image, File),
    "tool": (ToolResult,),
}
"""What a message may hold; results are also taken from a user message, where some providers put them."""
NO_ANSWER = "(no answer)"
"""What stands for an answer of which nothing can be sent, where there must be one."""


def split_system(messages: Iterable[Message]) -> tuple[str, list[Message]]:
    """The text of all system messages, and the other messages."""
    messages = list(messages)
    texts = [system_text(message) for message in messages if message.role == "system"]
    return "\n\n".join(text for text in texts if text), [message for message in messages if message.role != "system"]


def system_text(message: Message) -> str:
    """The text of a message of the system, with a paragraph for each of its parts."""
    return "\n\n".join(part.text for part in message.parts if isinstance(part, Text) and part.text)


def alternating(messages: Iterable[Message], write: Callable[[Message], Iterable[Json]]) -> list[Json]:
    """The messages of the user and of the assistant in turn: neighbours, and results, are put together."""
    written: list[Json] = []
    for message in messages:
        role, blocks = "assistant" if message.role == "assistant" else "user", list(write(message))
        if written and written[-1]["role"] == role:
            written[-1]["content"] += blocks
        elif blocks:
            written.append({"role": role, "content": blocks})
    return written


def marked_system(history: Iterable[Message], write: Callable[[Message], Iterable[Json]]) -> list[Json]:
    """What the system says, in blocks, where there is something beside their text: a mark for the cache, say."""
    told = [message for message in history if message.role == "system"]
    is_marked = any(isinstance(part, Opaque) for message in told for part in message.parts)
    return [block for message in told for block in write(message)] if is_marked else []


def called_tools(messages: Iterable[Message]) -> list[str]:
    """The names of the tools that were called: some providers insist that they are declared."""
    parts = (part for message in messages for part in message.parts)
    return sorted({part.name for part in parts if isinstance(part, ToolCall | ToolResult)})


def chosen_tool(request: Request) -> ToolDeclaration | None:
    """The tool that the request demands by its name; None if the choice is a mode, or left to the provider."""
    if request.tool_choice in ("", "auto", "none", "required"):
        return None
    for tool in request.tools:
        if tool.name == request.tool_choice:
            return tool
    names = ", ".join(tool.name for tool in request.tools) or "there are none"
    raise UsageError(f"tool_choice {request.tool_choice!r} is no mode (auto, none, required) and no tool: {names}")


def settled(
    request: Request, wire: str, ids: Ids, *, takes_blank: bool = True, must_answer: bool = False
) -> list[Message]:
    """The messages of a request, ready to be written.

    Calls have ids and names that the provider takes. The results of a turn follow it in one tool message, in the order
    of the calls and with their names. A call that must not run is an ordinary one if it was answered, and is left out
    if it was not, as is a call of a vendor's own tool whose result never came. Of the blocks of other wires the words
    are told; their states are left out, and so are texts, thoughts and messages that say nothing; without
    `takes_blank`, white space says nothing. If one `must_answer`, there is an answer before what the user says next
    also where nothing of it is left but thoughts.
    """
    for at, message in enumerate(request.messages):
        _check(at, message)
    pairing, names = Pairing(request.messages), _Names(request, wire, ids)
    written: list[Message] = []
    for message, pairs, orphans in zip(_finished(request.messages), pairing.of, pairing.orphans, strict=True):
        calls = [names.sent(pair) for pair in pairs]
        lost = [names.orphan(result) for _, result in orphans]
        written += _settle(message, calls, lost, wire, takes_blank)
    if must_answer:
        written = [*_answered(written)]
    return [message for message in written if any(map(_says, message.parts))]


def _finished(messages: tuple[Message, ...]) -> Iterable[Message]:
    """The messages without the calls of a vendor's own tools that will never have a result."""
    hosted = Hosted(messages)
    gone = {*hosted.calls, *hosted.callers}
    if not gone:
        return messages
    return [
        Message(message.role, tuple(part for number, part in enumerate(message.parts) if (at, number) not in gone))
        for at, message in enumerate(messages)
    ]


def _answered(messages: list[Message]) -> Iterator[Message]:
    """The messages, in which an answer that says nothing says so if the user speaks next."""
    told = [message for message in messages if message.role == "assistant" or any(map(_says, message.parts))]
    for message, following in zip_longest(told, told[1:]):
        is_mute = not any(isinstance(part, Text | Refusal | ToolCall | Image | File) for part in message.parts)
        if message.role == "assistant" and is_mute and following is not None and following.role == "user":
            yield Message("assistant", (*message.parts, Text(last_block(message) + 1, NO_ANSWER)))
        else:
            yield message


def _says(part: Part) -> bool:
    """Whether a part is more than what a message has beside what it says."""
    return not (isinstance(part, Opaque) and part.kind == MESSAGE)


def arguments_text(call: ToolCall) -> str:
    """A call's arguments as JSON text: as the model wrote them, if it wrote JSON; a custom call's text as it is."""
    if call.kind == "custom":
        return call.arguments_raw or str(call.arguments.get("input", ""))
    is_json = call.arguments_raw.lstrip().startswith("{") and strict_object(call.arguments_raw) == call.arguments
    return call.arguments_raw if is_json else msgspec.json.encode(call.arguments).decode()


def misplaced(part: Part, role: str, advice: str) -> UsageError:
    """That a provider takes no such part in a message of this role."""
    return UsageError(f"{type(part).__name__} cannot be sent in a message of the {role}: {advice}")


def _check(at: int, message: Message) -> None:
    for part in message.parts:
        if not isinstance(part, ALLOWED[message.role]):
            names = ", ".join(kind.__name__ for kind in ALLOWED[message.role])
            raise UsageError(
                f"messages[{at}]: a message of the role {message.role} holds no {type(part).__name__}, only: {names}"
            )


class _Sent:
    """A call as it is sent, and its result."""

    def __init__(self, pair: Pair, id: str, name: str) -> None:
        self._pair = pair
        self._id = id
        self._name = name

    @property
    def call(self) -> ToolCall | None:
        if isinstance(self._pair.call, ToolCallInvalid) and self._pair.answer is None:
            return None
        return replace(self._pair.whole, id=self._id, name=self._name)

    @property
    def result(self) -> ToolResult | None:
        answer = self._pair.answer
        return answer and replace(answer, call_id=self._id, name=self._name)


class _Names:
    """The ids and names of one request, as the provider takes them."""

    def __init__(self, request: Request, wire: str, ids: Ids) -> None:
        self._wire = wire
        self._ids = ids
        self._declared = {tool.name for tool in request.tools}

    def sent(self, pair: Pair) -> _Sent:
        return _Sent(pair, self._ids.take(pair.call.id), self._name(pair.call.name))

    def orphan(self, result: ToolResult) -> ToolResult:
        """A result whose call is not in the request: it may be in one that the provider keeps."""
        return replace(result, call_id=self._ids.keep(result.call_id), name=self._name(result.name))

    def _name(self, name: str) -> str:
        return name if name in self._declared else fit_name(name, self._wire)


def _settle(
    message: Message, sent: list[_Sent], orphans: list[ToolResult], wire: str, takes_blank: bool
) -> Iterator[Message]:
    """The message as it is sent, and around it the results that belong there."""
    yield Message("tool", tuple(orphans))
    calls = iter(sent)
    parts: list[Part] = []
    for part in parts_for(message, wire):
        match part:
            case ToolCall() | ToolCallInvalid():
                call = next(calls).call
                parts += [] if call is None else [call]
            case ToolResult():
                pass
            case _:
                parts.append(part)
    yield Message(message.role, tuple(_telling(message, parts, takes_blank)))
    yield Message("tool", tuple(one.result for one in sent if one.result))


def _telling(message: Message, parts: list[Part], takes_blank: bool) -> Iterator[Part]:
    """The parts that say something: a text or a state of their own, or a state on another part that stays."""
    stateful = {part.block for part in parts if isinstance(part, Opaque)}
    kept = {part.block for part in parts if isinstance(part, ToolCall)}
    gone = {part.block for part in message.parts if isinstance(part, ToolCallInvalid)} - kept
    for part in parts:
        match part:
            case Text() | Reasoning() | Refusal():
                if part.block in stateful or (part.text if takes_blank else part.text.strip()):
                    yield part
            case Opaque() if part.block in gone:
                pass
            case _:
                yield part
