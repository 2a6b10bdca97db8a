"""Reads the facts of a server: finds out which server it is, and asks the endpoints that only this server has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from penstock.servers import llamacpp, lmstudio, ollama, vllm
from penstock.servers.facts import ServerFacts, ServerKind
from penstock.servers.questions import MODELS, Ask, Json, Questions, count, row_of, rows, table, text

Reader = Callable[[str, list[Mapping[str, Any]]], Questions[ServerFacts]]

_BY_OWNER: dict[str, Reader] = {
    llamacpp.OWNER: llamacpp.read,
    vllm.OWNER: vllm.read,
    vllm.SGLANG_OWNER: vllm.read_sglang,
}
"""The servers that name themselves in their list of models."""
_OK, _REFUSED = 200, (401, 403)
_GATEWAY = "penstock"  # its list has the facts of the servers behind it


class ModelRows(Struct, frozen=True):
    """The list of models of a server: its rows, or why there are none; `server` is the name in its header.

    One that `is_silent` does not answer at all, or not to this key.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    failure: str = ""
    is_silent: bool = False
    server: str = ""

    @property
    def windows(self) -> dict[str, int | None]:
        """The models by their ids, each with the window that its row has."""
        return {id: listed_window(row) for row in self.rows if (id := text(row, "id"))}


def list_models() -> Questions[ModelRows]:
    """The models of the server. A server without a list has none, and no failure."""
    reply = yield Ask(MODELS)
    if reply.failure:
        return ModelRows(failure=reply.failure, is_silent=True)
    if reply.status in _REFUSED:
        return ModelRows(failure=f"the server refused the key (status {reply.status})", is_silent=True)
    if reply.is_missing:
        return ModelRows(server=reply.server)
    if reply.status != _OK:
        return ModelRows(failure=f"it answered with the status {reply.status}", server=reply.server)
    failure = "" if isinstance(reply.body.get("data"), list) else "it sent no list of models"
    return ModelRows(tuple(rows(reply.body, "data")), failure, server=reply.server)


def read_facts(model: str) -> Questions[ServerFacts]:
    """The facts of the server and one of its models."""
    models = yield from list_models()
    if models.is_silent:
        return ServerFacts(model=model, failure=models.failure)
    listed = [*models.rows]
    owner = text(listed[0], "owned_by") if listed else ""
    if owner == _GATEWAY:
        return _any_server(model, listed)
    reader = _BY_OWNER.get(owner) or (llamacpp.read if models.server == llamacpp.HEADER else None)
    if reader is not None:
        return (yield from reader(model, listed))
    if version := text((yield Ask(ollama.VERSION)).body, "version"):
        return (yield from ollama.read(model, version))
    if (facts := (yield from lmstudio.read(model))) is not None:
        return facts
    return _any_server(model, listed)


def _any_server(model: str, listed: list[Mapping[str, Any]]) -> ServerFacts:
    """The facts of another server: its list may have the window."""
    row = row_of(listed, model)
    has_model = row is not None if listed else None
    return ServerFacts(model=model, has_model=has_model, window=None if row is None else listed_window(row))


_WINDOWS = ("max_model_len", "context_length", "context_window")


def listed_window(row: Mapping[str, Any]) -> int | None:
    """The window in the row of a model in `/v1/models`, in the shapes of several servers."""
    own = next((size for key in _WINDOWS if (size := count(row, key))), None)
    return own or count(table(row, "meta"), "n_ctx")


_COUNTED = "openai-chat"  # the protocol of the requests that servers count
_COUNTERS: dict[ServerKind, Callable[[Json], Questions[int | None]]] = {
    "llamacpp": llamacpp.count_prompt,
    "vllm": vllm.count_prompt,
}


def count_prompt(server: ServerKind, wire: str, body: Json) -> Questions[int | None] | None:
    """The questions for the tokens of a request; None if the server cannot count those of this protocol."""
    counter = _COUNTERS.get(server) if wire == _COUNTED else None
    return None if counter is None else counter(body)
