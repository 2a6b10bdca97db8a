"""The settings of a gateway: upstreams on the command line, gateway.toml, routes by model, keys, and circuits."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock import UsageError
from penstock.gateway import Healing, Target, Upstream, app
from penstock.gateway.config import file as config_tables
from penstock.gateway.config.file import read_settings, settings_from
from penstock.gateway.config.upstream_names import read_upstream
from penstock.gateway.fallbacks import FAILURES, OPEN_SECONDS, Circuit
from penstock.gateway.routing import find_candidates
from penstock.testing import Scripted
from tests.asgi_client import serving
from tests.gateways import chat, gateway, upstream

FILE = """
[upstreams.local]
url = "http://127.0.0.1:8080/v1"
first_token = 60

[upstreams.cloud]
provider = "anthropic"
key = "env:SOME_KEY"

[healing]
repair = "guess"

[models.fast]
to = "local/qwen3"
fallbacks = ["cloud/claude-sonnet-5", "local"]

[models."gpt-*".healing]
rescue = ["hermes"]

[models."gpt-*"]
to = "cloud"
"""


ONE = "[upstreams.a]\nurl = 'http://x'\n"


@pytest.mark.parametrize(
    ("text", "name", "provider", "url"),
    [
        ("http://127.0.0.1:11434/v1", "127.0.0.1:11434", "llamacpp", "http://127.0.0.1:11434/v1"),
        ("https://llm.example/v1", "llm.example", "openai-compatible", "https://llm.example/v1"),
        ("mine=http://127.0.0.1:1/v1", "mine", "llamacpp", "http://127.0.0.1:1/v1"),
        ("vllm=http://127.0.0.1:1/v1", "vllm", "vllm", "http://127.0.0.1:1/v1"),
        ("anthropic", "anthropic", "anthropic", ""),
        ("localhost:8080", "localhost:8080", "llamacpp", "localhost:8080"),
        ("http://host/v1?a=b", "host", "llamacpp", "http://host/v1?a=b"),
    ],
)
def test_an_upstream_is_a_url_a_named_url_or_a_provider(text: str, name: str, provider: str, url: str) -> None:
    found = read_upstream(text)
    assert (found.name, found.provider, found.url) == (name, provider, url)


@pytest.mark.parametrize("text", ["", "ftp://x", "name=", "http://user:secret@host/v1"])
def test_what_is_not_an_upstream_is_an_error_without_secrets(text: str) -> None:
    with pytest.raises(UsageError) as error:
        read_upstream(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("options", [{"model": "m"}, {"healing": Healing()}])
def test_options_of_an_app_beside_settings_that_have_them_are_refused(options: dict[str, Any]) -> None:
    settings = gateway(upstream([])).context.source
    with pytest.raises(UsageError, match="settings has the upstreams"):
        app(settings=settings, **options)
    with pytest.raises(UsageError, match="settings has the upstreams"):
        app("http://127.0.0.1:8080/v1", settings=settings)


def test_a_file_has_upstreams_routes_and_healing(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(FILE)
    settings = read_settings(path)
    assert settings.upstreams["local"].first_token == 60
    assert settings.upstreams["cloud"].provider == "anthropic"
    [fast, gpt] = settings.routes
    assert (fast.target, fast.fallbacks) == (
        Target("local", "qwen3"), (Target("cloud", "claude-sonnet-5"), Target("local"))
    )  # fmt: skip
    assert fast.healing == Healing(repair="guess", reasoning_calls=True)
    assert gpt.healing == Healing(repair="guess", rescue=("hermes",), reasoning_calls=True)

    def found(model: str) -> list[tuple[str, str]]:
        return [(one.upstream.name, one.model) for one in find_candidates(settings, model)]

    assert found("fast") == [("local", "qwen3"), ("cloud", "claude-sonnet-5"), ("local", "fast")]
    assert found("gpt-5") == [("cloud", "gpt-5")]
    assert found("cloud/claude") == [("cloud", "claude")]
    assert found("org/model") == [("local", "org/model")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[upstreams", "is not TOML"),
        ("", "write a table [upstreams.NAME] with a url"),
        ("[upstream.a]\nurl = 'http://x'", "the file: unknown key 'upstream', did you mean 'upstreams'?"),
        ("[upstreams]\na = 'http://x'", "upstreams.a must be a table, not a str"),
        ("[upstreams.a]\nuri = 'x'", "upstreams.a: unknown key 'uri', did you mean 'url'?"),
        (f"{ONE}abc = 'x'", "upstreams.a: unknown key 'abc'; the page of the gateway lists all"),
        ("[upstreams.a]\n", "upstreams.a needs a url"),
        ("[upstreams.a]\nurl = 'server'", "upstreams.a: 'server' is not a URL such as http://127.0.0.1:8080/v1"),
        (f"{ONE}idle = 'long'", "upstreams.a: idle must be a number of 0 or more, not 'long'"),
        (f"{ONE}idle = -1", "upstreams.a: idle must be a number of 0 or more, not -1"),
        (f"{ONE}retries = 1.5", "upstreams.a: retries must be a whole number of 0 or more, not 1.5"),
        (f"{ONE}streaming = 'no'", "upstreams.a: streaming must be true or false, not 'no'"),
        (f"{ONE}headers = {{a = 'sk-secret', b = 1}}", "upstreams.a: every value of headers must be a text in quotes"),
        (f"{ONE}wire = 'openai-chats'", "upstreams.a: unknown wire 'openai-chats', did you mean 'openai-chat'?"),
        ("[upstreams.a]\nprovider = 'ollma'", "upstreams.a: unknown provider 'ollma', did you mean 'ollama'?"),
        (f"{ONE}key = 'sk-secret'", "env:NAME"),
        (f"{ONE}[models.m]\nto = 'b/c'", "models.m: there is no upstream 'b', only a"),
        (f"{ONE}[models.m]\n", "models.m: the key 'to' is missing; it must be a text in quotes"),
        (f"{ONE}[models.m]\nto = 'a'\nfallback = []", "models.m: unknown key 'fallback', did you mean 'fallbacks'?"),
        (f"{ONE}[models.m]\nto = 'a'\nhealing = {{usage = 1}}", "models.m.healing: usage must be true or false, not 1"),
        (f"{ONE}[healing]\nrepair = 'always'", 'healing: repair must be "off", "safe" or "guess", not \'always\''),
        (f"{ONE}[healing]\nrescue = ['hermess']", "healing: unknown dialect 'hermess', did you mean 'hermes'?"),
        (f"{ONE}[models.m]\nto = 'a'\n[healing]\nrepar = 'safe'", "gateway.toml: healing: unknown key 'repar'"),
        (f"hosted_tools = 'keep'\n{ONE}", 'hosted_tools must be "drop" or "refuse", not \'keep\''),
        ("[upstreams.'a/b']\nurl = 'http://x'", "slash"),
        (
            f"trust_proxy = '10.0.0.1'\n{ONE}",
            "trust_proxy is not a setting of the file: it cannot change while the gateway runs; use --trust-proxy",
        ),
        (
            f"port = 4001\n{ONE}",
            "port is not a setting of the file: it cannot change while the gateway runs; use --port",
        ),
        (f"host = '0.0.0.0'\n{ONE}", "use --host"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_mistake_in_a_file_is_an_error_that_says_where(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_settings(path)
    assert "gateway.toml" in str(error.value)
    assert words in str(error.value)
    assert "sk-secret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("olama", "'olama' is not a URL such as http://127.0.0.1:8080/v1; did you mean the provider 'ollama'?"),
        ("xyzzy", "'xyzzy' is not a URL such as http://127.0.0.1:8080/v1"),
    ],
)
def test_a_word_that_is_not_a_provider_is_not_taken_for_a_host(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_upstream(text)
    assert str(error.value) == words


def test_bytes_that_are_not_text_are_an_error_that_says_where(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(UsageError, match="is not UTF-8: there is a byte 0xe9 at 5"):
        read_settings(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_tables, "MAX_FILE", len(ONE))
    path = tmp_path / "gateway.toml"
    path.write_text(ONE)
    assert list(read_settings(path).upstreams) == ["a"]
    path.write_text(f"{ONE}#")
    with pytest.raises(UsageError, match="is larger than"):
        read_settings(path)


def test_a_long_value_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_tables, "MAX_SHOWN", 5)
    with pytest.raises(UsageError, match=r"streaming must be true or false, not a str$"):
        settings_from({"upstreams": {"a": {"url": "http://x", "streaming": "always"}}})


@pytest.mark.parametrize(
    ("settings", "headers", "sent"),
    [
        ({}, {"authorization": "Bearer mine"}, "Bearer mine"),
        ({}, {}, None),
        ({"key": "client"}, {"x-api-key": "mine"}, "Bearer mine"),
        ({"key": "env:GATEWAY_TEST_KEY"}, {"authorization": "Bearer mine"}, "Bearer theirs"),
        ({"provider": "vllm"}, {"authorization": "Bearer mine"}, "Bearer vllm-key"),
    ],
)
def test_an_upstream_gets_the_key_of_the_client_or_of_the_environment(
    settings: dict[str, Any], headers: dict[str, str], sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_TEST_KEY", "theirs")
    monkeypatch.setenv("VLLM_API_KEY", "vllm-key")
    received = asked(upstream([], via=None, **settings), headers)
    assert received == sent


def test_the_key_of_a_gateway_is_not_passed_on() -> None:
    key = "k" * 20
    assert asked(upstream([], via=None), {"authorization": f"Bearer {key}"}, key=key) is None


def asked(behind: Upstream, headers: dict[str, str], **options: Any) -> str | None:
    """The authorization that an upstream gets."""
    from aiohttp import web
    from msgspec.structs import replace

    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("authorization"))
        return web.json_response({"error": {"message": "enough"}}, status=400)

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            async with serving(gateway(replace(behind, url=url), **options)) as browser:
                await browser.post("/v1/chat/completions", chat(), **headers)
        finally:
            await runner.cleanup()

    asyncio.run(main())
    return seen[0]


def test_a_missing_key_of_the_gateway_is_not_the_clients_fault() -> None:
    async def main() -> None:
        async with serving(gateway(upstream([], key="env:GATEWAY_NO_SUCH_KEY"))) as browser:
            reply = await browser.post("/v1/chat/completions", chat())
            assert reply.status == 502
            assert "GATEWAY_NO_SUCH_KEY" in reply.json["error"]["message"]

    asyncio.run(main())


def test_a_circuit_opens_lets_one_probe_through_and_closes() -> None:
    now = 0.0
    circuit = Circuit(lambda: now)
    for _ in range(FAILURES):
        assert not circuit.is_open
        circuit.begin()
        circuit.failed()
    assert circuit.is_open
    now += OPEN_SECONDS
    assert not circuit.is_open
    circuit.begin()
    assert circuit.is_open, "one request is the probe"
    circuit.succeeded()
    assert not circuit.is_open
    for _ in range(FAILURES):
        circuit.failed(60.0)
    now += OPEN_SECONDS
    assert circuit.is_open, "the server asked for more time"


def test_hosted_tools_are_left_out_for_other_providers_and_that_is_said() -> None:
    script = Scripted(["Hi."])

    async def main() -> None:
        async with serving(gateway(upstream([], via=script))) as browser:
            tools = [
                {"type": "web_search"},
                {"type": "namespace", "name": "fs", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
                {"type": "custom", "name": "patch"},
            ]
            reply = await browser.post("/v1/responses", {"model": "m", "input": "Hi", "tools": tools})
            assert reply.status == 200
            sent = script.requests[-1].body["tools"]
            assert [tool["function"]["name"] for tool in sent] == ["fs__read", "patch"]
            assert "input" in str(sent[1]["function"]["parameters"])
            [row] = (await browser.get("/healed")).json["requests"]
            assert any("web_search" in one for one in row["dropped"])

    asyncio.run(main())


HOSTED_TOOLS = """
hosted_tools = "refuse"
[upstreams.local]
url = "http://127.0.0.1:8080/v1"
[models.open]
to = "local"
hosted_tools = "drop"
[models.strict]
to = "local"
"""


def test_hosted_tools_are_refused_where_the_settings_say_so() -> None:
    """By default for all models, and for each model."""
    settings = settings_from(tomllib.loads(HOSTED_TOOLS))
    assert [find_candidates(settings, name)[0].hosted_tools for name in ("open", "strict", "other", "local/other")] == [
        "drop", "refuse", "refuse", "refuse",
    ]  # fmt: skip
    script = Scripted(["Hi.", "Hi."])
    settings = replace(settings, upstreams={"local": upstream([], via=script)})

    async def main() -> None:
        async with serving(app(settings=settings)) as browser:
            body = {"model": "strict", "input": "Hi", "tools": [{"type": "web_search"}]}
            refused = await browser.post("/v1/responses", body)
            assert refused.status == 400
            assert "web_search" in refused.json["error"]["message"]
            assert "hosted_tools" in refused.json["error"]["message"]
            assert script.requests == []
            assert (await browser.post("/v1/responses", {**body, "model": "open"})).status == 200
            assert (await browser.post("/v1/responses", {**body, "tools": []})).status == 200

    asyncio.run(main())
