"""Set-up of all tests: hypothesis profiles, bytecode, Ctrl-C, and a PostgreSQL server.

By default hypothesis tries few examples, and the same each time, so that a failed run can be repeated; with
`--hypothesis-profile=deep` it tries more, and others each time.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from penstock.log import Store
from penstock.transport.shared_limits import shared_limits
from tests.budget import SEED, share
from tests.log_stores import Clock, open_store
from tests.postgres import NoServer, server

pytest.register_assert_rewrite(
    "tests.scripted_runs", "tests.leaks", "tests.growth"
)  # so that their asserts show what differs

settings.register_profile(
    "usual", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=share(100, 35)
)
settings.register_profile("deep", settings.get_profile("usual"), derandomize=False, max_examples=3_000)
settings.load_profile("usual")

# Hundreds of processes import penstock, and each worker imports all tests: compiled once, they take half the time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A process that a shell started in the background ignores Ctrl-C, and so do the processes that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the tests themselves: each worker has hundreds of megabytes of them."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(autouse=True)
def no_shared_limits() -> Iterator[None]:
    """Forget rate limits that a test has met: the next server may have the same port."""
    yield
    shared_limits.reset()


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    """Restore the places of modules: commands add the folder of an agent, and its files may have names of packages."""
    before = sys.path[:]
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server that all tests and all their processes share; each test takes a schema of its own."""
    try:
        with server(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))) as url:
            yield url
    except NoServer as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def clock() -> Clock:
    """The clock of `store`."""
    return Clock()


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """A store of each kind, with a lease of ten seconds."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with open_store(request.param, tmp_path, url, lease=10.0, clock=clock) as store:
        yield store


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many cases were tried by the tests that try many (`test_endings`, `test_fuzz`, `test_provenance`)."""
    terminalreporter.write_line(f"SEED={SEED} tries the same places and samples again, THOROUGH=1 all of them")
    reports = [report for state in ("passed", "failed") for report in terminalreporter.stats.get(state, [])]
    counts = Counter[str]()
    for name, number in (pair for report in reports for pair in report.user_properties if isinstance(pair[1], int)):
        counts[name] += number
    if endings := counts["endings"]:
        terminalreporter.write_line(f"{endings} endings of runs tried, each continued on another provider")
    if compared := counts["calls compared with a conversation"]:
        wrong = counts["calls taken for quotations"]
        terminalreporter.write_line(f"{wrong} of {compared} calls in the shared texts wrongly taken for quotations")
    if honest := counts["honest calls"]:
        asking, effects = counts["honest calls that ask"], counts["honest calls with side effects"]
        terminalreporter.write_line(
            f"with ask_if_from, {asking} of {honest} honest calls ask ({asking / honest:.1%}; {effects} have side "
            f"effects), and {counts['injected calls that ask']} of {counts['injected calls']} injected ones"
        )
    if trips := counts["round trips"]:
        terminalreporter.write_line(
            f"{trips} responses encoded for another wire and decoded again "
            f"({counts['round trips of recordings']} are recordings); {counts['round trips that differ']} differ"
        )
    if streams := counts["fuzzed streams"]:
        terminalreporter.write_line(
            f"{streams} damaged streams on every wire tried, and {counts['fuzzed runs']} random runs"
        )
    times = [
        seconds for report in reports for name, values in report.user_properties if name == "takeover times"
        for seconds in values
    ]  # fmt: skip
    if times:
        terminalreporter.write_line(
            f"{counts['hits']} processes killed or frozen, {counts['hit starts']} tools with side effects started; "
            f"taken over after {min(times):.2f} to {max(times):.2f} seconds, median {median(times):.2f}"
        )
    if boundaries := counts["boundaries"]:
        terminalreporter.write_line(
            f"runs rebuilt from their logs at {boundaries} boundaries between two inputs, and crashed at "
            f"{counts['crashes']} of them"
        )
