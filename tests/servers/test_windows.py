"""The windows of models in the lists of a gateway, and in the settings of clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.app import penstock as command_line
from penstock.gateway import GatewaySettings, Upstream, app
from tests.asgi_client import serving
from tests.servers import faces
from tests.servers.faces import Face, serving_face

GEMMA = "google/gemma-4-26b-a4b"
FACES = {
    "llama.cpp": (faces.llamacpp(), "qwen3-8b", 8192),
    "vllm": (faces.vllm(), "Qwen/Qwen3-8B", 32768),
    "sglang": (faces.sglang(), "Qwen/Qwen3-8B", 16384),
    "lm studio": (faces.lmstudio(), GEMMA, 4096),
    "ollama": (faces.ollama(), "qwen3:latest", 4096),
    "ollama, not loaded": (faces.ollama(window=None), "qwen3:latest", None),
    "another server": (Face(pages={"/v1/models": {"data": [{"id": "m"}]}}), "m", None),
}


def listed(face: Face, path: str = "/v1/models", provider: str = "llamacpp", context: int = 0) -> Any:
    async def main() -> Any:
        async with serving_face(face) as url:
            upstream = Upstream(name="first", url=f"{url}/v1", provider=provider, context=context)
            async with serving(app(settings=GatewaySettings(upstreams={"first": upstream}))) as browser:
                return (await browser.get(path)).json

    return asyncio.run(main())


@pytest.mark.parametrize("name", FACES)
def test_a_list_of_models_has_the_window_of_the_server(name: str) -> None:
    face, model, window = FACES[name]
    [row] = listed(face)["data"]
    assert row["id"] == model
    fields = ("max_model_len", "context_length", "max_input_tokens")
    assert {field: row.get(field) for field in fields} == dict.fromkeys(fields, window)
    assert (None in [row.get(field) for field in fields]) == (not set(fields) & set(row))


def test_the_window_is_that_of_the_server_in_the_settings_of_now() -> None:
    """The upstream keeps its name, and no chat has come since the file was changed."""

    async def main() -> list[Any]:
        async with serving_face(faces.llamacpp()) as first, serving_face(faces.llamacpp(window=4096)) as second:
            source = ChangingSettings(_settings(first))
            async with serving(app(settings=source)) as browser:
                rows = [(await browser.get("/v1/models")).json["data"][0]]
                source.current = _settings(second)
                return [*rows, (await browser.get("/v1/models")).json["data"][0]]

    assert [row["context_length"] for row in asyncio.run(main())] == [8192, 4096]


class ChangingSettings:
    """Settings of a file that is changed while the gateway runs."""

    problem = ""

    def __init__(self, settings: GatewaySettings) -> None:
        self.current = settings


def _settings(url: str) -> GatewaySettings:
    return GatewaySettings(upstreams={"first": Upstream(name="first", url=f"{url}/v1", provider="llamacpp")})


def test_the_lists_of_other_protocols_have_it_too() -> None:
    assert listed(faces.vllm(), "/v1beta/models")["models"][0]["inputTokenLimit"] == 32768
    assert listed(faces.vllm(), "/api/tags")["models"][0]["details"]["context_length"] == 32768


def test_the_configured_window_counts_in_lists() -> None:
    windows = [row["max_model_len"] for row in listed(faces.vllm(), context=8192)["data"]]
    assert windows == [8192]
    assert [row["max_model_len"] for row in listed(faces.vllm(), context=99_999)["data"]] == [32768]
    unknown = Face(pages={"/v1/models": {"data": [{"id": name} for name in "abc"]}})
    assert [row["max_model_len"] for row in listed(unknown, context=8192)["data"]] == [8192] * 3


def test_a_list_with_windows_needs_no_other_request() -> None:
    face = faces.vllm()
    listed(face)
    assert face.paths == ["/v1/models"]


def test_an_unknown_server_is_asked_for_the_facts_of_one_model_only(monkeypatch: pytest.MonkeyPatch) -> None:
    face = Face(pages={"/v1/models": {"data": [{"id": name} for name in "abcdef"]}})
    listed(face)
    assert face.paths.count("/api/version") == 1
    monkeypatch.setattr("penstock.gateway.servers.model_windows.MAX_ASKED", 2)
    many = faces.ollama()
    rows = [{"id": f"qwen3:{number}", "owned_by": "library"} for number in range(5)]
    listed(Face(pages={**many.pages, "/v1/models": {"data": rows}}, asked=many.asked))
    assert [one.body["model"] for one in many.asked if one.path == "/api/show"] == ["qwen3:0", "qwen3:1"]


# Settings of clients.


@contextmanager
def in_thread(face: Face) -> Iterator[str]:
    """The address of a face that runs beside the test, as a command needs it."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    server = serving_face(face)
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def settings_for(client: str, *options: str) -> str:
    result = CliRunner().invoke(command_line, ["gateway", "--for", client, *options])
    assert result.exit_code == 0, result.output
    return result.output


def window_in(output: str) -> int:
    return int(output.partition('"context": ')[2].partition(",")[0])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_settings_of_a_client_have_the_window_of_the_server() -> None:
    with in_thread(faces.vllm()) as url:
        assert window_in(settings_for("opencode", "--upstream", f"{url}/v1", "--model", "Qwen/Qwen3-8B")) == 32768
        Path("gateway.toml").write_text(f'[upstreams.one]\nurl = "{url}/v1"\n', encoding="utf-8")
        assert window_in(settings_for("opencode", "--model", "Qwen/Qwen3-8B")) == 32768
        assert '"contextWindow": 32768' in settings_for("pi", "--model", "Qwen/Qwen3-8B")
        assert "contextLength: 32768" in settings_for("continue", "--model", "Qwen/Qwen3-8B")


def test_without_an_upstream_the_running_gateway_is_asked() -> None:
    rows = [{"id": "m", "owned_by": "penstock", "max_model_len": 5000}]
    with in_thread(Face(pages={"/v1/models": {"data": rows}})) as url:
        output = settings_for("opencode", "--port", url.rpartition(":")[2], "--model", "m")
    models = json.loads(output[output.index("{") : output.rindex("}") + 1])["provider"]["penstock"]["models"]
    assert models["m"]["limit"] == {"context": 5000, "output": 2500}


def test_an_unknown_window_is_assumed() -> None:
    with in_thread(Face(pages={})) as url:
        assert window_in(settings_for("opencode", "--upstream", f"{url}/v1", "--model", "m")) == 128_000
