"""Scripted replies of a model, made of parts: text, reasoning, calls, pauses and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError, type_name
from penstock.events import Usage


class Say(Struct, frozen=True):
    """Visible text."""

    text: str


class Think(Struct, frozen=True):
    """Reasoning."""

    text: str


class Refuse(Struct, frozen=True):
    """A refusal of the model."""

    text: str


class ScriptedCall(Struct, frozen=True):
    """A tool call. `arguments` is the JSON text as the model writes it; without an id, the provider generates one."""

    name: str
    arguments: str
    id: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are empty or a complete JSON object."""
        try:
            return isinstance(json.loads(self.arguments or "{}"), dict)
        except ValueError:
            return False


class VendorItem(Struct, frozen=True):
    """An item or a block of the provider's own, as JSON text: a hosted tool, or a call of a tool that it defines."""

    data: str


class Wait(Struct, frozen=True):
    """A pause."""

    seconds: float


class Drop(Struct, frozen=True):
    """The connection breaks; if it is clean, the response ends early but in good order."""

    is_clean: bool = False


class Fail(Struct, frozen=True):
    """The provider reports an error and ends the response."""

    code: str
    message: str


ReplyPart = Say | Think | Refuse | ScriptedCall | VendorItem | Wait | Drop | Fail


def say(text: str) -> Say:
    """Visible text."""
    return Say(text)


def think(text: str) -> Think:
    """Visible reasoning."""
    return Think(text)


def refuse(text: str = "I'm sorry, but I can't help with that.") -> Refuse:
    """A refusal of the model."""
    return Refuse(text)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, id: str | None = None) -> ScriptedCall:
    """A tool call.

    Arguments passed as a string are sent unchanged, even if malformed, on wires that send arguments as text. A call
    with incomplete arguments, directly followed by `drop()` or `fail()`, is cut in the middle.
    """
    if not isinstance(arguments, str | Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"the arguments of {name} must be a dict or a string, not {type_name(arguments)}")
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(dict(arguments or {}), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the arguments of {name} cannot be written as JSON: {error}") from None
    return ScriptedCall(name, arguments, id or "")


def item(data: Mapping[str, Any]) -> VendorItem:
    """An output item of Responses, or a content block of Anthropic's, which is sent as it is.

    Such as `item({"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed", "action": {…}})`.
    """
    try:
        return VendorItem(json.dumps(dict(data), ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(f"the item cannot be written as JSON: {error}") from None


def wait(seconds: float) -> Wait:
    """A pause before the next part."""
    return Wait(seconds)


def drop(*, clean: bool = False) -> Drop:
    """The connection breaks here. With `clean`, it is closed in good order but too early, as gateways do."""
    return Drop(clean)


def fail(code: str, message: str) -> Fail:
    """The provider reports an error here: in band, if the response is streamed."""
    return Fail(code, message)


def _part(value: Any) -> ReplyPart:
    if isinstance(value, str):
        return Say(value)
    if isinstance(value, ReplyPart):
        return value
    raise UsageError(f"the parts of a reply must be strings or parts such as say(...) and call(...), not {value!r}")


@dataclass(frozen=True, init=False)
class Reply:
    """A scripted response of a model.

        Reply(say("Let me look."), call("weather", {"city": "Rome"}))

    Text may be a plain string: `Reply("Sunny.")`. `finish` is one of penstock's finish reasons ("stop", "length", ...),
    which is translated for the provider, or one of the provider's; by default it depends on the parts. Without `usage`,
    tokens are estimated. `seed` determines how text is split into pieces.
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
        """The refusal of the model; empty if there is none."""
        return "".join(part.text for part in self.parts if isinstance(part, Refuse))

    @property
    def failure(self) -> Fail | None:
        """The error that the provider reports, if any."""
        return next((part for part in self.parts if isinstance(part, Fail)), None)

    def is_cut_at(self, place: int) -> bool:
        """Whether the part at this place is incomplete, and the response breaks off directly after it."""
        part = self.parts[place]
        following = next((part for part in self.parts[place + 1 :] if not isinstance(part, Wait)), None)
        return isinstance(following, Drop | Fail) and isinstance(part, ScriptedCall) and not part.is_whole
