"""The registry of providers: names, API keys, base URLs, and requests to each."""

from __future__ import annotations

import asyncio
import json
import os
import re
from importlib import import_module
from typing import Any, get_args

import click.testing
import pytest

import penstock
from penstock import MissingKeyError, Model, ProviderName, UnknownProviderError, UsageError, WireName
from penstock.cli.app import penstock as command
from penstock.messages import user
from penstock.providers import ALIASES, PROVIDERS, complete_url, find_base_url, find_key, find_provider, split_model
from penstock.redaction import without_secrets
from penstock.testing import Loopback, Scripted
from penstock.transport.aws_signature import signature
from penstock.transport.commands import Authorize, OpenRequest
from penstock.wires import ALIASES as WIRE_ALIASES
from penstock.wires import WIRES, find_encoder
from penstock.wires.shared.request import Request
from tests.asking import KEY
from tests.cases import each

NAMES = (
    "openai", "openrouter", "anthropic", "google", "ollama", "mistral", "cohere", "groq", "together", "fireworks",
    "nvidia", "deepseek", "moonshot", "zai", "minimax", "dashscope", "xai", "azure", "cerebras", "bedrock", "vllm",
    "sglang", "llamacpp", "lmstudio",
    "openai-compatible", "vertex", "mantle",
)  # fmt: skip
FULL = {
    "AZURE_OPENAI_ENDPOINT": "https://ada.openai.azure.com/",
    "GOOGLE_CLOUD_PROJECT": "ada",
    "GOOGLE_CLOUD_LOCATION": "europe-west1",
    "AWS_REGION": "eu-central-1",
    "OPENAI_COMPATIBLE_BASE_URL": "http://localhost:9/v1",
}

every_provider = each("name", sorted(PROVIDERS))


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keys nor base URLs are set."""
    known = {name for row in PROVIDERS.values() for name in (*row.keys, *row.urls)}
    for name in [*known, *FULL, "AWS_DEFAULT_REGION"]:
        monkeypatch.delenv(name, raising=False)


def url_of(name: str, **environment: str) -> str:
    return find_base_url(name, PROVIDERS[name], environment)


# The registry.


def test_wires_of_a_provider_may_have_base_urls_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "eu")
    monkeypatch.setenv("AWS_REGION", "eu-1")
    vertex = "https://eu-aiplatform.googleapis.com/{}/projects/p/locations/eu"
    mantle = "https://bedrock-mantle.eu-1.api.aws"
    urls: dict[tuple[str, Any], str] = {
        ("google", "gemini-interactions"): "https://generativelanguage.googleapis.com/v1",
        ("google", None): "https://generativelanguage.googleapis.com/v1beta",
        ("vertex", "gemini-interactions"): vertex.format("v1beta1"),
        ("vertex", "anthropic"): vertex.format("v1") + "/publishers/anthropic",
        ("vertex", "openai-chat"): vertex.format("v1") + "/endpoints/openapi",
        ("mantle", None): f"{mantle}/v1",
        ("mantle", "openai-responses"): f"{mantle}/openai/v1",
        ("mantle", "anthropic"): f"{mantle}/anthropic/v1",
    }
    for (provider, wire), url in urls.items():
        assert Model(f"{provider}:m", wire=wire, api_key="k").base_url == url
    own = Model("google:m", "https://proxy.example", wire="gemini-interactions", api_key="k")
    assert own.base_url == "https://proxy.example/v1"


def test_claude_on_vertex_has_its_model_in_the_path() -> None:
    script = Scripted(["Hi.", "Hi."])
    model = Model("vertex:claude-opus-5@20260501", wire="anthropic", via=script, api_key="k")
    model.complete("Hi")
    request = Request(model="claude-opus-5", messages=(user("Hi"),), is_streaming=False)
    assert find_encoder("anthropic")(request, frozenset({"raw-predict"})).path == "/models/claude-opus-5:rawPredict"
    body = script.requests[0].body
    assert (body["anthropic_version"], "model" in body) == ("vertex-2023-10-16", False)


def test_every_provider_is_in_the_registry() -> None:
    assert set(NAMES) == set(PROVIDERS)


@every_provider
def test_every_row_can_be_used(name: str) -> None:
    row = PROVIDERS[name]
    assert row.wire in WIRES
    assert callable(find_encoder(row.wire))
    assert all(re.fullmatch("[A-Z][A-Z0-9_]+", variable) for variable in (*row.keys, *row.urls))
    assert row.keys
    url = url_of(name, **FULL)
    assert re.match(r"https://[a-z]|http://localhost:\d+", url), url
    assert not url.endswith("/")
    assert row.base_url.startswith(("https://", "http://localhost:", "{")) or row.urls
    assert name.islower()


@every_provider
def test_every_quirk_is_known_to_a_wire(name: str) -> None:
    known: set[str] = set()
    for wire in WIRES:
        known |= getattr(import_module(f"penstock.wires.{wire.replace('-', '_')}.encode_request"), "QUIRKS", set())
    assert PROVIDERS[name].quirks <= known


def test_every_quirk_has_a_provider() -> None:
    from penstock.wires.openai_chat.encode_reasoning import DROP_REASONING, ECHO_AS_REASONING_TEXT
    from penstock.wires.openai_chat.encode_request import NO_PARALLEL_SWITCH, QUIRKS

    # For rows of your own, and for `reasoning_back=`.
    without = {NO_PARALLEL_SWITCH, DROP_REASONING, ECHO_AS_REASONING_TEXT}
    assert frozenset().union(*(row.quirks for row in PROVIDERS.values())) >= QUIRKS - without


def test_every_alias_has_a_provider() -> None:
    for alias, name in ALIASES.items():
        assert find_provider(alias) == (name, PROVIDERS[name])
        assert alias not in PROVIDERS


@every_provider
def test_requests_to_every_provider_carry_its_key(name: str) -> None:
    script = Scripted("Sunny.")
    model = Model(f"{name}:some-model", "https://example.com/v1", KEY, via=script)
    turn = model.complete("Hi.", ["weather"], temperature=0.5, max_tokens=100)
    assert (turn.text, turn.finish_reason) == ("Sunny.", "stop")
    [request] = script.requests
    assert request.model == "some-model"
    assert "***" in request.headers.values()
    opened = next(model.ask("Hi.").commands())
    assert isinstance(opened, OpenRequest)
    carried = {header for header, value in opened.request.headers.items() if KEY in value}
    usual = {"anthropic": "x-api-key", "google": "x-goog-api-key", "azure": "api-key"}
    assert carried == {usual.get(name, "authorization")}
    assert KEY not in opened.request.url


# Names.


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai:gpt-5", "openai", "gpt-5"),
        ("openai/gpt-5", "openai", "gpt-5"),
        ("openai:ft:gpt-4o:ada::abc", "openai", "ft:gpt-4o:ada::abc"),
        ("openrouter:meta-llama/llama-3:free", "openrouter", "meta-llama/llama-3:free"),
        ("openrouter/meta-llama/llama-3:free", "openrouter", "meta-llama/llama-3:free"),
        ("openrouter/openai/gpt-5", "openrouter", "openai/gpt-5"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("ollama/qwen3:8b", "ollama", "qwen3:8b"),
        ("ollama:hf.co/bartowski/Llama:Q4_K_M", "ollama", "hf.co/bartowski/Llama:Q4_K_M"),
        ("bedrock:us.anthropic.claude-v1:0", "bedrock", "us.anthropic.claude-v1:0"),
        ("together:openai/gpt-oss-20b", "together", "openai/gpt-oss-20b"),
        ("fireworks:accounts/fireworks/models/x", "fireworks", "accounts/fireworks/models/x"),
        ("vllm:Qwen/Qwen3-8B", "vllm", "Qwen/Qwen3-8B"),
        ("gemini:flash", "gemini", "flash"),
        ("gemini/flash", "gemini", "flash"),
        ("llama.cpp:x", "llama.cpp", "x"),
        ("openai_compatible:x", "openai_compatible", "x"),
    ],
)
def test_both_spellings_of_a_model_are_read(name: str, provider: str, model: str) -> None:
    assert split_model(name) == (provider, model)
    made = Model(name, via=Scripted("Hi."))
    assert (made.provider, made.model) == (ALIASES.get(provider, provider), model)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-5", "'gpt-5' has no provider prefix; did you mean openai:gpt-5"),
        ("claude-sonnet-5", "did you mean anthropic:claude-sonnet-5"),
        ("gemini-3", "did you mean google:gemini-3"),
        ("qwen3", "'qwen3' has no provider prefix; use provider:model, for example openai:gpt-5"),
        ("", "has no provider prefix"),
        ("meta-llama/llama-3", "has no provider prefix"),
        ("openai:", "has no model after the provider; use openai:model"),
        ("openai/", "has no model after the provider; use openai:model"),
    ],
)
def test_a_malformed_model_name_is_an_error(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Model(name)


@pytest.mark.parametrize(
    ("name", "guess"), [("opnai:x", "openai"), ("OpenAI:x", "openai"), ("lm-studio:x", "lm_studio")]
)
def test_an_unknown_provider_is_reported_with_the_nearest_name(name: str, guess: str) -> None:
    with pytest.raises(UnknownProviderError) as raised:
        Model(name)
    assert str(raised.value).endswith(f", did you mean {guess!r}?")
    assert "openai" in raised.value.known


def test_a_provider_that_is_like_no_other_gets_no_guess() -> None:
    with pytest.raises(UnknownProviderError) as raised:
        Model("nope:x")
    assert "did you mean" not in str(raised.value)


# Keys.


@every_provider
def test_a_key_is_found_in_each_of_its_variables(name: str) -> None:
    row = PROVIDERS[name]
    for variable in row.keys:
        assert find_key(name, row, {variable: f" {KEY}\n"}) == KEY
    assert find_key(name, row, {variable: f"{KEY}{at}" for at, variable in enumerate(row.keys)}) == f"{KEY}0"
    assert find_key(name, row, {**dict.fromkeys(row.keys, " "), row.keys[-1]: KEY}) == KEY


@every_provider
def test_a_missing_key_is_reported_with_its_variables(name: str) -> None:
    row = PROVIDERS[name]
    if not row.needs_key:
        assert find_key(name, row, {}) == ""
        return
    model = Model(f"{name}:m", "https://example.com/v1")
    with pytest.raises(MissingKeyError) as raised:
        model.ask("Hi.")
    assert raised.value.variables == row.keys
    assert all(variable in str(raised.value) for variable in row.keys)
    assert "api_key=" in str(raised.value)


def test_a_key_argument_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(**options: Any) -> str:
        opened = next(Model("groq:m", **options).ask("Hi.").commands())
        assert isinstance(opened, OpenRequest)
        return opened.request.headers.get("authorization", "")

    monkeypatch.setenv("GROQ_API_KEY", "gsk-from-the-environment")
    assert sent() == "Bearer gsk-from-the-environment"
    assert sent(api_key=KEY) == f"Bearer {KEY}"
    with pytest.raises(MissingKeyError, match="GROQ_API_KEY"):
        sent(api_key=" ")
    assert sent(api_key="", headers={"Authorization": "Basic eA=="}) == "Basic eA=="


@every_provider
def test_a_blank_key_is_a_missing_key(name: str) -> None:
    model = Model(f"{name}:m", "https://example.com/v1", api_key="")
    if PROVIDERS[name].needs_key:
        with pytest.raises(MissingKeyError):
            model.check_endpoint()
    else:
        model.check_endpoint()


def test_no_key_is_read_for_a_scripted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Model("openai:gpt", via=Scripted("Hi.")).complete("Hi.").text == "Hi."
    assert Model("vllm:m").base_url == "http://localhost:8000/v1"


# Base URLs.


@every_provider
def test_a_base_url_of_the_environment_takes_precedence_over_the_default(name: str) -> None:
    row = PROVIDERS[name]
    for variable in row.urls:
        url = url_of(name, **FULL, **{variable: "https://proxy.example/some/v1"}) if variable not in FULL else ""
        assert url in ("", "https://proxy.example/some/v1", "https://proxy.example/some/v1/v1beta")
    everything = {variable: f"https://proxy{at}.example/v1" for at, variable in enumerate(row.urls)}
    if everything:
        assert url_of(name, **everything).startswith("https://proxy0.example/v1")


@pytest.mark.parametrize(
    ("name", "environment", "url"),
    [
        ("openai", {}, "https://api.openai.com/v1"),
        ("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:8080"}, "http://127.0.0.1:8080/v1"),
        ("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1/"}, "http://127.0.0.1:8080/v1"),
        ("openai", {"OPENAI_API_BASE": "https://a.example/api/v2"}, "https://a.example/api/v2"),
        ("openai", {"OPENAI_BASE_URL": " ", "OPENAI_API_BASE": "https://a.example/v2"}, "https://a.example/v2"),
        ("openai", {"OPENAI_BASE_URL": "llm.example/v1"}, "https://llm.example/v1"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "https://a.example"}, "https://a.example/v1"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "https://a.example/v1"}, "https://a.example/v1"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "https://a.example/anthropic/"}, "https://a.example/anthropic/v1"),
        ("google", {"GEMINI_BASE_URL": "https://a.example"}, "https://a.example/v1beta"),
        ("google", {"GOOGLE_GEMINI_BASE_URL": "https://a.example/gemini"}, "https://a.example/gemini/v1beta"),
        ("google", {"GOOGLE_GEMINI_BASE_URL": "https://a.example/v1"}, "https://a.example/v1"),
        ("ollama", {}, "http://localhost:11434"),
        ("ollama", {"OLLAMA_HOST": "127.0.0.1:11435"}, "http://127.0.0.1:11435"),
        ("ollama", {"OLLAMA_HOST": "0.0.0.0"}, "http://0.0.0.0:11434"),
        ("ollama", {"OLLAMA_HOST": ":11435"}, "http://localhost:11435"),
        ("ollama", {"OLLAMA_HOST": "gpu.example"}, "http://gpu.example:11434"),
        ("ollama", {"OLLAMA_HOST": "[::1]"}, "http://[::1]:11434"),
        ("ollama", {"OLLAMA_HOST": "https://gpu.example"}, "https://gpu.example"),
        ("ollama", {"OLLAMA_BASE_URL": "http://gpu:1/"}, "http://gpu:1"),
        ("azure", {"AZURE_OPENAI_ENDPOINT": "https://ada.openai.azure.com/"}, "https://ada.openai.azure.com/openai/v1"),
        ("azure", {"AZURE_OPENAI_BASE_URL": "https://ada.azure.com"}, "https://ada.azure.com/openai/v1"),
        (
            "vertex",
            {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "us-east1"},
            "https://us-east1-aiplatform.googleapis.com/v1/projects/p/locations/us-east1/publishers/google",
        ),
        (
            "vertex",
            {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "global"},
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google",
        ),
        ("bedrock", {"AWS_REGION": "eu-central-1"}, "https://bedrock-runtime.eu-central-1.amazonaws.com"),
        ("bedrock", {"AWS_DEFAULT_REGION": "us-east-1"}, "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("bedrock", {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "http://localhost:1"}, "http://localhost:1"),
        ("cohere", {"CO_API_URL": "https://a.example"}, "https://a.example"),
        ("vllm", {"VLLM_BASE_URL": "gpu-1"}, "http://gpu-1:8000/v1"),
        ("lmstudio", {"LM_STUDIO_API_BASE": "http://localhost:1234/v1"}, "http://localhost:1234/v1"),
        ("openai-compatible", {"OPENAI_COMPATIBLE_BASE_URL": "localhost:9"}, "http://localhost:9/v1"),
    ],
)  # fmt: skip
def test_base_urls_are_completed_from_the_usual_variables(name: str, environment: dict[str, str], url: str) -> None:
    assert url_of(name, **environment) == url


@pytest.mark.parametrize(
    ("name", "environment", "message"),
    [
        ("azure", {}, "azure needs a base URL: set AZURE_OPENAI_ENDPOINT"),
        ("vertex", {"GOOGLE_CLOUD_PROJECT": "p"}, "vertex needs a base URL: set GOOGLE_CLOUD_LOCATION"),
        ("bedrock", {}, "bedrock needs a base URL: set AWS_REGION"),
        ("openai-compatible", {}, "no default base URL.*set OPENAI_COMPATIBLE_BASE_URL"),
    ],
)
def test_a_missing_part_of_a_base_url_is_reported(name: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        url_of(name, **environment)


@pytest.mark.parametrize(
    "url",
    ["htp://x", "ftp://x/v1", "http://", "http://x:port/v1", "http://[::/v1", "https://x/v1#part", " ", "/v1"],
)
def test_an_invalid_base_url_is_an_error(url: str) -> None:
    with pytest.raises(UsageError, match="is not a base URL"):
        Model("openai:gpt", url, KEY)


def test_a_base_url_is_reported_without_its_password() -> None:
    with pytest.raises(UsageError) as raised:
        complete_url(PROVIDERS["openai"], f"https://ada:{KEY}@example.com:port/v1")
    assert KEY not in str(raised.value)
    assert without_secrets(f"https://ada:{KEY}@a.example/v1?key={KEY}&alt=sse") == "https://***@a.example/v1?alt=sse"
    assert without_secrets("https://a.example/v1/m@1") == "https://a.example/v1/m@1"


@pytest.mark.parametrize("name", ["openai", "azure", "ollama", "google"])
def test_a_base_url_with_a_user_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (f"https://ada:{KEY}@example.com/v1", "https://ada@example.com", f"https://:{KEY}@example.com"):
        with pytest.raises(UsageError, match=r"example\.com contains a user name or password") as raised:
            Model(f"{name}:m", url, KEY)
        assert KEY not in str(raised.value)
        for variable in (*PROVIDERS[name].urls, "AZURE_OPENAI_ENDPOINT"):
            monkeypatch.setenv(variable, url)
        with pytest.raises(UsageError, match="contains a user name or password"):
            Model(f"{name}:m", api_key=KEY).ask("Hi.")


@pytest.mark.parametrize(
    ("name", "base_url", "url"),
    [
        ("openai:m", "https://x/v1?a=1", "https://x/v1/responses?a=1"),
        ("openai:m", "https://x?a=1&b=", "https://x/v1/responses?a=1&b="),
        ("openai:m", "https://x/v1/?a=1", "https://x/v1/responses?a=1"),
        ("azure:m", "https://x.example/openai/v1?api-version=preview",
         "https://x.example/openai/v1/chat/completions?api-version=preview"),
        ("google:m", "https://x/v1beta?alt=json&a=1", "https://x/v1beta/models/m:streamGenerateContent?alt=sse&a=1"),
        ("openai:m", "https://x/v1?", "https://x/v1/responses"),
    ],
)  # fmt: skip
def test_the_parameters_of_a_base_url_are_sent(name: str, base_url: str, url: str) -> None:
    opened = next(Model(name, base_url, KEY).ask("Hi.").commands())
    assert isinstance(opened, OpenRequest)
    assert opened.request.url == url


def test_the_path_of_each_wire_follows_the_base_url() -> None:
    def path(name: str, **options: Any) -> str:
        opened = next(Model(name, "https://a.example/x", KEY, **options).ask("Hi.").commands())
        assert isinstance(opened, OpenRequest)
        return opened.request.url.removeprefix("https://a.example/x")

    assert path("openai:gpt") == "/responses"
    assert path("openai:gpt", wire="openai-chat") == "/chat/completions"
    assert path("anthropic:claude") == "/v1/messages"
    assert path("google:flash") == "/v1beta/models/flash:streamGenerateContent?alt=sse"
    assert path("ollama:qwen") == "/api/chat"
    assert path("cohere:command") == "/v2/chat"
    assert path("bedrock:a/b:0") == "/model/a%2Fb%3A0/converse-stream"


def test_requests_to_bedrock_are_signed_with_aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    commands = Model("bedrock:claude").ask("Hi.").commands()
    authorize = next(commands)
    assert isinstance(authorize, Authorize)
    opened = commands.send(authorize.call())
    assert isinstance(opened, OpenRequest)
    signed = opened.request.headers["Authorization"]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
    assert "/eu-central-1/bedrock/aws4_request" in signed
    assert KEY not in repr(opened.request.headers)
    assert "authorization" not in opened.request.headers
    bearer = next(Model("bedrock:claude", api_key=KEY).ask("Hi.").commands())
    assert isinstance(bearer, OpenRequest)
    assert bearer.request.headers["authorization"] == f"Bearer {KEY}"


def test_bedrock_without_credentials_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(MissingKeyError, match="AWS_BEARER_TOKEN_BEDROCK or AWS_ACCESS_KEY_ID"):
        signature("https://bedrock-runtime.eu-central-1.amazonaws.com/model/m/converse", b"{}")


def test_a_model_can_be_configured_by_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback(lambda request: f"{request.wire} {request.model}") as server:
        for name, variables in (
            ("anthropic:claude", {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY}),
            ("ollama:qwen", {"OLLAMA_HOST": server.url.removeprefix("http://")}),
            ("gemini/flash", {"GEMINI_BASE_URL": server.url, "GOOGLE_API_KEY": KEY}),
            ("openai/gpt", {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}),
        ):
            for variable, value in variables.items():
                monkeypatch.setenv(variable, value)
            model = Model(name)
            text = f"{PROVIDERS[model.provider].wire} {model.model}"
            assert model.complete("Hi.").text == text
            assert asyncio.run(model.acomplete("Hi.")).text == text


# `penstock models`.


def models(*arguments: str, **environment: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(command, ["models", *arguments], env=environment)
    assert result.exit_code == 0
    return result


def test_models_lists_every_provider_and_which_keys_are_set() -> None:
    output = models(COLUMNS="200", ANTHROPIC_API_KEY=KEY).stdout
    assert all(name in output for name in NAMES)
    assert "✓ ANTHROPIC_API_KEY" in output
    assert "missing: OPENAI_API_KEY" in output
    assert "sim:demo" in output


def test_models_can_print_json() -> None:
    environment = {"GOOGLE_API_KEY": KEY, "OLLAMA_HOST": f"https://ada:{KEY}@gpu.example", "AWS_REGION": "us-east-1"}
    result = models("--json", **environment)
    rows = {row["provider"]: row for row in json.loads(result.stdout)}
    assert set(rows) == set(PROVIDERS)
    assert rows["google"]["key"] == "GOOGLE_API_KEY"
    assert rows["openai"]["key"] == ""
    assert rows["bedrock"]["url"] == "https://bedrock-runtime.us-east-1.amazonaws.com"


def test_models_never_shows_a_key() -> None:
    every = {variable: KEY for row in PROVIDERS.values() for variable in row.keys}
    every["OLLAMA_HOST"] = f"https://ada:{KEY}@gpu.example"
    for arguments in ([], ["--json"]):
        assert KEY not in models(*arguments, **every).output


def test_models_accepts_an_invalid_base_url_in_the_environment() -> None:
    assert "openai" in models(OPENAI_BASE_URL="htp://x").stdout


def test_errors_about_names_are_usage_errors() -> None:
    assert issubclass(UnknownProviderError, UsageError)
    assert issubclass(MissingKeyError, UsageError)
    assert issubclass(UsageError, ValueError)
    assert issubclass(UsageError, penstock.PenstockError)


def test_the_literal_types_of_names_equal_the_registries() -> None:
    assert set(get_args(ProviderName)) == {*PROVIDERS, *ALIASES}
    assert set(get_args(WireName)) == {*WIRES, *WIRE_ALIASES}
