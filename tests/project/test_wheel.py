"""The built wheel, installed with each extra into a clean environment, imports and runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import release
from tests.budget import sample
from tests.cases import each

ROOT = Path(__file__).parents[2]
SCRIPTS = "Scripts" if os.name == "nt" else "bin"

IMPORTS = """
import importlib.util, pkgutil, sys, penstock

NEEDS = {
    "penstock.cli": "click rich", "penstock.log.postgres.bounded_connection": "psycopg",
    "penstock.log.postgres.arrays": "psycopg", "penstock.mcp": "mcp", "penstock.runs.dbos": "dbos",
    "penstock.runs.pgqueuer": "pgqueuer", "penstock.tracing": "opentelemetry",
    "penstock.transport.websocket.library": "websockets",
}  # the modules that need an extra, by its packages; without them, the rest must be imported all the same
missing = tuple(
    module for module, packages in NEEDS.items() if not all(map(importlib.util.find_spec, packages.split()))
)
for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not module.name.startswith(missing) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for name in penstock.__all__:
    getattr(penstock, name)
assert "site-packages" in penstock.__file__, penstock.__file__
from penstock.inspector.quirk_table import quirks
assert quirks()[1].servers
print(penstock.__version__, penstock.Agent(penstock.Model("sim:fast")).run("Is anything down?").finish_reason)
"""


def run(*command: object, folder: Path) -> str:
    """Run a command outside the checkout, without its source on the path; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def has_index() -> bool:
    """Whether a package index can be reached."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-cache", "-"]
    done = subprocess.run(command, input="msgspec", capture_output=True, text=True, timeout=120, check=False)
    return done.returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not os.environ.get("CI") and not has_index():
        pytest.skip("no package index can be reached, so that the wheel cannot be installed")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT, folder=folder)
    return next(folder.glob("penstock_llm-*.whl"))


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
FOR_CONTRIBUTORS = {"dev", "docs", "fuzz", "release"}


ALONE = sorted(EXTRAS.keys() - FOR_CONTRIBUTORS - {"all", "cli"})


@each("extra", ["", "all", "cli", *sample(ALONE, few=2)])  # one test, which builds one wheel
def test_an_installed_wheel_imports_and_runs(extra: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("environment")
    venv.create(tmp_path / "venv", with_pip=False)
    scripts = tmp_path / "venv" / SCRIPTS
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    install = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", scripts / "python")
    run(*install, requirement, folder=tmp_path)
    version, reason = run(scripts / "python", "-c", IMPORTS, folder=tmp_path).split()
    assert f"penstock_llm-{version}-" in wheel.name
    assert reason == "answered"
    if extra in ("cli", "all"):
        assert run(scripts / "penstock", "--version", folder=tmp_path).split() == ["penstock", version]
        last = run(scripts / "penstock", "demo", "--json", "--speed", "1000", folder=tmp_path).splitlines()[-1]
        assert json.loads(last)["type"] == "done"
    else:
        command = [str(scripts / "penstock"), "demo"]  # some extras bring click, but not rich
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert "pip install 'penstock-llm[cli]'" in refused.stderr


def test_the_lock_has_every_package_of_the_extra_all_in_an_allowed_version() -> None:
    locked = {
        requirement.name.lower(): next(iter(requirement.specifier)).version
        for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
        if re.match(r"[\w.-]+==", line) and (requirement := Requirement(line.rstrip("\\ "))) is not None
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.findall(r"\w+", EXTRAS["all"][0].partition("[")[2])
    wanted = [
        Requirement(text) for text in (*project["dependencies"], *(one for name in extras for one in EXTRAS[name]))
    ]
    assert len(wanted) > len(extras)
    wrong = [
        str(one) for one in wanted
        if canonical(one.name) not in locked or not one.specifier.contains(locked[canonical(one.name)])
    ]  # fmt: skip
    assert not wrong, "make lock writes it"
    assert "://" not in (ROOT / "requirements.lock").read_text(encoding="utf-8"), "it names no index"


def test_lower_bounds_admit_no_version_with_a_known_vulnerability() -> None:
    """The table of the page, which names the vulnerabilities, has the bounds of pyproject.toml."""
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\w+) \| ([\d.]+) \| .*CVE-", page, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = [
        Requirement(text) for text in (*project["dependencies"], *(one for row in EXTRAS.values() for one in row))
    ]
    bounds = {one.name: bound.version for one in direct for bound in one.specifier if bound.operator == ">="}
    assert len(rows) >= 5
    assert {name: bounds.get(name) for name in rows} == rows
    assert all(one.specifier for one in direct if not one.name.startswith("penstock")), "each has a lower bound"


def test_the_contents_of_a_release_are_checked() -> None:
    names = [*release.IN_WHEEL]
    assert not [*release.content_problems(names, release.IN_WHEEL)]
    assert [*release.content_problems(names[1:], release.IN_WHEEL)] == [f"{names[0]} is missing"]
    for bad in ("penstock/__pycache__/a.pyc", "tests/.env", "a/key.pem", ".venv-3.11/x", "docs/node_modules/x.js"):
        assert [*release.content_problems([*names, bad], release.IN_WHEEL)] == [f"{bad} must not be in it"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
