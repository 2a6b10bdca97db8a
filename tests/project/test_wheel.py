"""The built wheel, installed with each extra into a clean environment, imports and runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

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
FOR_CONTRIBUTORS = {"dev", "docs", "fuzz"}


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
