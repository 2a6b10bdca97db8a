"""Many cases in one test, for tests that take less time than pytest takes to collect, run and report them.

`each` is used as `pytest.mark.parametrize` is. It tries every case also after one has failed, and the failure names all
of them. `CASE=name python -m pytest tests/wires/test_laws.py` tries only the cases whose names contain `name`, also
those that the budget left out.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import product
from typing import Any, NamedTuple

import pytest
from _pytest.mark import ParameterSet

from tests.budget import sample

ONLY = os.environ.get("CASE", "")
"""A part of the names of the cases to try; all are tried if it is empty."""
PART = "part"
"""The parameter of a test whose cases are divided among several tests."""
PER_TEST = {"monkeypatch", "tmp_path", "capsys", "capfd", "caplog", "recwarn"}
"""Fixtures whose state would pass from one case to the next."""
SHOWN = 20
"""How many of the failures are shown with their traceback; all are named."""

Test = Callable[..., None]


class Case(NamedTuple):
    """The arguments of one try of a test."""

    name: str
    arguments: dict[str, Any]


def each(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Callable[[Any], str] | Iterable[object] | None = None, *,
    parts: int = 1, few: int | None = None,
) -> Callable[[Test], Test]:  # fmt: skip
    """Try a test with each of the values, which `pytest.mark.parametrize` would make a test each.

    `ids` are the names of the cases, or a function that names a value.

    Several of them above one test try every combination. `parts` divides the cases among so many tests, so that
    several processes can share them; `few` is the budget of a run that is not thorough, in combinations, which are
    chosen at random. Both stand in the uppermost one.
    """
    names = (names,) if isinstance(names, str) else names
    rows = list(values)
    labels: Iterable[Any] = map(ids, rows) if callable(ids) else ids or [None] * len(rows)
    cases = [_case(names, row, label) for row, label in zip(rows, labels, strict=True)]

    def decorate(test: Test) -> Test:
        below: list[Case] = getattr(test, "cases", [Case("", {})])
        combined = [Case(f"{a.name}-{b.name}".strip("-"), a.arguments | b.arguments) for a, b in product(below, cases)]
        return _grouped(test, names, combined if few is None or ONLY else sample(combined, few), parts)

    return decorate


def _case(names: tuple[str, ...], row: Any, label: Any) -> Case:
    """One row of values; `pytest.param(…, id=…)` may give its name."""
    if isinstance(row, ParameterSet):
        assert not row.marks, "a mark is for a test, not for a case"
        values, label = row.values, row.id or label
    else:
        values = row if len(names) > 1 else (row,)
    return Case(str(label or "-".join(map(_label, values))), dict(zip(names, values, strict=True)))


def _label(value: Any) -> str:
    """The name of a value, if it has one."""
    name: str = value if isinstance(value, str) else getattr(value, "__name__", "") or repr(value)
    return name[:60]


def _grouped(test: Test, names: tuple[str, ...], cases: list[Case], parts: int) -> Test:
    """One test, or one per part, that tries the cases."""
    wanted = [
        parameter for parameter in inspect.signature(test).parameters.values() if parameter.name not in names
    ]  # fmt: skip
    refused = PER_TEST & {parameter.name for parameter in wanted}
    assert not refused, f"{test.__name__} would share {refused} among its cases"
    assert not inspect.iscoroutinefunction(test)
    single: Test = getattr(test, "single", test)

    @wraps(test)
    def try_all(*args: Any, **fixtures: Any) -> None:
        first = fixtures.pop(PART, 0)
        try_cases(lambda case: single(*args, **case.arguments, **fixtures), cases[first::parts])

    try_all.__dict__ |= {"cases": cases, "single": single}
    if parts > 1:
        wanted.append(inspect.Parameter(PART, inspect.Parameter.KEYWORD_ONLY))
        pytest.mark.parametrize(PART, range(parts), ids=lambda part: f"part {part + 1} of {parts}")(try_all)
    try_all.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]
    return try_all


def try_cases(attempt: Callable[[Case], None], cases: list[Case]) -> None:
    """Try all cases; those that failed are raised together, by name."""
    chosen = [case for case in cases if ONLY in case.name]
    if not chosen:
        pytest.skip(f"no case has {ONLY!r} in its name" if ONLY else "there are no cases")
    failures = list(_failures(attempt, chosen))
    if failures:
        failed = ", ".join(name for name, _ in failures)
        raise BaseExceptionGroup(
            f"{len(failures)} of {len(chosen)} cases failed: {failed}", [error for _, error in failures[:SHOWN]]
        )


def _failures(attempt: Callable[[Case], None], cases: list[Case]) -> Iterator[tuple[str, BaseException]]:
    for case in cases:
        try:
            attempt(case)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # it is raised with the others
            error.add_note(f"case: {case.name}")
            yield case.name, error
