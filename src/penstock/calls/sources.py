"""Sources: where in a conversation the argument values of a call stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

SourceKind = Literal["user", "tool", "file", "summary", "answer", "instructions", "call"]
"""What contains a value.

A message of the user, a tool result, a file that the user attached, the summary of a compacted history, an earlier
answer of the model, its instructions, or the arguments of an earlier call.
"""


class Source(Struct, frozen=True, omit_defaults=True):
    """A place in the conversation that contains an argument value.

    `message` is the index of the message in the history; -1 for instructions. `name` is that of the tool or the file.
    `call_id` identifies the tool result, or the earlier call.
    """

    kind: SourceKind
    message: int = -1
    name: str = ""
    call_id: str = ""


Sources = Mapping[str, tuple[Source, ...]]
"""The sources of each argument value, by its path: `to`, or `items[0].price` for a nested one."""

_NAME = re.compile(r"[\w-]+")


def argument_values(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str | int | float]]:
    """The strings and numbers in the arguments of a call, each with its path."""
    stack: list[tuple[str, Any]] = [("", arguments)]
    while stack:
        path, value = stack.pop()
        match value:
            case Mapping():
                stack += reversed([(_member(path, str(key)), item) for key, item in value.items()])
            case list() | tuple():
                stack += reversed([(f"{path}[{number}]", item) for number, item in enumerate(value)])
            case bool():
                pass
            case str() | int() | float():
                yield path, value
            case _:
                pass


def _member(path: str, key: str) -> str:
    if not _NAME.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def described(source: Source) -> str:
    """A source in words, as in "from a result of fetch"."""
    match source.kind:
        case "user":
            return "a message of the user"
        case "tool":
            return f"a result of {source.name}" if source.name else "a result"
        case "file":
            return f"the file {source.name}" if source.name else "a file of the user"
        case "summary":
            return "the summary of earlier messages"
        case "answer":
            return "an earlier answer"
        case "instructions":
            return "the instructions"
        case "call":
            return f"an earlier call of {source.name}"
