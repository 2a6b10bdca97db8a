"""Asks servers over HTTP: carries out the questions on an event loop, within a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.jsontext.shown_text import escape
from penstock.redaction import Mask
from penstock.servers.facts import ServerFacts, ServerKind
from penstock.servers.questions import MODELS, Ask, Questions, Reply, T
from penstock.servers.reading import count_prompt, read_facts
from penstock.transport.http.failures import client_words

if TYPE_CHECKING:
    import aiohttp

READ_SECONDS = 4.0
"""How long all questions for the facts of a model may take."""
MAX_REPLY = 8 * 1024 * 1024
"""How many bytes of a reply are read."""
_VERSION = re.compile(r"/v\d+\w*$")


class ServerAddress(Struct, frozen=True):
    """The base URL of a server, with the version of its API if it has one, and the headers of requests to it.

    `models` is the URL of its list of models, if that is not `/models` below the version. With a `name`, failures
    have it in place of the address.
    """

    url: str
    headers: Mapping[str, str] = {}
    models: str = ""
    name: str = ""

    def url_of(self, path: str) -> str:
        """The URL of a path of a question."""
        if path == MODELS and self.models:
            return self.models
        base, _, query = self.url.partition("?")
        base = base.rstrip("/")
        root = _VERSION.sub("", base)
        version = base.removeprefix(root) or "/v1"
        url = f"{root}{version}/models" if path == MODELS else f"{root}{path}"
        return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


async def ask_server(address: ServerAddress, questions: Questions[T]) -> T:
    """What the questions find out."""
    import aiohttp

    async with aiohttp.ClientSession(headers=address.headers) as session:
        reply: Reply | None = None
        while True:
            try:
                question = next(questions) if reply is None else questions.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await _reply(session, address, question)


async def server_facts(address: ServerAddress, model: str, seconds: float = READ_SECONDS) -> ServerFacts:
    """The facts of a server and a model; those of a server that does not answer have a failure. It never raises."""
    try:
        async with asyncio.timeout(seconds):
            return await ask_server(address, read_facts(model))
    except TimeoutError:
        return ServerFacts(model=model, failure=f"no answer within {seconds:g} seconds")


async def count_tokens(
    address: ServerAddress, server: ServerKind, wire: str, body: bytes, seconds: float
) -> int | None:
    """The tokens of a request of a wire by the server's own count; None if it cannot count, or takes too long."""
    questions = count_prompt(server, wire, msgspec.json.decode(body))
    if questions is None:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await ask_server(address, questions)
    except TimeoutError:
        return None


def load_client() -> None:
    """Import the HTTP client. The first time this takes long, which is not the time of a server."""
    import_module("aiohttp")


async def _reply(session: aiohttp.ClientSession, address: ServerAddress, question: Ask) -> Reply:
    import aiohttp

    url = address.url_of(question.path)
    method = "GET" if question.body is None else "POST"
    try:
        async with session.request(method, url, json=question.body, allow_redirects=False) as response:
            body = _json(await _whole_body(response.content)) if response.status == 200 else {}
            return Reply(response.status, body, response.headers.get("server", ""))
    except (aiohttp.ClientError, OSError, ValueError) as error:  # an invalid URL or header is a ValueError
        return Reply(failure=escape(Mask(session.headers, url).text(client_words(error, url, address.name))))


async def _whole_body(content: aiohttp.StreamReader) -> bytes:
    """The complete body of a reply; a `ValueError` if it has more than `MAX_REPLY` bytes."""
    data = bytearray()  # which grows in place
    async for piece in content.iter_any():
        data += piece
        if len(data) > MAX_REPLY:
            raise ValueError(f"its reply is larger than {MAX_REPLY} bytes")
    return bytes(data)


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
