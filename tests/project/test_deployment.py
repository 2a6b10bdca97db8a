"""The files of the deployment page: they say what the page says, and name options that exist."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import click

from penstock.cli.commands.serve import serve

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "deploy"
INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "CMD", "STOPSIGNAL"}


def options_of(command: str) -> set[str]:
    return {word for word in shlex.split(command) if word.startswith("--")}


OPTIONS = {text for option in serve.params if isinstance(option, click.Option) for text in option.opts}


def test_the_container_file_runs_the_server_as_a_user_and_gets_its_signals() -> None:
    lines = [line for line in (FOLDER / "Containerfile").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    names = [line.split()[0] for line in lines if line]
    assert set(names) <= INSTRUCTIONS
    assert names[0] == "FROM"
    assert names.index("USER") < names.index("CMD")
    [command] = [line for line in lines if line.startswith("CMD")]
    assert "exec penstock serve" in command
    assert (
        options_of(command.partition("exec penstock serve")[2].rstrip('"]').replace("\\", "").replace('"', ""))
        <= OPTIONS
    )


def test_the_unit_of_systemd_can_be_read_and_waits_for_runs() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "agents@.service", encoding="utf-8")
    assert options_of(unit["Service"]["ExecStart"]) <= OPTIONS
    assert int(unit["Service"]["TimeoutStopSec"]) > 10


def test_the_configuration_of_nginx_does_not_buffer_streams() -> None:
    text = (FOLDER / "nginx.conf").read_text(encoding="utf-8")
    plain = re.sub(r"#.*", "", text)
    assert plain.count("{") == plain.count("}")
    assert all(line.rstrip().endswith((";", "{", "}")) for line in plain.splitlines() if line.strip())
    assert "proxy_buffering off;" in plain
    assert int(re.findall(r"proxy_read_timeout (\d+)s;", plain)[0]) > 15


def test_the_page_names_the_files() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    for path in FOLDER.iterdir():
        assert path.name in page or path.suffix == ".conf"
