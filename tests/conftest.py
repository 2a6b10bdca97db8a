"""What holds for all tests: how much hypothesis tries, and that ctrl-C is heeded.

By default hypothesis tries what a test run can bear, and the same each time, so that a red run can be repeated; with
`--hypothesis-profile=deep` it tries more, and something else each time.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.runs", "tests.leaks", "tests.growth")  # their asserts say what differs

settings.register_profile("usual", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("usual"), derandomize=False, max_examples=3_000)
settings.load_profile("usual")

# A shell that runs something in the background has it, and all that it starts, ignore ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many ways to end a run were tried (`test_run_endings.py`)."""
    passed = terminalreporter.stats.get("passed", [])
    endings = sum(number for report in passed for name, number in report.user_properties if name == "endings")
    if endings:
        terminalreporter.write_line(f"{endings} endings of runs tried, each continued on another provider")
