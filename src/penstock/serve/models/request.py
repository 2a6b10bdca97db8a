"""Reads the requests of clients that use an agent as a model.

Requests are validated here, before anything starts: a history that a provider would refuse, addresses of media, tools
with the name of one of the agent's, and settings that are the agent's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import RejectedRequest
from penstock.content import File, Image
from penstock.errors import UsageError
from penstock.events import Opaque, ToolCall, ToolCallInvalid
from penstock.history.client_request import ClientRequest, decode_request
from penstock.history.provider_rules import find_problems
from penstock.history.read import Reading, read_request
from penstock.history.rules import CheckedHistory
from penstock.messages import Message
from penstock.results import ToolResult
from penstock.serve.models.client_calls import CallRef, read_call_id
from penstock.wires import all_readers
from penstock.wires.shared.decode_request.places import Places
from penstock.wires.shared.decode_request.request_settings import NO_PROBABILITIES
from penstock.wires.shared.encode_request.body import object_schema
from penstock.wires.shared.encode_response.response_errors import UNKNOWN_RESPONSE

_REFUSED = ("call_without_result", "result_without_call", "duplicate_result", "empty_id", "misplaced_part")
"""The problems of a history that cannot be repaired without guessing."""


_UNUSUAL: tuple[tuple[str, Any, str], ...] = (
    ("n", 1, "an agent gives one answer: leave it out, or send 1"),
    ("modalities", ["text"], "an agent answers with text: leave it out"),
    ("background", False, "an answer is sent when it is made: leave it out, or start a run at /runs"),
)
"""Settings that would change the response, with the only value that an agent supports."""


class ModelRequest(Struct, frozen=True):
    """A request: its history without vendor state, and the results for one of our runs at its end, if any."""

    request: ClientRequest
    messages: tuple[Message, ...]
    results: Results | None


class Results(Struct, frozen=True):
    """The results of client calls, and the user's message beside them."""

    run_id: str
    by_call: Mapping[CallRef, ToolResult]
    messages: tuple[Message, ...]


def read_model_request(wire: str, body: Any, limits: ServerLimits) -> ModelRequest:
    """The request in a body; a `RejectedRequest` says where it is wrong."""
    try:
        request = decode_request(body, wire)
        reading = read_request(body, wire)
    except UsageError as error:
        raise RejectedRequest(400, "invalid_body", str(error)) from None
    _check_settings(request, limits)
    if len(request.messages) > limits.messages:
        raise RejectedRequest(400, "too_many_messages", f"a request may have at most {limits.messages} messages")
    _check_history(reading)
    messages = tuple(map(_without_state, request.messages, reading.places))
    if not any(message.parts for message in messages if message.role != "system"):
        why = f"{all_readers()[wire].history_field}: there is nothing to answer; send a message of the user"
        raise RejectedRequest(400, "empty_history", why)
    results = read_results(messages)
    if results is None and reading.is_continued:
        raise RejectedRequest(404, UNKNOWN_RESPONSE, "this server does not store conversations: send the whole history")
    return ModelRequest(request, messages, results)


def _check_history(reading: Reading) -> None:
    for problem in find_problems(CheckedHistory(reading), None):
        if problem.kind in _REFUSED:
            raise RejectedRequest(400, problem.kind, f"{problem.where}: {problem.what}")
    for message, places in zip(reading.messages, reading.places, strict=True):
        if any(not media.url.startswith("data:") for media in _media(message)):
            why = f"{places.message}: send images and files as data URLs; addresses are never fetched"
            raise RejectedRequest(400, "url_refused", why)


def _without_state(message: Message, places: Places) -> Message:
    """A message without vendor state, which would refer to the account of this server."""
    parts = [
        replace(part, state=()) if isinstance(part, Image | File | ToolResult) else part
        for part in message.parts
        if not isinstance(part, Opaque)
    ]
    if message.parts and not parts:
        why = f"{places.message}: an agent reads only text, images, files, calls and results; leave this message out"
        raise RejectedRequest(400, "vendor_item", why)
    return replace(message, parts=tuple(parts))


def _check_settings(request: ClientRequest, limits: ServerLimits) -> None:
    settings = request.settings
    if settings.output is not None:
        raise RejectedRequest(
            400, "output_refused", "the agent has an output format of its own: leave the format out of the request"
        )
    if settings.tool_choice not in ("", "auto", "none"):
        raise RejectedRequest(
            400, "tool_choice_refused", "an agent chooses its tools itself: send auto or none as tool_choice"
        )
    for name, usual, why in _UNUSUAL:
        if settings.extra.get(name, usual) != usual:
            raise RejectedRequest(400, "setting_refused", f"{name}: {why}")
    for dropped in settings.dropped:
        if dropped.why == NO_PROBABILITIES:
            why = "an agent has no probabilities of tokens: leave it out"
            raise RejectedRequest(400, "setting_refused", f"{dropped.place}: {why}")
    if len(settings.tools) > limits.tools:
        raise RejectedRequest(400, "too_many_tools", f"a request may have at most {limits.tools} tools")
    for tool in settings.tools:
        if tool.hosted is not None:
            why = f"{tool.name!r} is run by a provider, so an agent cannot call it: send tools that the client runs"
            raise RejectedRequest(400, "hosted_tool", why)


def _media(message: Message) -> Iterator[Image | File]:
    for part in message.parts:
        if isinstance(part, Image | File):
            yield part
        elif isinstance(part, ToolResult):
            yield from (content for content in part.content if isinstance(content, Image | File))


async def client_tools(request: ClientRequest, agent: Agent[Any, Any]) -> list[dict[str, Any]]:
    """The declarations of the client's tools; a `RejectedRequest` if the agent has a tool of the same name."""
    settings = request.settings
    if not settings.tools or settings.tool_choice == "none":
        return []
    config = agent.config
    own = {*config.tools} | {tool.name for source in config.sources for tool in await source.alisting()}
    for tool in settings.tools:
        if tool.name in own:
            why = f"tools: the agent has a tool with the name {tool.name!r} already: rename yours, or leave it out"
            raise RejectedRequest(400, "tool_name_taken", why)
    return [
        {"name": tool.name, "description": tool.description, "parameters": object_schema(tool)}
        for tool in settings.tools
    ]


def read_results(messages: Sequence[Message]) -> Results | None:
    """The results at the end of a history, if one of our runs asked for them; else None.

    The history may begin with them, if the client expects the server to know the rest: their ids name the calls.
    """
    last = max((number for number, message in enumerate(messages) if message.role == "assistant"), default=-1)
    rest = messages[last + 1 :]
    results = [result for message in rest for result in message.results]
    calls = (
        [part.id for part in messages[last].parts if isinstance(part, ToolCall | ToolCallInvalid)] if last >= 0 else []
    )
    ids = calls or [result.call_id for result in results]
    refs = {id: ref for id in ids if (ref := read_call_id(id)) is not None}
    if not refs:
        return None
    if len(refs) < len(ids) or len({ref.run_id for ref in refs.values()}) > 1:
        raise RejectedRequest(
            400,
            "mixed_calls",
            "the last answer mixes tool calls of several runs, or of another server: send one answer unchanged",
        )
    if any(message.role not in ("tool", "user") for message in rest):
        raise RejectedRequest(400, "misplaced_message", "send only results and user messages after the last calls")
    new_messages = tuple(message for message in rest if message.role == "user")
    by_call = {refs[result.call_id]: result for result in results}
    return Results(next(iter(refs.values())).run_id, by_call, new_messages)
