"""What a model is to say: a reply, made of parts that a person can write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Usage


class Say(Struct, frozen=True):
    """Visible text."""

    text: str


class Think(Struct, frozen=True):
    """Reasoning."""

    text: str


class Refuse(Struct, frozen=True):
    """The words with which the model declines."""

    text: str


class ScriptedCall(Struct, frozen=True):
    """A tool call. `arguments` is the JSON text as the model writes it; without an id the provider makes one up."""

    name: str
    arguments: str
    id: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object, or nothing at all, and not a piece of one."""
        try:
            return isinstance(json.loads(self.arguments or "{}"), dict)
        except ValueError:
            return False


class Wait(Struct, frozen=True):
    """A pause."""

    seconds: float


class Drop(Struct, frozen=True):
    """The connection breaks; or, if it is clean, the response ends as if this were all of it."""

    is_clean: bool = False


class Fail(Struct, frozen=True):
    """The provider says that something went wrong, and no more."""

    code: str
    message: str


ReplyPart = Say | Think | Refuse | ScriptedCall | Wait | Drop | Fail


def say(text: str) -> Say:
    """The model says this."""
    return Say(text)


def think(text: str) -> Think:
    """The model thinks this, where people can see it."""
    return Think(text)


def refuse(text: str = "I'm sorry, but I can't help with that.") -> Refuse:
    """The model declines."""
    return Refuse(text)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, id: str | None = None) -> ScriptedCall:
    """The model calls a tool.

    Arguments that are given as text are sent as they stand, also if they are broken, on the wires that send text; a
    call with broken arguments and a `drop()` or a `fail()` right behind it is cut in the middle.
    """
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(dict(arguments or {}), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the arguments of {name} are no JSON: {error}") from None
    return ScriptedCall(name, arguments, id or "")


def wait(seconds: float) -> Wait:
    """Nothing comes for a while."""
    return Wait(seconds)


def drop(*, clean: bool = False) -> Drop:
    """The connection breaks here; `clean`: it is closed in good order, but too early, as gateways do."""
    return Drop(clean)


def fail(code: str, message: str) -> Fail:
    """The provider reports an error here, in band if it is streaming."""
    return Fail(code, message)


def _part(given: Any) -> ReplyPart:
    if isinstance(given, str):
        return Say(given)
    if isinstance(given, ReplyPart):
        return given
    raise UsageError(f"a reply is made of parts such as say(...) and call(...), not of {given!r}")


@dataclass(frozen=True, init=False)
class Reply:
    """One answer of a model.

        Reply(say("Let me look."), call("weather", {"city": "Rome"}))

    Text may stand as it is: `Reply("Sunny.")`. `finish` is one of penstock's reasons ("stop", "length", ...), which
    every provider says in its own word, or a provider's word; if it is empty, the parts tell. `usage` is counted if it
    is not given. How text is cut into pieces depends on `seed`.
    """

    parts: tuple[ReplyPart, ...]
    finish: str
    usage: Usage | None
    seed: int

    def __init__(self, *parts: ReplyPart | str, finish: str = "", usage: Usage | None = None, seed: int = 0) -> None:
        object.__setattr__(self, "parts", tuple(map(_part, parts)))
        object.__setattr__(self, "finish", finish)
        object.__setattr__(self, "usage", usage)
        object.__setattr__(self, "seed", seed)

    @property
    def calls(self) -> list[ScriptedCall]:
        """The calls, in order."""
        return [part for part in self.parts if isinstance(part, ScriptedCall)]

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, Say))

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        return "".join(part.text for part in self.parts if isinstance(part, Think))

    @property
    def refusal(self) -> str:
        """The words with which the model declines, if it does."""
        return "".join(part.text for part in self.parts if isinstance(part, Refuse))

    @property
    def failure(self) -> Fail | None:
        """The error that the provider reports, if it does."""
        return next((part for part in self.parts if isinstance(part, Fail)), None)

    def is_cut_at(self, place: int) -> bool:
        """Whether the answer breaks off right behind the part at this place, and that part is not whole."""
        part = self.parts[place]
        following = next((part for part in self.parts[place + 1 :] if not isinstance(part, Wait)), None)
        return isinstance(following, Drop | Fail) and isinstance(part, ScriptedCall) and not part.is_whole
