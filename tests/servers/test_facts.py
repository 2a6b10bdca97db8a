"""Facts of servers: what each server is, its window, its tools, as its own endpoints report them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from penstock.gateway import GatewaySettings, Upstream
from penstock.gateway.facts import UpstreamFacts
from penstock.gateway.routing import find_candidates
from penstock.servers import kept_facts
from penstock.servers.asking import ServerAddress, ask_server, server_facts
from penstock.servers.facts import LABELS, ServerFacts
from penstock.servers.kept_facts import KEPT_SECONDS, KeptFacts
from penstock.servers.questions import Ask, Reply
from penstock.servers.reading import count_prompt, read_facts
from tests.gateways import web_server
from tests.servers import faces
from tests.servers.faces import Face, serving_face

QWEN = "Qwen/Qwen3-8B"
GEMMA = "google/gemma-4-26b-a4b"


def facts_of(face: Face, model: str, path: str = "/v1", **headers: str) -> ServerFacts:
    async def main() -> ServerFacts:
        async with serving_face(face) as url:
            return await server_facts(ServerAddress(f"{url}{path}", headers), model)

    return asyncio.run(main())


KNOWN: dict[str, tuple[Callable[[], Face], str, ServerFacts]] = {
    "ollama, loaded": (faces.ollama, "qwen3", ServerFacts(
        server="ollama", version="0.24.1", model="qwen3", has_model=True, is_loaded=True, window=4096,
        longest_window=40960, tools=True, tool_choices="none", thinking=True, overflow="cut")),
    "ollama, num_ctx in the Modelfile": (
        lambda: faces.ollama(window=None, parameters='stop    "<|im_end|>"\nnum_ctx                    16384'), "qwen3",
        ServerFacts(server="ollama", version="0.24.1", model="qwen3", has_model=True, is_loaded=False, window=16384,
                    longest_window=40960, tools=True, tool_choices="none", thinking=True, overflow="cut")),
    "ollama, not loaded": (
        lambda: faces.ollama(window=None, capabilities=["completion"]), "qwen3",
        ServerFacts(server="ollama", version="0.24.1", model="qwen3", has_model=True, is_loaded=False,
                    longest_window=40960, tools=False, tool_choices="none", thinking=False, overflow="cut")),
    "ollama, another model": (faces.ollama, "llama9", ServerFacts(
        server="ollama", version="0.24.1", model="llama9", has_model=False, overflow="cut")),
    "vllm": (faces.vllm, QWEN, ServerFacts(
        server="vllm", version="0.12.0", model=QWEN, has_model=True, is_loaded=True, window=32768, tool_choices="all",
        overflow="refused")),
    "vllm, another model": (faces.vllm, "x", ServerFacts(
        server="vllm", version="0.12.0", model="x", has_model=False, is_loaded=True, tool_choices="all",
        overflow="refused")),
    "sglang": (faces.sglang, QWEN, ServerFacts(
        server="sglang", model=QWEN, has_model=True, is_loaded=True, window=16384, tools=True, tool_choices="all",
        thinking=True, overflow="refused")),
    "sglang without a parser": (lambda: faces.sglang(parser=None), QWEN, ServerFacts(
        server="sglang", model=QWEN, has_model=True, is_loaded=True, window=16384, tools=False, tool_choices="all",
        thinking=True, overflow="refused")),
    "old sglang": (lambda: faces.sglang(is_old=True), QWEN, ServerFacts(
        server="sglang", model=QWEN, has_model=True, is_loaded=True, window=16384, tool_choices="all",
        overflow="refused")),
    "lm studio": (faces.lmstudio, GEMMA, ServerFacts(
        server="lmstudio", model=GEMMA, has_model=True, is_loaded=True, window=4096, longest_window=262144, tools=True,
        tool_choices="words", thinking=True)),
    "old lm studio": (lambda: faces.lmstudio(is_old=True), GEMMA, ServerFacts(
        server="lmstudio", model=GEMMA, has_model=True, is_loaded=True, window=4096, longest_window=262144, tools=True,
        tool_choices="words")),
    "lm studio, not loaded": (lambda: faces.lmstudio(window=None), GEMMA, ServerFacts(
        server="lmstudio", model=GEMMA, has_model=True, is_loaded=False, longest_window=262144, tools=True,
        tool_choices="words", thinking=True)),
    "lm studio, another model": (faces.lmstudio, "x", ServerFacts(
        server="lmstudio", model="x", has_model=False, tool_choices="words")),
    "llama.cpp": (faces.llamacpp, "any name", ServerFacts(
        server="llamacpp", version="b7000-abcdef0", model="any name", actual_model="qwen3-8b", has_model=True,
        is_loaded=True, window=8192, longest_window=40960, tools=True, tool_choices="words", thinking=True,
        overflow="refused")),
    "older llama.cpp": (lambda: faces.llamacpp(caps=False), "qwen3-8b", ServerFacts(
        server="llamacpp", version="b7000-abcdef0", model="qwen3-8b", has_model=True, is_loaded=True, window=8192,
        longest_window=40960, tools=True, tool_choices="words", thinking=True, overflow="refused")),
    "llama.cpp with protected properties": (
        lambda: faces.llamacpp(refused={"/props": (401, {"error": {"message": "Invalid API Key"}})}), "qwen3-8b",
        ServerFacts(server="llamacpp", model="qwen3-8b", has_model=True, is_loaded=True, window=8192,
                    longest_window=40960, tool_choices="words", overflow="refused")),
    "another server": (lambda: Face(pages={"/v1/models": {"data": [{"id": "a", "context_length": 9000}]}}), "a",
                       ServerFacts(model="a", has_model=True, window=9000)),
    "a server without a list": (lambda: Face(pages={}), "a", ServerFacts(model="a")),
    "a server that answers everything with a text": (
        lambda: Face(pages={}, unknown=(200, "hello")), "a", ServerFacts(model="a")),
    "a server with other shapes": (
        lambda: Face(pages={}, unknown=(200, {"data": [1, {"id": 7}], "models": {"a": 1}, "version": 3})), "a",
        ServerFacts(model="a", has_model=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_facts_are_those_that_the_server_reports(name: str) -> None:
    new, model, expected = KNOWN[name]
    assert facts_of(new(), model) == expected


def test_ollama_is_asked_at_its_own_address_too() -> None:
    assert facts_of(faces.ollama(), "qwen3", path="").window == 4096


def test_a_router_is_asked_for_one_model_and_loads_none() -> None:
    meta = {"n_ctx": 2048, "n_ctx_train": 4096}
    rows = [
        {"id": "a", "owned_by": "llamacpp", "status": {"value": "unloaded"}},
        {"id": "b c", "owned_by": "llamacpp", "status": {"value": "loaded"}, "meta": meta},
    ]
    props = {"default_generation_settings": {"n_ctx": 2048}, "build_info": "b1"}
    refused = (400, {"error": {"message": "model is not loaded"}})
    face = Face(pages={"/v1/models": {"data": rows}, "/props?model=b%20c&autoload=false": props}, unknown=refused)
    loaded, other, unknown = (facts_of(face, model) for model in ("b c", "a", "z"))
    assert (loaded.window, loaded.longest_window, loaded.is_loaded) == (2048, 4096, True)
    assert (other.window, other.has_model, other.is_loaded) == (None, True, False)
    assert unknown.has_model is False
    assert {path for path in face.paths if "props" in path} == {
        "/props?model=b%20c&autoload=false", "/props?model=a&autoload=false",
    }  # fmt: skip


def test_no_page_with_the_key_of_the_server_is_asked_for() -> None:
    face = faces.sglang()
    facts_of(face, QWEN)
    assert face.paths == ["/v1/models", "/model_info"]


def test_the_key_is_sent_and_is_not_in_a_failure() -> None:
    face = faces.vllm()
    facts_of(face, QWEN, authorization="Bearer key-of-the-server")
    assert {one.key for one in face.asked} == {"Bearer key-of-the-server"}
    facts = facts_of(
        Face(pages={}, refused={"/v1/models": (401, {"error": "no"})}), "a", authorization="Bearer other-key"
    )
    assert facts == ServerFacts(model="a", failure="the server refused the key (status 401)")
    headers = {"authorization": "Bearer key\nwith a line"}
    failed = asyncio.run(server_facts(ServerAddress("http://127.0.0.1:1/v1", headers), "a"))
    assert failed.failure
    assert "with a line" not in failed.failure


def test_a_server_that_is_down_or_silent_is_a_failure() -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async def main() -> tuple[ServerFacts, ServerFacts]:
        async with web_server(silent) as url:
            return (
                await server_facts(ServerAddress("http://127.0.0.1:1/v1"), "a"),
                await server_facts(ServerAddress(f"{url}/v1"), "a", 0.1),
            )

    down, slow = asyncio.run(main())
    assert down.failure == "Connection refused"
    assert slow.failure == "no answer within 0.1 seconds"


def test_a_reply_that_is_too_large_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.servers.asking.MAX_REPLY", 100)
    facts = facts_of(Face(pages={"/v1/models": {"data": ["x" * 200]}}), "a")
    assert facts.failure == "its reply is larger than 100 bytes"


def test_every_server_has_a_label() -> None:
    assert {ServerFacts(server=kind).label for kind in LABELS} == set(LABELS.values())
    assert ServerFacts(server="vllm", version="1").label == "vLLM 1"


def test_the_questions_need_no_network() -> None:
    questions = read_facts("a")
    assert next(questions) == Ask("models")
    assert questions.send(Reply(200, {"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 5}]})) == Ask(
        "/version"
    )
    with pytest.raises(StopIteration) as end:
        questions.send(Reply(404))
    assert end.value.value.window == 5


BODY: Any = {"model": "m", "messages": [{"role": "user", "content": "twenty-one characters"}]}


@pytest.mark.parametrize(
    ("face", "server", "expected"),
    [
        (faces.llamacpp(), "llamacpp", 54),
        (faces.llamacpp(counts=False), "llamacpp", 21),
        (faces.vllm(), "vllm", 54),
        (Face(pages={}), "vllm", None),
        (Face(pages={}), "llamacpp", None),
    ],
)
def test_a_server_counts_the_prompt(face: Face, server: Any, expected: int | None) -> None:
    async def main() -> int | None:
        async with serving_face(face) as url:
            questions = count_prompt(server, "openai-chat", BODY)
            assert questions is not None
            return await ask_server(ServerAddress(f"{url}/v1"), questions)

    assert asyncio.run(main()) == expected
    assert count_prompt("ollama", "openai-chat", BODY) is None
    assert count_prompt(server, "openai-responses", BODY) is None


# Facts that are kept.


class Readings:
    """Counts the readings of facts, and answers when it may."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.now = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure = ""
        self.kept = KeptFacts(self.read, lambda: self.now)

    async def read(self, _address: ServerAddress, model: str) -> ServerFacts:
        self.models.append(model)
        await self.gate.wait()
        return ServerFacts(model=model, failure=self.failure, window=None if self.failure else len(self.models))

    async def find(self, model: str = "a", seconds: float = 0.5) -> int | None:
        return (await self.kept.find("place", ServerAddress("http://x/v1"), model, seconds)).window


def test_facts_are_read_once() -> None:
    async def main() -> None:
        readings = Readings()
        assert await asyncio.gather(*(readings.find() for _ in range(5))) == [1] * 5
        assert await readings.find("b") == 2
        assert readings.models == ["a", "b"]

    asyncio.run(main())


def test_the_import_of_the_client_does_not_use_up_the_time_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_facts, "load_client", lambda: time.sleep(0.2))
    assert asyncio.run(Readings().find(seconds=0.1)) == 1


def test_an_upstream_with_another_url_has_other_facts() -> None:
    async def main() -> None:
        facts = UpstreamFacts(Readings().kept)
        urls = ("http://a/v1", "http://b/v1", "http://a/v1")
        settings = [GatewaySettings(upstreams={"u": Upstream(name="u", url=url)}) for url in urls]
        known = [await facts.of(find_candidates(one, "m")[0], "") for one in settings]
        assert [one.window for one in known] == [1, 2, 1]

    asyncio.run(main())


def test_a_slow_server_delays_one_request_only() -> None:
    async def main() -> None:
        readings = Readings()
        readings.gate.clear()
        assert await readings.find(seconds=0.05) is None
        async with asyncio.timeout(9):  # of 20 times half a second: the others do not wait
            assert [await readings.find() for _ in range(20)] == [None] * 20
        readings.gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await readings.find() == 1
        assert readings.models == ["a"]

    asyncio.run(main())


def test_old_facts_are_used_while_they_are_read_again() -> None:
    async def main() -> None:
        readings = Readings()
        assert await readings.find() == 1
        readings.now += KEPT_SECONDS
        readings.gate.clear()
        assert await readings.find() == 1
        readings.gate.set()
        await asyncio.sleep(0.01)
        assert await readings.find() == 2

    asyncio.run(main())


def test_facts_are_read_again_after_a_failure_of_the_server() -> None:
    async def main() -> None:
        readings = Readings()
        assert await readings.find() == 1
        readings.kept.expire("another")
        assert await readings.find() == 1
        readings.failure = "down"
        readings.kept.expire("place")
        assert await readings.find() == 1
        await asyncio.sleep(0.01)
        assert await readings.find() == 1  # a busy server is the same server
        readings.kept.clear()
        assert await readings.find() is None
        readings.failure = ""
        readings.now += 20
        await readings.find()
        await asyncio.sleep(0.01)
        assert await readings.find() == 4

    asyncio.run(main())


def test_a_reading_of_a_closed_loop_is_begun_again() -> None:
    readings = Readings()
    readings.gate.clear()
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(readings.find(seconds=0.01)) is None
    readings.gate = asyncio.Event()
    readings.gate.set()
    assert asyncio.run(readings.find(seconds=9.0)) == 2
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


def test_the_number_of_kept_models_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.servers.kept_facts.MAX_FACTS", 2)

    async def main() -> None:
        readings = Readings()
        for model in "abca":
            await readings.find(model)
        assert readings.models == [*"abca"]
        assert len(readings.kept._kept) == 2

    asyncio.run(main())
