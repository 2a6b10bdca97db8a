"""Ollama's endpoints beside `/api/chat`: single prompts as chats, embeddings, and the page of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import UsageError
from penstock.wires.ollama.facts import FACTS

WIRE = FACTS.wire
Json = dict[str, Any]
VERSION = "0.12.0"
"""The version of Ollama whose endpoints a gateway has; clients such as VS Code refuse old ones."""
NO_TIME = "1970-01-01T00:00:00Z"
NEVER = "9999-12-31T23:59:59Z"
"""When a server unloads a model that it always has in memory."""
ARCHITECTURE = "other"
"""The architecture of a model on another server: clients look for the window in `{architecture}.context_length`."""
_ONLY_OLLAMA = {
    "raw": "send the text to /v1/completions instead",
    "suffix": "send prompt and suffix to /v1/completions instead",
    "context": "send the history to /api/chat instead",
    "template": "leave it out, as the server has the template of its model",
}
_GENERATED = {"content": "response", "thinking": "thinking"}


def is_load(body: Mapping[str, Any]) -> bool:
    """Whether a request for a single prompt only loads a model, or unloads it."""
    return not body.get("prompt") and not body.get("images")


def loaded(body: Mapping[str, Any]) -> Json:
    """The response to a request that only loads a model, or unloads it."""
    reason = "unload" if body.get("keep_alive") in (0, "0", "0s") else "load"
    return {"model": body.get("model"), "created_at": NO_TIME, "response": "", "done": True, "done_reason": reason}


def chat_request(body: Mapping[str, Any]) -> Json:
    """The request for a chat that asks for the same as a single prompt."""
    for field, advice in _ONLY_OLLAMA.items():
        if body.get(field):
            raise UsageError(f"{field} needs an Ollama server: {advice}")
    prompt, system = body.get("prompt", ""), body.get("system") or ""
    if not isinstance(prompt, str) or not isinstance(system, str):
        raise UsageError("prompt and system must be texts")
    images = {"images": body["images"]} if body.get("images") else {}
    messages = [{"role": "system", "content": system}] if system else []
    left_out = ("prompt", "system", "images", *_ONLY_OLLAMA)
    kept = {key: value for key, value in body.items() if key not in left_out}
    return {**kept, "messages": [*messages, {"role": "user", "content": prompt, **images}]}


def generated(line: Any) -> Any:
    """A line of a chat as a line of the response to a single prompt."""
    message = line.get("message") if isinstance(line, dict) else None
    if not isinstance(message, dict):
        return line
    texts = {name: message[key] for key, name in _GENERATED.items() if message.get(key)}
    return {
        name: value
        for key, inner in line.items()
        for name, value in ({"response": "", **texts} if key == "message" else {key: inner}).items()
    }


# Embeddings.


def embedding_request(body: Mapping[str, Any]) -> Json:
    """The request of OpenAI's protocol for the same embeddings."""
    texts = body.get("input", body.get("prompt"))
    size = {"dimensions": body["dimensions"]} if body.get("dimensions") else {}
    return {"model": body.get("model"), "input": texts, "encoding_format": "float", **size}


def embeddings(response: Any, model: str, *, is_single: bool) -> Json:
    """The embeddings in a response of OpenAI's protocol; raises a `ValueError` if it has none."""
    rows = response.get("data") if isinstance(response, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "embedding" in row for row in rows):
        raise ValueError("the server sent no embeddings")
    vectors = [row["embedding"] for row in sorted(rows, key=lambda row: row.get("index") or 0)]
    if is_single:
        return {"embedding": vectors[0] if vectors else []}
    usage = response.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return {"model": model, "embeddings": vectors, **({} if count is None else {"prompt_eval_count": count})}


# Models.


def listed_model(name: str, window: int | None) -> Json:
    """A model in a list, with all fields that clients require."""
    details = {"parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "",
               "quantization_level": "", **({"context_length": window} if window else {})}  # fmt: skip
    return {"name": name, "model": name, "modified_at": NO_TIME, "size": 0, "digest": "", "details": details}


def shown_model(name: str, window: int | None, *, has_tools: bool, has_thinking: bool) -> Json:
    """The page of a model on another server."""
    switches = {"completion": True, "tools": has_tools, "thinking": has_thinking}
    length = {f"{ARCHITECTURE}.context_length": window} if window else {}
    return {
        "modelfile": "", "parameters": f"num_ctx {window}" if window else "", "template": "", "license": "",
        "modified_at": NO_TIME, "details": listed_model(name, None)["details"],
        "model_info": {"general.architecture": ARCHITECTURE, "general.basename": name, **length},
        "capabilities": [switch for switch, is_on in switches.items() if is_on],
    }  # fmt: skip
