"""The endpoints that are passed on: completions and embeddings, and those of Ollama beside its chats.

A server that speaks Ollama's protocol gets the requests for it as they are. For other servers, they are answered from
what is known about the server, or translated.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond_json
from penstock.errors import UsageError
from penstock.gateway.answering import Answering
from penstock.gateway.asking import wire_of
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.endpoints import all_names
from penstock.gateway.fallbacks import MissingEndpoint
from penstock.gateway.passing.line_sender import LineSender, ReadRequest
from penstock.gateway.passing.passed_request import PassedRequest, read_json, read_model
from penstock.gateway.passing.relay import URLOf
from penstock.gateway.routing import Candidate, find_candidates
from penstock.gateway.servers.model_windows import MAX_ASKED
from penstock.servers.facts import ServerFacts
from penstock.wires import find_facts
from penstock.wires.ollama import other_endpoints as forms
from penstock.wires.openai_chat.facts import FACTS as CHAT_FACTS

CHAT = CHAT_FACTS.wire
OLLAMA = forms.WIRE


def _openai_url(path: str) -> URLOf:
    """The URL of an endpoint of OpenAI's protocol."""

    def url_of(candidate: Candidate, url: str) -> str:
        wire = wire_of(candidate.upstream)
        if (paths := find_facts(wire).passed_paths) is None:
            raise MissingEndpoint(f"the upstream {candidate.upstream.name} speaks {wire}, which has no {path}")
        start, _, query = url.rpartition(paths.chat)
        return f"{start}{paths.root}{path}{query}"

    return url_of


def _ollama_url(path: str) -> URLOf:
    """The URL of an endpoint of Ollama, which may be known by the base URL of its other protocol."""

    def url_of(candidate: Candidate, url: str) -> str:
        paths = find_facts(wire_of(candidate.upstream)).passed_paths
        if paths is None:
            raise MissingEndpoint(f"the upstream {candidate.upstream.name} has no {path}")
        start, _, query = url.rpartition(paths.chat)
        return f"{start.removesuffix('/v1')}{path}{query}"

    return url_of


async def pass_openai(path: str, context: GatewayContext, call: Call) -> None:
    """Pass on a request of OpenAI's protocol, such as `/completions`."""
    body = await call.request.json()
    is_streaming = isinstance(body, dict) and body.get("stream") is True
    await PassedRequest(CHAT, context, call).answer(body, _openai_url(path), is_streaming=is_streaming)


async def generate(context: GatewayContext, call: Call) -> None:
    """`POST /api/generate`: passed on, or asked as a chat."""
    body = await call.request.json()
    facts = await _facts(context, call, body)
    if facts.server == OLLAMA:
        is_streaming = body.get("stream") is not False
        await PassedRequest(OLLAMA, context, call).answer(body, _ollama_url("/api/generate"), is_streaming=is_streaming)
    elif forms.is_load(body):
        await respond_json(call.request, call.send, forms.loaded(body))
    else:
        try:
            chat = forms.chat_request(body)
        except UsageError as error:
            raise RejectedRequest(400, "", str(error)) from None
        sender = LineSender(call.send, forms.generated)
        await Answering(OLLAMA, context, replace(call, request=ReadRequest(call.request, chat), send=sender)).answer()


async def embed(path: str, context: GatewayContext, call: Call) -> None:
    """`POST /api/embed` and `/api/embeddings`: passed on, or asked for in OpenAI's protocol."""
    body = await call.request.json()
    facts, passed = await _facts(context, call, body), PassedRequest(OLLAMA, context, call)
    if facts.server == OLLAMA:
        await passed.answer(body, _ollama_url(path), is_streaming=False)
        return

    def rewrite(data: bytes) -> bytes:
        is_single = path == "/api/embeddings"
        return msgspec.json.encode(forms.embeddings(read_json(data), read_model(body), is_single=is_single))

    asked = forms.embedding_request({**body, "model": read_model(body)})
    await passed.answer(asked, _openai_url("/embeddings"), is_streaming=False, rewrite=rewrite)


async def show(context: GatewayContext, call: Call) -> None:
    """`POST /api/show`: passed on, or the facts of the server."""
    body = await call.request.json()
    facts, model = await _facts(context, call, body), read_model(body)
    if facts.server == OLLAMA:
        asked = {key: value for key, value in body.items() if key != "name"}
        await PassedRequest(OLLAMA, context, call).answer(
            {**asked, "model": model}, _ollama_url("/api/show"), is_streaming=False
        )
        return
    if facts.has_model is False:
        raise RejectedRequest(404, "", f"model '{model}' not found")
    page = forms.shown_model(
        model, facts.window, has_tools=facts.tools is not False, has_thinking=facts.thinking is True
    )
    await respond_json(call.request, call.send, page)


async def list_running(context: GatewayContext, call: Call) -> None:
    """`GET /api/ps`: the models that servers have in memory."""
    client_key = context.client_key(call.request)
    names = (await all_names(context, client_key))[0][:MAX_ASKED]
    settings = context.source.current
    first = [find_candidates(settings, name)[0] for name in names]
    known = await asyncio.gather(*(context.facts.of(candidate, client_key) for candidate in first))
    rows = [_running(name, facts) for name, facts in zip(names, known, strict=True) if facts.is_loaded is not False]
    await respond_json(call.request, call.send, {"models": rows})


def _running(name: str, facts: ServerFacts) -> dict[str, Any]:
    window = {"context_length": facts.window} if facts.window else {}
    return {**forms.listed_model(name, facts.window), "expires_at": forms.NEVER, "size_vram": 0, **window}


async def show_version(context: GatewayContext, call: Call) -> None:
    """`GET /api/version`: that of the first server, or the one whose endpoints the gateway has."""
    settings = context.source.current
    candidate = find_candidates(settings, settings.model)[0]
    facts = await _facts_of(context, call, candidate)
    version = facts.version if facts.server == OLLAMA and facts.version else forms.VERSION
    await respond_json(call.request, call.send, {"version": version})


async def _facts(context: GatewayContext, call: Call, body: Any) -> ServerFacts:
    """The facts of the server that a body is for."""
    candidate = find_candidates(context.source.current, read_model(body))[0]
    return await _facts_of(context, call, candidate)


async def _facts_of(context: GatewayContext, call: Call, candidate: Candidate) -> ServerFacts:
    """The facts of a server; one that is addressed in Ollama's protocol is an Ollama server, whatever it reports."""
    facts = await context.facts.of(candidate, context.client_key(call.request))
    return replace(facts, server=OLLAMA) if wire_of(candidate.upstream) == OLLAMA else facts
