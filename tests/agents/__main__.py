"""Real coding agents with servers that have bad habits: through the gateway, direct, and through LiteLLM's proxy.

    python -m tests.agents --agents "claude pi" --habits "right hermes" --routes "gateway direct litellm"

Each cell is kept when it is known, so that an interrupted run continues. The command fails if a cell through the
gateway is wrong and has no written reason.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.agents.agents import AGENTS, FOLDER, GIGABYTES, install
from tests.agents.page import write_page
from tests.agents.reasons import reason_for
from tests.agents.routes import LITELLM, ROUTES, install_litellm
from tests.agents.run import INTERRUPTED, run_habits
from tests.agents.strict import run_strict
from tests.agents.table import COLUMNS, HABIT_ROWS, STRICT_ROWS, Column, Results

SECONDS = {"gateway": 60, "direct": 800, "litellm": 800}
"""How long a column takes on two cores; the last two were measured while the machine was busy. Without the gateway, an
agent has to be started again after most habits."""


def main(words: Sequence[str]) -> int:
    """Run what the command line names, and print the results."""
    options = _options(words)
    results = Results()
    rows = _chosen(options.habits, (*HABIT_ROWS, *STRICT_ROWS))
    agents, routes = _chosen(options.agents, AGENTS), _chosen(options.routes, ROUTES)
    columns = [one for one in COLUMNS if one.is_possible and one.agent in agents and one.route in routes]
    if not options.only_write:
        _announce(columns, rows, results, options)
        _install(routes)
        if not _run(columns, rows, results, options):
            return 1
    if options.write or options.only_write:
        print(f"wrote {write_page(results)}")
    return _report(columns, rows, results)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.agents", description=__doc__)
    parser.add_argument("--agents", default="", help="names of agents (default: all)")
    parser.add_argument("--habits", default="", help="names of habits (default: all)")
    parser.add_argument("--routes", default="gateway", help="gateway, direct, litellm (default: gateway)")
    parser.add_argument("--jobs", type=int, default=2, help="how many agents run at the same time (default: 2)")
    parser.add_argument("--again", action="store_true", help="run also what is known from the same code")
    parser.add_argument("--write", action="store_true", help="write the results and the page that are published")
    parser.add_argument("--only-write", action="store_true", help="only write them")
    return parser.parse_args(words)


def _chosen(words: str, known: Collection[str]) -> list[str]:
    chosen = words.replace(",", " ").split()
    if unknown := [word for word in chosen if word not in known]:
        raise SystemExit(f"there is no {unknown[0]!r}; there are: {', '.join(known)}")
    return chosen or list(known)


def _announce(columns: list[Column], rows: list[str], results: Results, options: argparse.Namespace) -> None:
    """Say what is installed, how much is run and how long it takes."""
    cells = sum(len(_of(column, rows)) for column in columns)
    left = {column.name: len(_missing(column, rows, results, options)) for column in columns}
    seconds = sum(SECONDS[one.route] * left[one.name] / len(one.rows) for one in columns) / max(1, options.jobs)
    print(f"Installs once: the agents from npm into {FOLDER} ({GIGABYTES} GB)", end="")
    print(f", LiteLLM's proxy from PyPI into {LITELLM} (1 GB)" if "litellm" in options.routes else "")
    print(f"{len(columns)} columns with {cells} cells, {options.jobs} agents at a time.")
    if known := cells - sum(left.values()):
        print(f"{known} cells are known from the same code; AGAIN=1 runs them again.")
    print(f"This takes about {seconds / 60:.0f} minutes, without installing.", flush=True)


def _install(routes: list[str]) -> None:
    install()
    if "litellm" in routes:
        install_litellm()


def _run(columns: list[Column], rows: list[str], results: Results, options: argparse.Namespace) -> bool:
    """Whether all columns could be run."""
    start, number = time.monotonic(), 0

    def run(column: Column) -> bool:
        nonlocal number
        problem = _run_column(column, _missing(column, rows, results, options), results)
        right = sum(
            not results.cells[column.name][row].problem for row in _of(column, rows) if results.has(column, row)
        )
        number += 1
        seconds = time.monotonic() - start
        text = f"{right} of {len(_of(column, rows))} right"
        print(f"[{number}/{len(columns)}, {seconds:.0f} s] {column.name}: {problem or text}", flush=True)
        return not problem

    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(run, column) for column in columns]
        try:
            could_run = [one.result() for one in runs]
            return all(could_run)
        except BaseException:
            INTERRUPTED.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_column(column: Column, rows: list[str], results: Results) -> str:
    """Run rows of a column; returns why that was impossible, if it was."""

    def keep(row: str, problem: str) -> None:
        results.add(column, row, problem)
        if problem and column.route == "gateway":
            print(f"  {column.name}, {row}: {problem}", flush=True)

    try:
        if habits := [row for row in rows if row in HABIT_ROWS]:
            run_habits(column.agent, column.wire, column.route, habits, keep)
        for row in rows:
            if row in STRICT_ROWS:
                keep(row, run_strict(column.agent, column.wire, row.removeprefix("strict_")))
    except Exception as error:  # noqa: BLE001  # the other columns go on
        return f"could not be run: {error!r}"
    return ""


def _report(columns: list[Column], rows: list[str], results: Results) -> int:
    """Print the sums and the wrong cells; 1 if there are wrong cells through the gateway without a reason."""
    wrong = 0
    for route in ROUTES:
        cells = [
            (column, row, results.cells[column.name][row].problem)
            for column in columns
            if column.route == route
            for row in _of(column, rows)
            if results.has(column, row)
        ]
        if not cells:
            continue
        print(f"{route}: {sum(not problem for *_, problem in cells)} of {len(cells)} cells are right")
        for column, row, problem in cells if route == "gateway" else ():
            if problem:
                reason = reason_for(column, row)
                wrong += not reason
                print(f"  {column.name}, {row}: {problem[:200]} ({reason or 'NO REASON IS WRITTEN'})")
    return int(wrong > 0)


def _missing(column: Column, rows: list[str], results: Results, options: argparse.Namespace) -> list[str]:
    return _of(column, rows) if options.again else results.missing(column, rows)


def _of(column: Column, rows: list[str]) -> list[str]:
    return [row for row in rows if row in column.rows]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
