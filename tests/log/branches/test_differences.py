"""The first difference between two runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import UnknownRunError
from penstock.log.branches.difference import parting
from penstock.log.in_memory import MemoryStore
from penstock.run.events import LogEvent, decode_logged
from penstock.testing import Reply, call
from tests.log.branches.test_forks import Shop


def parted(first: Any, second: Any) -> tuple[str, str]:
    """Where two runs of scripted models part."""
    store = MemoryStore()
    for run_id, answer in (("a", first), ("b", second)):
        Shop(store, answer).run(run_id)
    found = Shop(store).runs.diff("a", "b")
    return tuple(
        "" if side is None else f"{side.event.type} {getattr(side.event, 'text', '')}".strip()
        for side in (found.first, found.second)
    )  # type: ignore[return-value]


def calls(id: str, amount: int, seed: int = 0, text: str = "I pay what you owe.") -> Any:
    def answer(request: Any) -> Reply:
        if request.results:
            return Reply("Done.", seed=seed)
        return Reply(text, call("look", {}), call("pay", {"amount": amount}, id=id), seed=seed)

    return answer


def test_ids_pieces_and_times_do_not_count() -> None:
    assert parted(calls("a1", 3), calls("b7", 3, seed=5)) == ("", "")


def test_other_text_another_call_and_another_result_count() -> None:
    first, second = parted(calls("a", 3), calls("a", 3, text="You owe nothing."))
    assert first.startswith("text I")
    assert second.startswith("text You")
    assert parted(calls("a", 3), calls("a", 4)) == ("tool_call", "tool_call")


def test_a_result_differs() -> None:
    shop = Shop(MemoryStore())
    shop.run("a")
    fork = shop.runs.fork("a", 16, results={"c1": "nothing"})
    shop.finish(fork)
    found = shop.runs.diff("a", fork)
    assert found.first is not None
    assert found.second is not None
    assert (found.first.event.type, found.second.event.type) == ("tool_end", "tool_end")
    assert not found.is_same


def test_a_run_that_ends_before_the_other() -> None:
    events: list[dict[str, Any]] = [
        {"type": "run_start", "messages": []}, {"type": "step_start", "step": 1},
        {"type": "text", "block": 0, "text": "Hel"}, {"type": "text", "block": 0, "text": "lo"},
    ]  # fmt: skip
    whole = [*enumerate(map(_event, events), 1)]
    found = parting(whole, whole[:3])
    assert found.first is not None
    assert (found.first.number, found.second, found.common) == (4, None, 3)
    assert parting(whole, whole).is_same
    joined = [*whole[:2], (3, _event({"type": "text", "block": 0, "text": "Hello"}))]
    assert parting(whole, joined).is_same


def test_unknown_runs() -> None:
    shop = Shop(MemoryStore())
    shop.run("a")
    with pytest.raises(UnknownRunError):
        shop.runs.diff("a", "b")


def _event(fields: dict[str, Any]) -> LogEvent:
    return decode_logged(msgspec.json.encode(fields))
