"""What a hook, an approval predicate and a person see of a call: what its tool will get."""

from __future__ import annotations

from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from penstock import ApprovalRequest, Guard, PendingCall, StopRun, ToolResult, tool
from penstock.log import memory
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tests.scripted_runs import (
    answer_with,
    drive,
    end_of,
    events_of,
    made,
    results,
    resuming,
    run_of,
    streaming,
    sync_and_async,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    pieces: int = Field(default=1, alias="count")


class Unset:
    pass


UNSET = Unset()
WRITTEN = {
    "number": "13",
    "day": "2026-11-18",
    "path": "a/b",
    "colour": "red",
    "items": [{"name": "nail", "count": "2"}],
}
SHOWN = {
    "number": 13,
    "day": "2026-11-18",
    "path": "a/b",
    "colour": "red",
    "items": [{"name": "nail", "count": 2}],
    "limit": 10,
}


class Shop:
    """A tool whose arguments are converted, and what it got."""

    def __init__(self, **options: Any) -> None:
        self.got: list[dict[str, Any]] = []

        @tool(**options)
        def order(
            number: int, day: date, path: Path, colour: Colour, items: list[Item], limit: int = 10, other: Any = UNSET
        ) -> str:
            """Order."""
            self.got.append(
                {"number": number, "day": day, "path": path, "colour": colour, "items": items, "limit": limit}
            )
            return "ordered"

        self.order = order
        self.script = [Reply(call("order", WRITTEN)), Reply("Done.")]


VALUES: dict[str, Any] = {
    "number": 13, "day": date(2026, 11, 18), "path": Path("a/b"), "colour": Colour.RED,
    "items": [Item(name="nail", count=2)], "limit": 10,
}  # fmt: skip


def without_other(arguments: dict[str, Any]) -> dict[str, Any]:
    assert type(arguments["other"]) is Unset
    return {name: value for name, value in arguments.items() if name != "other"}


@sync_and_async
def test_hooks_and_predicate_see_what_the_tool_gets(mode: str) -> None:
    seen: list[dict[str, Any]] = []
    raw: list[dict[str, Any]] = []

    def before(call: PendingCall) -> None:
        seen.append(without_other(call.arguments))
        raw.append(call.raw_arguments)

    def after(call: PendingCall, result: ToolResult) -> None:
        before(call)

    def predicate(arguments: dict[str, Any]) -> bool:
        seen.append(without_other(arguments))
        return False

    shop = Shop(approval=predicate)
    result = run_of(made(shop.script, shop.order, before_call=[before, before], after_call=after), mode, "Go.")
    assert shop.got == [VALUES]
    assert seen == [VALUES] * 4
    assert raw == [WRITTEN] * 3
    assert result.tool_failures == ()
    assert result.messages[1].tool_calls[0].arguments == WRITTEN  # as the model wrote it


@sync_and_async
@pytest.mark.parametrize("asks", ["tool", "hook"])
def test_a_person_sees_what_the_tool_gets(mode: str, asks: str) -> None:
    shop = Shop(approval=asks == "tool")
    hook = None if asks == "tool" else lambda call: call.ask("why")
    agent = made(shop.script, shop.order, before_call=hook, approvals="wait")
    events, _ = drive(streaming(agent), mode, answer_with(True))
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    assert request.arguments == SHOWN
    assert list(request.arguments) == list(SHOWN)  # those of the model first
    assert shop.got == [VALUES]
    assert results(end_of(events)) == ["ordered"]


@sync_and_async
@pytest.mark.parametrize("arguments", [SHOWN, WRITTEN])
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_person_who_returns_what_was_shown_has_changed_nothing(
    mode: str, arguments: dict[str, Any], is_stored: bool
) -> None:
    shop = Shop(approval=True)
    if is_stored:
        agent = made(shop.script, shop.order)
        _, paused = drive(streaming(agent), mode)
        assert [request.arguments for request in paused.waiting] == [SHOWN]
        events, _ = drive(resuming(agent, paused.dump()), mode, answer_with(True, arguments))
    else:
        agent = made(shop.script, shop.order, approvals="wait")
        events, _ = drive(streaming(agent), mode, answer_with(True, arguments))
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    assert request.arguments == SHOWN
    assert results(end_of(events)) == ["ordered"]
    assert shop.got == [VALUES]


@sync_and_async
def test_a_person_sees_it_in_another_process(mode: str) -> None:
    shop, store = Shop(approval=True), memory()

    def start(*script: Any) -> Any:
        agent = made(script, shop.order, name="clerk")
        return lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r1")

    drive(start(shop.script[0]), mode)

    def decide(running: Any, event: Any) -> None:
        if isinstance(event, ApprovalRequest):
            assert event.arguments == SHOWN
            running.decide(event.call_id, True, {**event.arguments, "limit": 11})

    events, _ = drive(start(shop.script[1]), mode, decide)
    assert end_of(events).reason == "answered"
    assert shop.got == [{**VALUES, "limit": 11}]


CHANGES: dict[str, tuple[Any, dict[str, Any] | None, dict[str, Any]]] = {
    "nothing": (lambda shown: shown, None, {}),
    "a date": (lambda shown: {**shown, "day": date(2027, 1, 1)}, {"day": "2027-01-01"}, {"day": date(2027, 1, 1)}),
    "a JSON value": (lambda shown: {**shown, "number": 14}, {"number": 14}, {"number": 14}),
    "a default": (lambda shown: {**shown, "limit": 20}, {"limit": 20}, {"limit": 20}),
    "a path": (lambda shown: {**shown, "path": shown["path"] / "c"}, {"path": "a/b/c"}, {"path": Path("a/b/c")}),
    "a model": (
        lambda shown: {**shown, "items": [*shown["items"], Item(name="screw")]},
        {"items": [{"name": "nail", "count": 2}, {"name": "screw", "count": 1}]},
        {"items": [Item(name="nail", count=2), Item(name="screw")]},
    ),
    "an enum": (lambda shown: {**shown, "colour": Colour.BLUE}, {"colour": "blue"}, {"colour": Colour.BLUE}),
}  # fmt: skip


@sync_and_async
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("in_place", [False, True])
def test_a_hook_changes_some_of_what_it_sees(mode: str, what: str, in_place: bool) -> None:
    change, written, got = CHANGES[what]
    reviews: list[dict[str, Any] | None] = []

    def hook(call: PendingCall) -> PendingCall:
        changed = change(call.arguments)
        if in_place:
            call.arguments.update(changed)
            changed = call.arguments
        decision = call.with_arguments(changed)
        reviews.append(decision.review.arguments)
        return decision

    shop = Shop()
    result = run_of(made(shop.script, shop.order, before_call=[hook, lambda call: None]), mode, "Go.")
    assert result.tool_failures == ()
    assert shop.got == [{**VALUES, **got}]
    assert reviews == [WRITTEN | (written or {})]
    [text] = [one.text for message in result.messages for one in message.results]
    assert text.startswith("This program changed") == (written is not None)


@sync_and_async
def test_a_change_of_a_nested_value_in_place_counts_if_it_is_returned_and_only_then(mode: str) -> None:
    def forget(call: PendingCall) -> None:
        call.arguments["items"][0].name = "forgotten"
        call.raw_arguments["items"][0]["name"] = "forgotten"

    def keep(call: PendingCall) -> PendingCall:
        call.arguments["items"][0].name = "kept"
        return call.with_arguments(call.arguments)

    shop = Shop()
    run_of(made(shop.script, shop.order, before_call=[forget, keep, forget]), mode, "Go.")
    assert shop.got == [{**VALUES, "items": [Item(name="kept", count=2)]}]


@sync_and_async
def test_a_later_hook_sees_the_converted_arguments_of_an_earlier_one(mode: str) -> None:
    seen: list[Any] = []
    hooks = [
        lambda call: call.with_arguments({**call.raw_arguments, "number": "14"}),
        lambda call: seen.append((call.arguments["number"], call.raw_arguments["number"])),
    ]
    shop = Shop()
    events_of(made(shop.script, shop.order, before_call=hooks), mode)
    assert seen == [(14, "14")]


@sync_and_async
def test_a_hook_does_not_see_arguments_that_do_not_fit_and_after_call_sees_those_of_the_model(mode: str) -> None:
    seen: list[Any] = []
    shop = Shop()
    wrong = [Reply(call("order", {**WRITTEN, "number": "many"})), Reply("Done.")]
    run_of(made(wrong, shop.order, before_call=seen.append), mode, "Go.")
    assert seen == []
    after = lambda call, result: seen.append(call.arguments["number"])  # noqa: E731
    run_of(made(wrong, shop.order, after_call=after), mode, "Go.")
    assert seen == ["many"]


@sync_and_async
def test_the_guard_and_sources_see_what_was_written(mode: str) -> None:
    guarded: list[Any] = []
    sources: list[Any] = []

    def check(name: str, arguments: dict[str, Any]) -> StopRun | None:
        guarded.append(arguments)
        return None

    def hook(call: PendingCall) -> PendingCall:
        sources.append({path for path, found in call.sources.items() if found})
        return call.with_arguments({**call.arguments, "day": date(2027, 1, 1)})

    shop = Shop()
    agent = made(shop.script, shop.order, before_call=hook, guard=Guard(lambda text: text, check))
    run_of(agent, mode, "Order 13 for 2026-11-18.")
    assert guarded == [WRITTEN, WRITTEN | {"day": "2027-01-01"}]
    assert sources == [{"number", "day"}]


# -- decisions of several hooks ----------------------------------------------------------------------------------------


@sync_and_async
def test_a_person_reads_all_reasons(mode: str) -> None:
    shop = Shop()
    hooks = [
        lambda call: call.ask("It is expensive."),
        lambda call: None,
        lambda call: call.ask(),
        lambda call: call.ask("it is late"),
        lambda call: call.ask("It is expensive."),
        lambda call: call.ask("The shop is new."),
    ]
    agent = made(shop.script, shop.order, before_call=hooks)
    [request] = run_of(agent, mode, "Go.").waiting
    assert request.note == "It is expensive. it is late; The shop is new."


@sync_and_async
def test_an_earlier_question_stays_if_a_later_hook_returns_an_older_call(mode: str) -> None:
    kept: list[PendingCall] = []

    def keep(call: PendingCall) -> PendingCall:
        kept.append(call)
        return call.with_arguments({**call.arguments, "limit": 3}).ask("why")

    shop = Shop()
    agent = made(shop.script, shop.order, before_call=[keep, lambda call: kept[0]])
    [request] = run_of(agent, mode, "Go.").waiting
    assert request.note.startswith("why")
    assert request.arguments["limit"] == 3
    assert shop.got == []


REFUSED = {
    "ask": lambda call: call.refuse("no").ask("why"),
    "ask before": lambda call: call.ask("why").refuse("no"),
    "arguments": lambda call: call.refuse("no").with_arguments({}),
    "answer": lambda call: call.refuse("no").answer("yes"),
    "answered before": lambda call: call.answer("yes").refuse("no"),
}


@sync_and_async
@pytest.mark.parametrize("how", REFUSED)
def test_a_refusal_wins(mode: str, how: str) -> None:
    shop = Shop()
    result = run_of(made(shop.script, shop.order, before_call=REFUSED[how]), mode, "Go.")
    assert [one.text for message in result.messages for one in message.results] == ["Not run: no."]
    assert shop.got == []


@sync_and_async
def test_nobody_is_asked_about_a_call_that_is_answered(mode: str) -> None:
    shop = Shop()
    agent = made(shop.script, shop.order, before_call=lambda call: call.answer("known").ask("why"))
    result = run_of(agent, mode, "Go.")
    assert [one.text for message in result.messages for one in message.results] == ["known"]
    assert shop.got == []
