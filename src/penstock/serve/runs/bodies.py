"""The JSON bodies of our own protocol, and their error messages."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.messages import File, Image, Message, user

T = TypeVar("T", bound=Struct)

MAX_ID = 200
"""How long the ids of runs and threads may be."""


class TextPart(Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Text that a user wrote."""

    text: str


class MediaPart(Struct, frozen=True, tag_field="type", tag="file", forbid_unknown_fields=True):
    """An image or a file that a user sends, as a data URL; other addresses are never fetched."""

    url: str
    media_type: str = ""
    name: str = ""


Prompt = str | list[TextPart | MediaPart]


class StartBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Starts a run; `agent` may be left out if there is one. An equal start with the same `run_id` joins its run."""

    prompt: Prompt
    agent: str = ""
    thread: str = ""
    run_id: str = ""


class DecideBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Approves or declines a call; `shown` is the hash in the request that the person saw."""

    call_id: str
    approved: bool
    shown: str
    arguments: dict[str, Any] | None = None
    reason: str = ""


class ProvideBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Gives the result of a call that runs elsewhere."""

    call_id: str
    value: Any
    is_error: bool = False


class SayBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Adds a user message; with a `key`, it counts once."""

    message: Prompt
    key: str = ""


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Starts a run with the events of this one until the event `at`: a number, or the id of an event of the stream.

    It continues with another message (`say`), or with another `model`, one of those that the agent names.
    """

    at: int | str
    say: Prompt | None = None
    model: str = ""


class CancelBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Ends a run."""

    why: str = ""


async def read_body(request: HTTPRequest, type: type[T]) -> T:
    """The body of a request as this struct; a `RejectedRequest` says what is wrong and where."""
    return convert(await request.json(), type)


def convert(value: Any, type: type[T], place: str = "$") -> T:
    """A JSON value as this struct; `place` is where it is in the body."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise RejectedRequest(400, "invalid_body", _problem(str(error), type, place)) from None


def _problem(message: str, type: type[Struct], place: str) -> str:
    """The problem of a body, with its place and the allowed fields, from the message of msgspec."""
    problem, _, inner = message.partition(" - at `$")
    problem = problem.replace("Object contains unknown field", "unknown field")
    problem = problem.replace("Object missing required field", "missing field")
    where = f"{place}{inner.rstrip('`')}"
    location = f" at `{where}`" if where != "$" else ""
    fields = f"; the fields are: {', '.join(type.__struct_encode_fields__)}" if not inner.rstrip("`") else ""
    return f"{problem}{location}{fields}"


def user_message(prompt: Prompt, limits: ServerLimits) -> Message:
    """The user message of these parts."""
    if isinstance(prompt, str):
        prompt = [TextPart(prompt)]
    if not prompt or not any(not isinstance(part, TextPart) or part.text.strip() for part in prompt):
        raise RejectedRequest(400, "empty_prompt", "the prompt is empty")
    if len(prompt) > limits.messages:
        raise RejectedRequest(400, "too_many_parts", f"a prompt may have at most {limits.messages} parts")
    return user(*(part.text if isinstance(part, TextPart) else _media(part) for part in prompt))


def _media(part: MediaPart) -> Image | File:
    kind, comma, _ = part.url.partition(",")
    if not comma or not kind.startswith("data:"):
        raise RejectedRequest(400, "url_refused", "files must be sent as data URLs: addresses are not fetched")
    media_type = part.media_type or kind[5:].partition(";")[0]
    if media_type.startswith("image/"):
        return Image(part.url, media_type)
    return File(part.url, media_type or "application/octet-stream", part.name)
