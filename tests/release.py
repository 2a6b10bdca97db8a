"""Builds a release in dist/: wheel, sdist, and a software bill of materials (CycloneDX); checks each of them.

`make release` runs it. Nothing is uploaded. The bill of materials lists what `requirements.lock` installs with the
extra `all`, with licences and hashes of versions; `make lock` writes the lock.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
LOCK = ROOT / "requirements.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}"

IN_WHEEL = (
    "penstock/__init__.py", "penstock/py.typed", "penstock/serve/page/index.html", "penstock/cli/commands/gateway.py",
    f"{NAME}.dist-info/METADATA", f"{NAME}.dist-info/entry_points.txt", f"{NAME}.dist-info/licenses/LICENSE",
)  # fmt: skip
IN_SDIST = (
    "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "Makefile", "hatch_build.py",
    "requirements.lock", "src/penstock/__init__.py", "tests/conftest.py", "docs/index.md", "docs/threat-model.md",
)  # fmt: skip
NEVER = re.compile(
    r"(^|/)(__pycache__|\.git|\.venv[^/]*|node_modules|\.env|\.pytest_cache|\.mypy_cache)(/|$)|\.py[co]$|\.pem$"
)
"""What no release has: caches, environments, keys."""


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """The wheel and the sdist. The wheel is built from the sdist, as whoever builds from source does."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    return DIST / f"{NAME}-py3-none-any.whl", DIST / f"{NAME}.tar.gz"


def content_problems(names: list[str], needed: tuple[str, ...]) -> Iterator[str]:
    """What is missing in an archive, and what must not be there."""
    yield from (f"{name} is missing" for name in needed if name not in names)
    yield from (f"{name} must not be in it" for name in names if NEVER.search(name))


def names_in(archive: Path) -> list[str]:
    """The files of a wheel, or of an sdist without its folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as sdist:
        return [member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()]


def write_bill(wheel: Path) -> Path:
    """The bill of materials: what an environment has in which the wheel and the locked versions are installed."""
    shutil.rmtree(BUILD, ignore_errors=True)
    python = BUILD / "bin" / "python"
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", BUILD)
    run(*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "--requirements", LOCK)
    run(*uv, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    run(*uv, "pip", "check", "--python", python)
    bill = DIST / f"{NAME}.cdx.json"
    run(
        sys.executable, "-m", "cyclonedx_py", "environment", python, "--pyproject", ROOT / "pyproject.toml",
        "--output-reproducible", "--output-file", bill,
    )  # fmt: skip
    return bill


def bill_problems(bill: Path) -> Iterator[str]:
    """What is missing in a bill of materials. Its schema was checked when it was written."""
    content = json.loads(bill.read_text(encoding="utf-8"))
    listed = {component["name"].lower().replace("_", "-"): component for component in content["components"]}
    if content["bomFormat"] != "CycloneDX":
        yield "it is not CycloneDX"
    if content["metadata"]["component"]["name"] != PROJECT["name"]:
        yield "it is not about this project"
    for requirement in PROJECT["dependencies"]:
        name = re.split(r"[<>=~!;\[ ]", requirement)[0].lower()
        if name not in listed:
            yield f"{name} is missing"
    yield from (f"{name} has no licence" for name, one in listed.items() if not one.get("licenses"))


def changelog_problems() -> Iterator[str]:
    """Whether the version has its section."""
    version, text = PROJECT["version"], (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} \(", text, re.MULTILINE):
        yield f"CHANGELOG.md has no section {version}"


def main() -> None:
    wheel, sdist = build()
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    bill = write_bill(wheel)
    problems = [
        *(f"{wheel.name}: {problem}" for problem in content_problems(names_in(wheel), IN_WHEEL)),
        *(f"{sdist.name}: {problem}" for problem in content_problems(names_in(sdist), IN_SDIST)),
        *(f"{bill.name}: {problem}" for problem in bill_problems(bill)),
        *changelog_problems(),
    ]
    if problems:
        raise SystemExit("\n".join(problems))
    for file in sorted(DIST.iterdir()):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sys.stdout.write(f"{digest}  {file.name}  {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
