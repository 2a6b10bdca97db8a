"""Simulated servers: the endpoints of Ollama, vLLM, SGLang, LM Studio and llama.cpp, in the shapes of their sources."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from tests.gateways import delta, sse, web_server

Json = dict[str, Any]
Respond = Callable[[Json], bytes]


def plain(text: str = "Hello.", prompt_tokens: int = 20) -> Respond:
    """A chat stream with a text."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 2, "total_tokens": prompt_tokens + 2}
    return lambda _body: sse(
        delta(role="assistant", content=text), delta("stop"), {**delta(), "choices": [], "usage": usage}
    )


def lines(text: str = "Hello.", prompt_tokens: int = 20) -> Respond:
    """A stream of Ollama's own protocol with a text."""
    common = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    last = {"done": True, "done_reason": "stop", "prompt_eval_count": prompt_tokens, "eval_count": 2}
    rows: list[Json] = [
        {**common, "message": {"role": "assistant", "content": text}, "done": False},
        {**common, "message": {"role": "assistant", "content": ""}, **last},
    ]
    return lambda _body: "".join(f"{json.dumps(row)}\n" for row in rows).encode()


class Asked(Struct, frozen=True):
    """A request that a face got."""

    method: str
    path: str
    body: Any
    key: str


class Face(Struct):
    """A simulated server: JSON by path, what it answers to unknown paths, and its chat."""

    pages: Mapping[str, Any]
    unknown: tuple[int, Any] = (404, {"error": "not found"})
    chat: Respond = field(default_factory=plain)
    native: Respond = field(default_factory=lines)
    header: str = ""
    refused: Mapping[str, tuple[int, Any]] = {}
    asked: list[Asked] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body: Any = json.loads(data) if data else {}
        self.asked.append(Asked(request.method, request.path_qs, body, request.headers.get("authorization", "")))
        headers = {"server": self.header} if self.header else {}
        if request.path in self.refused:
            status, value = self.refused[request.path]
            return web.json_response(value, status=status, headers=headers)
        if request.path.endswith("/chat/completions"):
            return web.Response(body=self.chat(body), content_type="text/event-stream")
        if request.path == "/api/chat":
            return web.Response(body=self.native(body), content_type="application/x-ndjson")
        page = self.pages.get(request.path_qs, self.pages.get(request.path))
        if callable(page):
            page = page(body)
        if page is None:
            status, value = self.unknown
            return web.json_response(value, status=status, headers=headers)
        return web.json_response(page, headers=headers)

    @property
    def paths(self) -> list[str]:
        """The paths that were asked for, without the chat."""
        return [one.path for one in self.asked if not one.path.endswith(("/chat/completions", "/api/chat"))]

    @property
    def chats(self) -> list[Json]:
        """The bodies of the chat requests."""
        return [one.body for one in self.asked if one.path.endswith(("/chat/completions", "/api/chat"))]


@asynccontextmanager
async def serving_face(face: Face) -> AsyncGenerator[str]:
    """The address of a face."""
    async with web_server(face.answer) as url:
        yield url


def ollama(
    *, window: int | None = 4096, parameters: str = "", capabilities: list[str] | None = None, **settings: Any
) -> Face:
    """Ollama 0.24 with the model qwen3; with a `window`, the model is loaded."""
    details = {"parent_model": "", "format": "gguf", "family": "qwen3", "families": ["qwen3"],
               "parameter_size": "8.2B", "quantization_level": "Q4_K_M"}  # fmt: skip

    def show(body: Json) -> Any:
        if body.get("model") not in ("qwen3", "qwen3:latest"):
            return None
        return {
            "license": "…", "modelfile": "FROM …", "parameters": parameters, "template": "{{ .Prompt }}",
            "details": details,
            "model_info": {"general.architecture": "qwen3", "qwen3.block_count": 36, "qwen3.context_length": 40960},
            "capabilities": ["completion", "tools", "thinking"] if capabilities is None else capabilities,
            "modified_at": "2026-08-01T00:00:00Z",
        }  # fmt: skip

    loaded = {"name": "qwen3:latest", "model": "qwen3:latest", "size": 1, "digest": "d", "details": details,
              "expires_at": "2026-08-01T00:05:00Z", "size_vram": 1, "context_length": window}  # fmt: skip
    pages = {
        "/v1/models": {
            "object": "list",
            "data": [{"id": "qwen3:latest", "object": "model", "created": 1, "owned_by": "library"}],
        },
        "/api/version": {"version": "0.24.1"},
        "/api/show": show,
        "/api/ps": {"models": [loaded] if window else []},
    }  # fmt: skip
    return Face(pages=pages, unknown=(404, {"error": "model not found"}), **settings)


def vllm(*, window: int = 32768, **settings: Any) -> Face:
    """vLLM 0.12 with the model Qwen/Qwen3-8B."""
    card = {"id": "Qwen/Qwen3-8B", "object": "model", "created": 1, "owned_by": "vllm", "root": "Qwen/Qwen3-8B",
            "parent": None, "max_model_len": window, "permission": []}  # fmt: skip
    pages = {
        "/v1/models": {"object": "list", "data": [card]},
        "/version": {"version": "0.12.0"},
        "/tokenize": lambda body: {"count": len(json.dumps(body["messages"])), "max_model_len": window, "tokens": []},
    }
    return Face(pages=pages, unknown=(404, {"detail": "Not Found"}), header="uvicorn", **settings)


def sglang(*, parser: str | None = "qwen", is_old: bool = False, **settings: Any) -> Face:
    """SGLang with the model Qwen/Qwen3-8B; an old one has another path, and no parsers in it."""
    card = {"id": "Qwen/Qwen3-8B", "object": "model", "created": 1, "owned_by": "sglang", "root": "Qwen/Qwen3-8B",
            "parent": None, "max_model_len": 16384}  # fmt: skip
    info: Json = {"model_path": "Qwen/Qwen3-8B", "tokenizer_path": "Qwen/Qwen3-8B", "is_generation": True,
                  "preferred_sampling_params": None, "weight_version": "default"}  # fmt: skip
    if not is_old:
        info |= {"tool_call_parser": parser, "reasoning_parser": "qwen3"}
    pages = {
        "/v1/models": {"object": "list", "data": [card]},
        "/get_model_info" if is_old else "/model_info": info,
        "/server_info": {"api_key": "secret-of-the-server", "version": "0.5"},
        "/get_server_info": {"api_key": "secret-of-the-server", "version": "0.5"},
    }
    return Face(pages=pages, unknown=(404, {"detail": "Not Found"}), header="uvicorn", **settings)


UNEXPECTED = (200, {"error": "Unexpected endpoint or method. (GET /x)"})
"""What LM Studio answers to unknown paths, with the status 200."""


def lmstudio(*, is_old: bool = False, window: int | None = 4096, **settings: Any) -> Face:
    """LM Studio with the model google/gemma-4-26b-a4b; an old one has only the list of version 0."""
    name = "google/gemma-4-26b-a4b"
    listed = {
        "/v1/models": {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "organization_owner"}]}
    }
    old = {"id": name, "object": "model", "type": "llm", "publisher": "google", "arch": "gemma4",
           "compatibility_type": "gguf", "quantization": "Q4_K_M", "state": "loaded" if window else "not-loaded",
           "max_context_length": 262144, "capabilities": ["tool_use"]}  # fmt: skip
    old |= {"loaded_context_length": window} if window else {}
    instance = {"id": name, "config": {"context_length": window, "eval_batch_size": 512, "parallel": 4}}
    new = {"type": "llm", "publisher": "google", "key": name, "display_name": "Gemma 4", "architecture": "gemma4",
           "loaded_instances": [instance] if window else [], "max_context_length": 262144, "format": "gguf",
           "capabilities": {"vision": True, "trained_for_tool_use": True,
                            "reasoning": {"allowed_options": ["off", "on"], "default": "on"}}}  # fmt: skip
    pages = {**listed, "/api/v0/models": {"object": "list", "data": [old]}}
    if not is_old:
        pages["/api/v1/models"] = {"models": [new]}
    return Face(pages=pages, unknown=UNEXPECTED, **settings)


def llamacpp(*, window: int = 8192, caps: bool = True, counts: bool = True, **settings: Any) -> Face:
    """llama.cpp with one model; without `caps` and `counts`, as older builds."""
    meta = {"vocab_type": 2, "n_vocab": 151936, "n_ctx": window, "n_ctx_train": 40960, "n_embd": 4096, "n_params": 8}
    row = {"id": "qwen3-8b", "aliases": ["qwen3-8b"], "tags": [], "object": "model", "created": 1,
           "owned_by": "llamacpp", "meta": meta}  # fmt: skip
    props: Json = {"default_generation_settings": {"params": {}, "n_ctx": window}, "total_slots": 1,
                   "model_path": "/models/qwen3-8b.gguf",
                   "chat_template": "{% if tools %}{{ tools }}{% endif %}<think>",
                   "build_info": "b7000-abcdef0"}  # fmt: skip
    if caps:
        props["chat_template_caps"] = {"supports_tools": True, "supports_tool_calls": True}
    pages: Json = {
        "/v1/models": {"object": "list", "data": [row]},
        "/props": props,
        "/apply-template": lambda body: {"prompt": "".join(str(one["content"]) for one in body["messages"])},
        "/tokenize": lambda body: {"tokens": [1] * len(body["content"])},
    }
    if counts:
        pages["/v1/chat/completions/input_tokens"] = lambda body: {
            "object": "response.input_tokens", "input_tokens": len(json.dumps(body["messages"])),
        }  # fmt: skip
    unknown = (404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})
    return Face(pages=pages, unknown=unknown, header="llama.cpp", **settings)
