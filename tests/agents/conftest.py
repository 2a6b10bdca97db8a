"""Writes the table of the agents after each cell, and prints it at the end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.agents.table import REPORT, Cell, add_cell


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Keep the result of a cell. One whose server could not be started has none."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.when == "call" and isinstance(item, pytest.Function) and not report.skipped:
        cell = item.callspec.params
        column = f"{cell['agent']} {cell['wire']}"
        add_cell(str(cell["upstream"]), column, Cell(report.passed, report.duration))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if REPORT.exists():
        terminalreporter.section(str(REPORT))
        terminalreporter.write(REPORT.read_text(encoding="utf-8"))
