"""`python -m tests.same COMMIT`: compares this tree with a commit, and prints the counts per kind and what differs."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.same.inputs import write_inputs

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
TESTS = (
    "agent", "agent_history", "agent_tools", "approvals", "deferred", "early_start", "encoded_history", "guard",
    "hook_functions", "hooks", "inline_runs", "limits", "logged_runs", "nested", "nested_hooks", "output_runs",
    "output_wires", "questions", "reasoning_back", "response_end", "resume", "run_errors", "run_inputs", "steering",
    "stored_run", "stored_versions", "switch_providers", "tool_outcome", "vendor_tools", "words_kept",
)  # fmt: skip
"""The tests whose agents are recorded: those with the most run scripts that do not measure time."""
AGAIN = 3
"""How often a test that differs is run again in each tree.

A test that cancels at many places, for example, has other events each time. If it varies in the other tree itself, and
no two values agree, nothing is known: it is listed, and does not count as a difference.
"""
Digests = dict[str, set[str]]
"""What each item (kind and id) gave; more than one value if a test was repeated."""


class Tree:
    """A tree of penstock and its digests."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self._folder = folder

    def dump(self, *wanted: str) -> Digests:
        """The digests of all inputs, or the values of some items."""
        data = self._folder / "inputs.jsonl"
        return _lines(self._python("-P", str(HERE / "dump.py"), str(self.path), str(data), *wanted))

    def record(self, ids: list[str] | None = None, *, in_full: bool = False) -> Digests:
        """The digests of the tests, or of those with these ids."""
        out = self._folder / f"tests-{self.path.name}"
        out.unlink(missing_ok=True)
        names = [f"test_{name}" for name in TESTS] if ids is None else sorted({id.split("::")[0] for id in ids})
        files = [str(path) for name in names for path in (self.path / "tests").rglob(f"{name}.py")]
        chosen = "" if ids is None else " or ".join(sorted({re.split(r"::|\[", id)[1] for id in ids}))
        which = f"not postgres and ({chosen})" if chosen else "not postgres"
        environment = {"SAME_OUT": str(out), "SEED": "1"} | ({"SAME_IN_FULL": "1"} if in_full else {})
        self._python(
            "-m", "pytest", "-q", "-p", "record_runs", "-p", "no:cacheprovider", "-k", which, *files,
            may_fail=True, **environment,
        )  # fmt: skip
        if not out.exists():
            sys.exit(f"no test of {self.path} was recorded")
        return _lines(out.read_text(encoding="utf-8"))

    def _python(self, *arguments: str, may_fail: bool = False, **environment: str) -> str:
        path = os.pathsep.join([str(self.path / "src"), str(self.path), str(HERE)])
        run = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": path, **environment},
            cwd=self.path,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode and not may_fail:
            sys.exit(f"{self.path} failed:\n{run.stderr}")
        return run.stdout


def _lines(text: str) -> Digests:
    found = defaultdict[str, set[str]](set)
    for line in text.splitlines():
        kind, id, value = line.split("\t", 2)
        found[f"{kind} {id}"].add(value)
    return found


@contextmanager
def trees(commit: str) -> Iterator[tuple[Tree, Tree]]:
    """The commit in a temporary worktree, and this tree, with the inputs of both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder / "inputs.jsonl")
        for stored in ("stored_runs", "stored_logs"):
            [source] = (ROOT / "tests").rglob(stored)
            shutil.copytree(source, folder / stored)
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder / "base"), commit], check=True)
        try:
            yield Tree(folder / "base", folder), Tree(ROOT, folder)
        finally:
            subprocess.run([*git, "remove", "--force", str(folder / "base")], check=True)


def compare(before: Tree, after: Tree, kinds: set[str]) -> tuple[Digests, Digests]:
    """The digests of both trees, which work side by side."""
    old: Digests = {}
    new: Digests = {}
    with ThreadPoolExecutor(2) as pool:
        if kinds != {"tests"}:
            for digests, part in zip((old, new), pool.map(Tree.dump, (before, after)), strict=True):
                digests.update({item: value for item, value in part.items() if item.split()[0] in kinds})
        if "tests" in kinds:
            for digests, part in zip((old, new), pool.map(Tree.record, (before, after)), strict=True):
                digests.update(part)
            for _ in range(AGAIN):
                ids = [item.removeprefix("tests ") for item in _unequal_items(old, new) if item.startswith("tests ")]
                if not ids:
                    break
                for digests, part in zip((old, new), pool.map(Tree.record, (before, after), (ids, ids)), strict=True):
                    for item, values in part.items():
                        digests.setdefault(item, set()).update(values)
    return old, new


def different_items(old: Digests, new: Digests) -> list[str]:
    """The items that have one value in the other tree, and another in this one."""
    return [item for item in _unequal_items(old, new) if len(old[item]) == 1]


def _unequal_items(old: Digests, new: Digests) -> list[str]:
    """The items of both trees that have no value in common."""
    return [item for item in old if item in new and old[item].isdisjoint(new[item])]


def show(item: str, before: Tree, after: Tree) -> str:
    """The difference of an item in full."""
    kind, id = item.split(" ", 1)
    if kind == "tests":
        values = [tree.record([id], in_full=True).get(item, {"nothing"}) for tree in (before, after)]
    else:
        values = [tree.dump(item)[item] for tree in (before, after)]
    left, right = (re.split(r"(?<=[}\]]), ", min(value)) for value in values)
    return "\n".join(difflib.unified_diff(left, right, "before", "after", lineterm="", n=1))


def explanations(path: Path | None) -> list[tuple[re.Pattern[str], str]]:
    """The explained differences: lines of `kind, a pattern for the item, reason`, separated by tabs; `#` comments."""
    if path is None:
        return []
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "#"]
    fields = [line.split("\t") for line in lines]
    return [(re.compile(f"{kind} {pattern}"), reason) for kind, pattern, reason in fields]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the commit that this tree is compared with")
    parser.add_argument("--kinds", default="events,responses,requests,runs,machine,tests,stored")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="print the first N differences in full (5)")
    parser.add_argument("--explained", type=Path, help="a file of differences that have a reason")
    options = parser.parse_args()
    explained = explanations(options.explained)
    with trees(options.commit) as (before, after):
        old, new = compare(before, after, set(options.kinds.split(",")))
        different = different_items(old, new)
        reasons = {
            item: next((reason for pattern, reason in explained if pattern.fullmatch(item)), "") for item in different
        }
        unexplained = [item for item in different if not reasons[item]]
        _report(old, new, different, reasons)
        for item in unexplained[: options.show]:
            sys.stdout.write(f"\n{item}\n{show(item, before, after)}\n")
    sys.exit(bool(unexplained))


def _report(old: Digests, new: Digests, different: list[str], reasons: dict[str, str]) -> None:
    undecided = [item for item in _unequal_items(old, new) if item not in reasons]
    for item in undecided:
        sys.stdout.write(f"varies: {item}\n")
    for item in different:
        sys.stdout.write(f"differs: {item}{' (explained: ' + reasons[item] + ')' if reasons[item] else ''}\n")
    counts = {
        "compared": Counter(_kind(item) for item in old if item in new),
        "differ": Counter(map(_kind, different)),
        "vary": Counter(map(_kind, undecided)),
        "explained": Counter(_kind(item) for item in different if reasons[item]),
        "only before": Counter(_kind(item) for item in old if item not in new),
        "only now": Counter(_kind(item) for item in new if item not in old),
    }
    sys.stdout.write("\n" + "".join(f"{title:>12}" for title in ("kind", *counts)) + "\n")
    for kind in dict.fromkeys(map(_kind, {**old, **new})):
        sys.stdout.write(f"{kind:>12}" + "".join(f"{count[kind]:12}" for count in counts.values()) + "\n")


def _kind(item: str) -> str:
    return item.split(" ", 1)[0]


if __name__ == "__main__":
    main()
