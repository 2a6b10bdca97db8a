"""Public names and signatures are those of the last release, or the changelog names what breaks."""

from __future__ import annotations

import json

import pytest

from tests import public_api
from tests.cases import each
from tests.public_api import API, Changes, compare, unnamed

OLD: API = {
    "penstock.Agent": "class",
    "penstock.Agent.__init__": "def (self, model: str, tools: Any = (), *, name: str = '')",
    "penstock.Agent.name": "str",
    "penstock.run": "def (prompt: str, messages: Any = None)",
    "penstock.log.open": "def (path: str, /, lease: float = 15)",
}


@pytest.fixture(scope="module")
def current() -> API:
    return public_api.read_api(public_api.ROOT)


def test_the_changelog_names_every_incompatible_change(current: API) -> None:
    changes = compare(json.loads(public_api.RELEASED.read_text(encoding="utf-8")), current)
    assert unnamed(changes, (public_api.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == [], "make api"
    assert public_api.UNDOCUMENTED - {*changes.breaking} == set()


def test_the_public_names_have_their_signatures(current: API) -> None:
    agent = current["penstock.Agent.__init__"]
    assert agent.startswith(
        "def (self, model: Model | KnownModel | str, tools: Iterable[Any] = (), instructions: Instructions = '', *"
    )
    assert "separate_text: bool = False" in agent
    assert "temperature: float | None = ..." in agent
    assert "deps: Deps = ..." in current["penstock.Agent.run"]
    assert "read_only: bool = ..." in current["penstock.tool"]
    assert "penstock.AgentRun.__init__" not in current  # a run is started, not made
    assert current["penstock.Timeouts.__init__"].startswith("def (self, *, connect: float | None = 10.0")


@each(("changed", "breaking"), [
    ({"penstock.Agent.__init__": "def (self, model: str, tools: Any = (), *, name: str = '', x: int = 1)"}, []),
    ({"penstock.Agent.x": "int"}, []),
    ({"penstock.Agent.__init__": "def (self, model: str, tools: Any = ())"}, ["penstock.Agent.__init__(name)"]),
    ({"penstock.Agent.name": None}, ["penstock.Agent.name"]),
    ({"penstock.Agent": None, "penstock.Agent.name": None, "penstock.Agent.__init__": None}, ["penstock.Agent"]),
    ({"penstock.run": "def (prompt: str, messages: Any = None, *, x: int)"}, ["penstock.run(x)"]),
    ({"penstock.run": "def (messages: Any = None, prompt: str = '')"},
     ["penstock.run(messages)", "penstock.run(prompt)"]),
    ({"penstock.log.open": "def (path: str, /, lease: float = 30)"}, ["penstock.log.open(lease)"]),
    ({"penstock.log.open": "def (path: str, /, *, lease: float = 15)"}, ["penstock.log.open(lease)"]),
])  # fmt: skip
def test_an_incompatible_change_is_found(changed: dict[str, str | None], breaking: list[str]) -> None:
    new = {name: value for name, value in {**OLD, **changed}.items() if value is not None}
    changes = compare(OLD, new)
    assert sorted(changes.breaking) == breaking
    assert {*changes.added, *changes.removed, *changes.changed} == {*changed}


CHANGELOG = """# Changelog

## Unreleased

### Breaking

- `Agent(name=…)` is gone, and so is the old one.

### Added

- `tools`

## 0.1

### Breaking

- `messages`
"""


def test_a_change_is_named_as_code_in_the_section_of_the_next_version() -> None:
    names = ["penstock.Agent.__init__(name)", "penstock.old", "penstock.Agent.tools", "penstock.run(messages)"]
    changes = Changes([], [], [], {name: name for name in names})
    assert unnamed(changes, CHANGELOG) == names[1:]
    assert unnamed(changes, "# Changelog\n\n## 0.1\n\n### Breaking\n\n- `name`\n") == names
