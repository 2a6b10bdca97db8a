"""The endpoints of Ollama through a gateway: passed on to an Ollama server, and answered or translated for others."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import ollama as sdk
import pytest
from aiohttp import web

from penstock.gateway import Upstream, app
from penstock.testing import Reply, think
from tests.asgi_client import Browser, serving
from tests.gateways import upstream, web_server
from tests.servers.faces import Face, llamacpp, lmstudio, ollama, serving_face, vllm

VECTORS = {
    "object": "list", "model": "q", "usage": {"prompt_tokens": 3, "total_tokens": 3},
    "data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [0.25, -1.0]}],
}  # fmt: skip
LINES = b'{"model":"qwen3","response":"Hel","done":false}\n{"model":"qwen3","response":"","done":true,"context":[1]}\n'


@asynccontextmanager
async def in_front_of(face: Face, form: str = "local={}/v1") -> AsyncGenerator[Browser]:
    async with serving_face(face) as url, serving(app(form.format(url))) as browser:
        yield browser


def run(face: Face, test: Callable[[Browser], Awaitable[None]], form: str = "local={}/v1") -> None:
    async def main() -> None:
        async with in_front_of(face, form) as browser:
            await test(browser)

    asyncio.run(main())


def client(browser: Browser) -> sdk.AsyncClient:
    return sdk.AsyncClient(host="http://localhost", transport=httpx.ASGITransport(app=browser.app))


def bodies(face: Face, path: str) -> list[Any]:
    return [one.body for one in face.asked if one.path == path]


# An Ollama server.

FORMS = ["ollama={}", "local={}/v1"]
"""The two addresses of an Ollama server: its own protocol, and the other one."""


def with_pages(face: Face, **pages: Any) -> Face:
    face.pages = {**face.pages, **{path.replace("_", "/"): page for path, page in pages.items()}}
    return face


@pytest.mark.parametrize("form", FORMS)
def test_an_ollama_server_gets_the_requests_as_they_are(form: str) -> None:
    answers: dict[str, Any] = {
        "_api_generate": {"model": "qwen3", "response": "Hi", "done": True, "context": [1, 2]},
        "_api_embed": {"model": "qwen3", "embeddings": [[0.5]]},
        "_api_embeddings": {"embedding": [0.5]},
    }
    face = with_pages(ollama(), **answers)
    asked: dict[str, dict[str, Any]] = {
        "/api/generate": {"model": "qwen3", "prompt": "x", "raw": True, "suffix": "y", "stream": False},
        "/api/embed": {"model": "qwen3", "input": ["x"], "truncate": False},
        "/api/embeddings": {"model": "qwen3", "prompt": "x", "options": {"num_ctx": 9}},
    }

    async def test(browser: Browser) -> None:
        for path, body in asked.items():
            reply = await browser.post(path, body)
            assert (reply.status, reply.json) == (200, answers[path.replace("/", "_")]), path
            assert bodies(face, path) == [body]
        shown = await browser.post("/api/show", {"name": "qwen3"})
        assert shown.json["template"] == "{{ .Prompt }}"
        assert shown.json["model_info"]["qwen3.context_length"] == 40960
        assert (await browser.get("/api/version")).json == {"version": "0.24.1"}
        assert [row["name"] for row in (await browser.get("/api/tags")).json["models"]] == ["qwen3:latest"]
        [running] = (await browser.get("/api/ps")).json["models"]
        assert (running["name"], running["context_length"]) == ("qwen3:latest", 4096)

    run(face, test, form)


@pytest.mark.parametrize("form", FORMS)
def test_the_lines_of_an_ollama_server_stay_as_they_are(form: str) -> None:
    face = ollama()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/generate":
            return web.Response(body=LINES, content_type="application/x-ndjson")
        return await face.answer(request)

    async def main() -> None:
        async with web_server(answer) as url, serving(app(form.format(url))) as browser:
            reply = await browser.post("/api/generate", {"model": "qwen3", "prompt": "x"})
            assert (reply.body, reply.headers["content-type"]) == (LINES, "application/x-ndjson")

    asyncio.run(main())


def test_an_unknown_model_of_an_ollama_server_is_its_error() -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/show", {"model": "nobody"})
        assert reply.status == 404
        assert "model not found" in reply.json["error"]

    run(ollama(), test, "ollama={}")


# Other servers.


def test_a_model_of_another_server_is_shown_with_its_window_and_what_it_can() -> None:
    async def test(browser: Browser) -> None:
        for body in ({"model": "qwen3-8b"}, {"name": "qwen3-8b"}):
            page = (await browser.post("/api/show", body)).json
            architecture = page["model_info"]["general.architecture"]
            assert page["model_info"][f"{architecture}.context_length"] == 8192
            assert page["model_info"]["general.basename"] == "qwen3-8b"
            assert page["capabilities"] == ["completion", "tools", "thinking"]

    run(llamacpp(), test)


def test_a_model_that_the_server_does_not_have_is_not_found() -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/show", {"model": "nobody"})
        assert (reply.status, reply.json) == (404, {"error": "model 'nobody' not found"})

    run(vllm(), test)


def test_the_list_has_all_fields_that_zed_requires() -> None:
    """Zed refuses a list if one of them is missing (crates/ollama, LocalModelListing)."""

    async def test(browser: Browser) -> None:
        [row] = (await browser.get("/api/tags")).json["models"]
        kinds = {"name": str, "model": str, "modified_at": str, "size": int, "digest": str, "details": dict}
        assert {key: type(value) for key, value in row.items()} == kinds
        required = ("format", "family", "parameter_size", "quantization_level")
        assert all(isinstance(row["details"][key], str) for key in required)
        assert row["details"]["context_length"] == 32768

    run(vllm(), test)


def test_vs_code_accepts_the_version_and_finds_models_with_tools() -> None:
    """The calls of its provider for Ollama, in order (byok/vscode-node/ollamaProvider.ts)."""

    async def test(browser: Browser) -> None:
        version = (await browser.get("/api/version")).json["version"]
        assert [int(part) for part in version.split(".")] >= [0, 6, 4]
        for model in (await browser.get("/api/tags")).json["models"]:
            page = (await browser.post("/api/show", {"model": model["model"]})).json
            assert page["model_info"][f"{page['model_info']['general.architecture']}.context_length"] == 32768
            assert "tools" in page["capabilities"]
            assert page["model_info"]["general.basename"] == "Qwen/Qwen3-8B"

    run(vllm(), test)


def test_open_webui_reads_the_version_and_the_end_of_running_models_and_unloads_them() -> None:
    """Its calls, and how it reads the answers (open_webui/routers/ollama.py)."""

    async def test(browser: Browser) -> None:
        version = (await browser.get("/api/version")).json["version"]
        assert tuple(map(int, re.sub(r"^v|-.*", "", version).split("."))) > (0, 6, 4)
        [running] = (await browser.get("/api/ps")).json["models"]
        assert datetime.fromisoformat(running["expires_at"]) > datetime.now(UTC)
        assert running["name"] == (await browser.get("/api/tags")).json["models"][0]["name"]
        unload = {"model": running["model"], "keep_alive": 0, "prompt": ""}
        assert (await browser.post("/api/generate", unload)).json["done"] is True

    run(vllm(), test)


def test_models_that_are_not_loaded_do_not_run() -> None:
    async def loaded(browser: Browser) -> None:
        [row] = (await browser.get("/api/ps")).json["models"]
        assert (row["name"], row["context_length"]) == ("google/gemma-4-26b-a4b", 4096)

    async def unloaded(browser: Browser) -> None:
        assert (await browser.get("/api/ps")).json == {"models": []}

    run(lmstudio(), loaded)
    run(lmstudio(window=None), unloaded)


def test_a_single_prompt_is_asked_as_a_chat() -> None:
    face = vllm()
    body = {"model": "Qwen/Qwen3-8B", "prompt": "Hi", "system": "Be kind.", "options": {"num_predict": 7}}

    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/generate", body)
        rows = [json.loads(line) for line in reply.body.splitlines()]
        assert "".join(row["response"] for row in rows) == "Hello."
        assert not any("message" in row for row in rows)
        assert (rows[-1]["done"], rows[-1]["done_reason"], rows[-1]["eval_count"]) == (True, "stop", 2)
        whole = await browser.post("/api/generate", {**body, "stream": False})
        assert (whole.json["response"], whole.json["done"]) == ("Hello.", True)
        assert int(whole.headers["content-length"]) == len(whole.body)
        roles = [(message["role"], message["content"]) for message in face.chats[0]["messages"]]
        assert roles == [("system", "Be kind."), ("user", "Hi")]
        assert face.chats[0]["max_tokens"] == 7
        [first, _] = (await browser.get("/healed")).json["requests"]
        assert (first["path"], first["status"]) == ("/api/generate", 200)

    run(face, test)


def test_reasoning_of_a_single_prompt_is_beside_the_response() -> None:
    async def main() -> None:
        async with serving(app(upstream([Reply(think("Hm."), "Hi.")]))) as browser:
            reply = await browser.post("/api/generate", {"model": "m", "prompt": "x", "stream": False})
            assert (reply.json["thinking"], reply.json["response"]) == ("Hm.", "Hi.")

    asyncio.run(main())


@pytest.mark.parametrize("field", ["raw", "suffix", "context", "template"])
def test_what_only_ollama_can_do_is_a_clear_error(field: str) -> None:
    face = vllm()

    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/generate", {"model": "m", "prompt": "x", field: "y"})
        assert reply.status == 400
        assert f"{field} needs an Ollama server" in reply.json["error"]
        assert face.chats == []

    run(face, test)


def test_a_request_that_only_loads_a_model_asks_nobody() -> None:
    face = vllm()

    async def test(browser: Browser) -> None:
        assert (await browser.post("/api/generate", {"model": "m"})).json["done_reason"] == "load"
        assert (await browser.post("/api/generate", {"model": "m", "keep_alive": 0})).json["done_reason"] == "unload"
        assert face.chats == []

    run(face, test)


def test_an_error_of_a_single_prompt_keeps_its_shape() -> None:
    async def main() -> None:
        async with serving(app(Upstream(name="a", url="http://127.0.0.1:1/v1", provider="vllm", retries=0))) as browser:
            for is_streaming in (True, False):
                body = {"model": "m", "prompt": "x", "stream": is_streaming}
                reply = await browser.post("/api/generate", body)
                assert reply.status == 502
                assert isinstance(reply.json["error"], str)

    asyncio.run(main())


def test_embeddings_are_asked_for_in_the_other_protocol() -> None:
    face = with_pages(vllm(), _v1_embeddings=VECTORS)

    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/embed", {"model": "m", "input": ["a", "b"], "dimensions": 2})
        assert reply.json == {"model": "m", "embeddings": [[0.25, -1.0], [2.0]], "prompt_eval_count": 3}
        single = await browser.post("/api/embeddings", {"model": "m", "prompt": "a"})
        assert single.json == {"embedding": [0.25, -1.0]}
        [first, second] = bodies(face, "/v1/embeddings")
        assert first == {"model": "m", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2}
        assert second["input"] == "a"

    run(face, test)


@pytest.mark.parametrize("answer", [{"data": "x"}, {"data": [{"vector": 1}]}, [], "text"])
def test_an_answer_without_embeddings_is_the_fault_of_the_server(answer: Any) -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/embed", {"model": "m", "input": "a"})
        assert (reply.status, reply.json) == (502, {"error": "the server sent no embeddings"})

    run(with_pages(vllm(), _v1_embeddings=answer), test)


# The SDK of Ollama.


def test_the_sdk_of_ollama_reads_all_of_it() -> None:
    async def test(browser: Browser) -> None:
        ollama_client = client(browser)
        assert (await ollama_client.show("Qwen/Qwen3-8B")).capabilities == ["completion", "tools"]
        assert [model.model for model in (await ollama_client.list()).models] == ["Qwen/Qwen3-8B"]
        assert [model.model for model in (await ollama_client.ps()).models] == ["Qwen/Qwen3-8B"]
        parts = [part.response async for part in await ollama_client.generate("Qwen/Qwen3-8B", "Hi", stream=True)]
        assert "".join(part or "" for part in parts) == "Hello."
        assert (await ollama_client.generate("Qwen/Qwen3-8B", "Hi")).response == "Hello."
        assert (await ollama_client.embed("m", ["a", "b"])).embeddings == [[0.25, -1.0], [2.0]]
        assert (await ollama_client.embeddings("m", "a")).embedding == [0.25, -1.0]
        with pytest.raises(sdk.ResponseError, match="raw needs an Ollama server"):
            await ollama_client.generate("Qwen/Qwen3-8B", "Hi", raw=True)

    run(with_pages(vllm(), _v1_embeddings=VECTORS), test)
