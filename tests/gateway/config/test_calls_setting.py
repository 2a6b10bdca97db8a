"""The setting `calls`: in gateway.toml, on the command line, and in Python."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import UsageError
from penstock.cli.app import penstock as command_line
from penstock.gateway import GatewaySettings, Upstream, app
from penstock.gateway.config.file import settings_from
from penstock.gateway.config.settings_file import changed_sections
from penstock.gateway.routing import find_candidates

FILE = """
calls = "auto"

[upstreams.local]
url = "http://127.0.0.1:8080/v1"

[upstreams.other]
url = "http://127.0.0.1:8000/v1"
provider = "sglang"

[models."qwen*"]
to = "local"
calls = "xml"

[models.plain]
to = "other"
calls = "native"

[models.inherits]
to = "other"

[models.unparsed]
to = "local"
calls = "raw"
"""
ONE = "[upstreams.a]\nurl = 'http://127.0.0.1:1/v1'\n"
ALLOWED = 'calls must be "native", "raw", "auto" or a dialect such as "xml"'


def test_a_model_has_its_own_setting_or_that_of_the_file() -> None:
    settings = settings_from(tomllib.loads(FILE))
    names = ("qwen3:4b", "plain", "inherits", "unparsed", "anything", "other/anything")
    assert [find_candidates(settings, name)[0].calls for name in names] == [
        "xml", "native", "auto", "raw", "auto", "auto",
    ]  # fmt: skip
    plain = settings_from(tomllib.loads(ONE))
    assert find_candidates(plain, "m")[0].calls == "native"
    assert changed_sections(plain, settings_from(tomllib.loads(f"calls = 'auto'\n{ONE}"))) == ["calls"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"calls = 'hermess'\n{ONE}", f"{ALLOWED}, not 'hermess' (unknown dialect 'hermess', did you mean 'hermes'?)"),
        (f"calls = 3\n{ONE}", f"{ALLOWED}, not 3"),
        (f"calls = ['hermes']\n{ONE}", f"{ALLOWED}, not ['hermes']"),
        (f"calls = 'plain'\n{ONE}", f"{ALLOWED}, not 'plain' (the dialect 'plain' has no prompt"),
        (f"{ONE}[models.m]\nto = 'a'\ncalls = true", f"models.m: {ALLOWED}, not True"),
        (f"{ONE}[models.m]\nto = 'a'\ncalls = ''", f"models.m: {ALLOWED}, not ''"),
        (f"{ONE}provider = 'sglang'\n[models.m]\nto = 'a'\ncalls = 'raw'", 'calls = "raw": a is not known to return'),
        (f"calls = 'raw'\n{ONE}wire = 'anthropic'", 'calls = "raw": a is not known to return unparsed text'),
        (f"calls = 'raw'\n{ONE}provider = 'ollama'", 'set its provider ("vllm", "llamacpp"), otherwise use a dialect'),
    ],
)
def test_a_wrong_value_is_refused_and_the_error_names_the_right_ones(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_from(tomllib.loads(text))
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["hermess", "", "Native"])
def test_python_refuses_the_same_values(value: str) -> None:
    with pytest.raises(UsageError, match="calls must be"):
        app("http://127.0.0.1:1/v1", calls=value)
    with pytest.raises(UsageError, match="calls must be"):
        GatewaySettings(upstreams={"a": Upstream(name="a")}, calls=value)
    with pytest.raises(UsageError, match="the calls"):
        app(settings=GatewaySettings(upstreams={"a": Upstream(name="a")}), calls="auto")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command_line, ["gateway", *arguments])


def test_the_command_line_refuses_them_too(tmp_path: Path) -> None:
    result = run("--upstream", "http://127.0.0.1:1/v1", "--calls", "hermess")
    assert result.exit_code != 0
    assert "did you mean 'hermes'?" in " ".join(result.output.split())
    result = run("--config", str(tmp_path / "gateway.toml"), "--calls", "auto")
    assert result.exit_code != 0
    assert "--calls cannot be combined with --config" in " ".join(result.output.split())
