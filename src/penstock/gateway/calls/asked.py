"""Writes the request for calls: natively, in a dialect in the prompt, or as text that the server does not parse."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.declarations import FREE_TEXT, ToolDeclaration
from penstock.gateway.config.settings import AUTO, NATIVE, RAW, check_calls
from penstock.gateway.routing import Candidate
from penstock.healing.in_text import InTextCalls
from penstock.history.client_request import ClientRequest
from penstock.providers import find_provider
from penstock.wires.shared.encode_request.body import function_description
from penstock.wires.shared.request import Request


def in_text_calls(candidate: Candidate, request: ClientRequest) -> InTextCalls | None:
    """How the calls of a candidate are read from its text; None if they are native."""
    settings = request.settings
    if candidate.calls in (NATIVE, AUTO):
        return None
    is_own = candidate.calls != RAW
    dialects = (candidate.calls,) if is_own else raw_dialects(candidate.model)
    return InTextCalls(dialects, is_own, settings.is_parallel is not False)


def raw_dialects(model: str) -> tuple[str, ...]:
    """The dialects in which the text of a model is read whose prompt its server wrote.

    They are those in which calls are rescued, or the model's own, if that is known and not one of them.
    """
    from penstock.dialects.by_model import find_dialect_of
    from penstock.healing.rescued import RESCUED

    own = find_dialect_of(model)
    return RESCUED if own is None or own in RESCUED else (own,)


def ask_in_text(candidate: Candidate, sent: Request, in_text: InTextCalls) -> tuple[Request, str]:
    """The request for calls in the text, and the `calls` with which a model is asked."""
    sent = replace(sent, tools=tuple(map(as_function, sent.tools)))
    return (sent, in_text.dialects[0]) if in_text.is_own else (_unparsed(candidate, sent), NATIVE)


def _unparsed(candidate: Candidate, sent: Request) -> Request:
    """The request for text that the server does not parse; the tools are in the prompt that the server writes."""
    from penstock.dialects.prompt import with_choice

    check_calls(RAW, candidate.upstream)
    if not sent.tools:
        return sent
    return replace(
        sent,
        messages=tuple(with_choice(sent.messages, sent.tool_choice, sent.is_parallel)),
        tool_choice="none",
        is_parallel=None,
        extra={**(find_provider(candidate.upstream.provider)[1].unparsed or {}), **sent.extra},
    )


def as_function(tool: ToolDeclaration) -> ToolDeclaration:
    """The tool as a function: a custom tool has one argument, with its free text."""
    if not tool.is_custom:
        return tool
    description = function_description(tool).get("description", "")
    return replace(tool, description=description, parameters=FREE_TEXT, is_custom=False)
