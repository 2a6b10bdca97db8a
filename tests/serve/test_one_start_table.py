"""One start, one run, with real SDKs, processes and kills: the table of `python -m tests.one_start`, in part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import one_start
from tests.postgres import drop, new_schema

REPEATED = ("Responses:", "Messages:", "AI SDK:", "AG-UI:", "POST /runs, in a thread:", "run_id")
"""Rows whose requests `test_one_start` repeats in one process."""
ROWS = {name: row for name, row in one_start.ROWS.items() if not any(word in name for word in REPEATED)}


@pytest.mark.parametrize("name", ROWS)
def test_a_start_has_one_effect_however_it_is_repeated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_start, "TIMEOUT", 1.0)
    monkeypatch.setattr(one_start, "SLOW", 1.5)
    assert ROWS[name](tmp_path) == 1


def test_many_connections_with_one_key_have_one_run_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    schema = new_schema()
    try:
        assert one_start.many_at_once(tmp_path, (postgres_url, schema)) == 1
    finally:
        drop(postgres_url, schema)
