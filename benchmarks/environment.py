"""A virtual environment per peer, because they require different versions of the same packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".bench"


class InstallFailed(Exception):
    """An environment could not be created; the message is the last output of the installer."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment under `.bench`, created on first use and again when its requirements change."""

    name: str
    requirements: Sequence[str]

    @property
    def python(self) -> Path:
        return HOME / self.name / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        return self._stamp.is_file() and self._stamp.read_text() == self._wanted

    def make(self) -> None:
        shutil.rmtree(HOME / self.name, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(HOME / self.name))
        _run(str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.requirements)
        self._stamp.write_text(self._wanted)

    @property
    def _stamp(self) -> Path:
        """Written last, so that an incomplete environment is not used."""
        return HOME / self.name / "requirements.txt"

    @property
    def _wanted(self) -> str:
        return "\n".join([*self.requirements, ""])


def _run(*command: str) -> None:
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        output = (result.stderr or result.stdout).strip().splitlines()
        errors = [line for line in output if line.startswith("ERROR")] or output[-1:] or [f"exit {result.returncode}"]
        raise InstallFailed(errors[0])
