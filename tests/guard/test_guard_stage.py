"""The stage of a guard: how text is cut, what is passed on when, and what never is. Time is simulated."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import Any

import pytest

from penstock import (
    Error,
    Finish,
    Guard,
    GuardContext,
    GuardError,
    Opaque,
    Reasoning,
    Refusal,
    Retry,
    StopRun,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
    UsageError,
    collect,
)
from penstock.guard.checks import Check
from penstock.guard.stage import STOPPED_BY, GuardStage
from penstock.guard.text_pieces import Splitter
from tests.cases import each
from tests.growth import assert_linear

SECRET = "zebra"
MASK = "*****"


def same(text: str) -> str:
    return text


def allow(name: str, arguments: dict[str, Any]) -> None:
    return None


def masked(check: Check) -> str | StopRun | None:
    return check.text.replace(SECRET, MASK) if check.arguments is None else None


def through(
    guard: Guard, *reads: list[StreamChunk], verdict: Callable[[Check], str | StopRun | None] = masked
) -> list[StreamChunk]:
    """What the stage passes on, if each check ends before the next read."""
    stage, passed = GuardStage(guard), list[StreamChunk]()

    def settle() -> None:
        while checks := stage.take_due():
            for check in checks:
                passed.extend(stage.settle(check, verdict(check)))

    for chunks in reads:
        passed.extend(stage.feed(chunks))
        settle()
    passed.extend(stage.close())
    settle()
    assert stage.is_idle
    return passed


def pieces_of(guard: Guard, *reads: list[StreamChunk]) -> list[str]:
    """The pieces that are checked."""
    seen: list[str] = []

    def verdict(check: Check) -> str | None:
        seen.append(check.text)
        return None if check.arguments is not None else check.text

    through(guard, *reads, verdict=verdict)
    return seen


def call(block: int, city: str = "Rome", name: str = "look") -> list[StreamChunk]:
    raw = f'{{"city":"{city}"}}'
    return [
        ToolCallStart(block, f"c{block}", name),
        ToolCallDelta(block, raw),
        ToolCallClosed(block, f"c{block}", name, {"city": city}),
        ToolCall(f"c{block}", name, {"city": city}, raw, sealed_by="call_end", block=block),
    ]


# -- pieces ------------------------------------------------------------------------------------------------------------


def split(text: str, cuts: list[int], size: int | None, *, has_sentences: bool) -> list[str]:
    splitter = Splitter(size, has_sentences=has_sentences)
    pieces = [piece for start, end in pairwise([0, *cuts, len(text)]) for piece in splitter.feed(text[start:end])]
    return [*pieces, *filter(None, [splitter.close()])]


def test_a_sentence_ends_with_the_white_space_after_it() -> None:
    text = 'It costs 3.14 (about). "Really?" he said.\n\n\nNext line\n好。再见！The end'
    assert split(text, [], 500, has_sentences=True) == [
        "It costs 3.14 (about). ", '"Really?" ', "he said.\n", "\n\nNext line\n", "好。", "再见！", "The end",
    ]  # fmt: skip


def test_a_window_ends_with_a_word_and_a_long_word_is_cut() -> None:
    assert split("one two three four", [], 5, has_sentences=False) == ["one two ", "three ", "four"]
    assert [len(piece) for piece in split("x" * 250, [], 10, has_sentences=False)] == [110, 110, 30]


def test_pieces_do_not_depend_on_how_the_text_arrives() -> None:
    rng = random.Random(16)
    for _ in range(3000):
        text = "".join(rng.choice("ab. \n.!\"') 。x") for _ in range(rng.randrange(60)))
        text += "y" * rng.choice([0, 0, 240])
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(20)))
        size, has_sentences = rng.choice([1, 3, 7, 500, None]), rng.random() < 0.7
        whole = split(text, [], size, has_sentences=has_sentences)
        assert "".join(whole) == text
        assert split(text, cuts, size, has_sentences=has_sentences) == whole, (text, cuts, size)
        assert split(text, [*range(len(text))], size, has_sentences=has_sentences) == whole, (text, size)


def test_token_counts_do_not_cut_a_sentence_and_other_events_do() -> None:
    guard = Guard(same)
    counted: list[StreamChunk] = [
        Text(0, "One "),
        Usage(1, 1),
        Text(0, "two. "),
        Usage(1, 2),
        Unknown({}),
        Text(0, "Three"),
    ]
    assert pieces_of(guard, counted, [Finish("stop")]) == ["One two. ", "Three"]
    assert pieces_of(guard, [Text(0, "Let me "), *call(1), Text(2, "look"), Finish("stop")]) == ["Let me ", "look"]
    assert pieces_of(guard, [Reasoning(0, "Hm"), Text(1, "Hi")]) == ["Hm", "Hi"]


def test_the_texts_of_several_choices_do_not_cut_each_other() -> None:
    chunks: list[StreamChunk] = [
        Text(0, "One "),
        Text(1, "Uno ", 1),
        Text(0, "two."),
        Text(1, "due.", 1),
        Finish("stop"),
    ]
    assert pieces_of(Guard(same), chunks, [Finish("stop", choice=1)]) == ["One two.", "Uno due."]


def test_kinds_that_are_not_checked_pass_in_their_place() -> None:
    chunks: list[StreamChunk] = [Reasoning(0, SECRET), Text(1, SECRET), Refusal(2, SECRET), Finish("stop")]
    passed = through(Guard(same, kinds=["text"]), chunks)
    assert passed == [Reasoning(0, SECRET), Text(1, MASK), Refusal(2, SECRET), Finish("stop")]
    assert pieces_of(Guard(same, kinds=["reasoning"]), chunks) == [SECRET]


def test_a_check_gets_the_text_before_it_of_its_kind() -> None:
    stage = GuardStage(Guard(same))
    stage.feed([Reasoning(0, "Think. "), Text(1, "One. Two. " + "x" * 2000 + ". Last."), Finish("stop")])
    before = {check.text: check.before for check in [*stage.take_due(), *stage.take_due()]}
    assert before["One. "] == ""
    assert before["Two. "] == "One. "
    for limited in list(before.values()):
        assert len(limited) <= 1000


# -- what is passed on, and when ---------------------------------------------------------------------------------------


class Simulation:
    """Runs a stage with a clock: reads at their times, and checks that take a time of their own."""

    def __init__(self, guard: Guard, reads: list[tuple[float, list[StreamChunk]]], seconds: dict[str, float]) -> None:
        self._stage = GuardStage(guard)
        self._seconds = seconds
        self._waiting: list[tuple[float, int, Check]] = []
        self._count = 0
        self.passed: list[tuple[float, StreamChunk]] = []
        self.started: dict[str, float] = {}
        self.cleared: dict[str, float] = {}
        self.most = 0
        for at, chunks in reads:
            self._run_until(at)
            self._step(at, self._stage.feed(chunks))
        self._step(reads[-1][0], self._stage.close())
        self._run_until(float("inf"))
        assert self._stage.is_idle
        assert not self._stage.is_checking

    def _run_until(self, end: float) -> None:
        while self._waiting and self._waiting[0][0] <= end:
            now, _, check = heappop(self._waiting)
            self.cleared[check.text] = now
            self._step(now, self._stage.settle(check, masked(check)))

    def _step(self, now: float, chunks: list[StreamChunk]) -> None:
        self.passed += [(now, chunk) for chunk in chunks]
        for check in self._stage.take_due():
            self.started[check.text] = now
            self._count += 1
            heappush(self._waiting, (now + self._seconds[check.text], self._count, check))
        self.most = max(self.most, len(self._waiting))


def random_response(rng: random.Random) -> list[StreamChunk]:
    """Text with secrets, reasoning, calls and token counts; each sentence occurs once."""
    chunks: list[StreamChunk] = []
    for block in range(rng.randrange(1, 6)):
        match rng.choice(["text", "text", "reasoning", "call"]):
            case "call":
                chunks += call(block)
            case kind:
                words = [f"{block}w{at}" if rng.random() < 0.8 else f"{SECRET}{block}x{at}" for at in range(12)]
                text = "".join(word + rng.choice([" ", " ", ". ", "! "]) for word in words)
                cuts = sorted({0, *(rng.randrange(len(text)) for _ in range(rng.randrange(8))), len(text)})
                for start, end in pairwise(cuts):
                    piece = text[start:end]
                    chunks.append(Text(block, piece) if kind == "text" else Reasoning(block, piece))
                    chunks += [Usage(1, len(chunks))] * rng.randrange(2)
    return [*chunks, Finish("stop")]


def plain(chunks: list[StreamChunk]) -> list[Any]:
    """The chunks with adjacent text joined, without token counts."""
    joined: list[Any] = []
    for chunk in chunks:
        last: Any = joined[-1] if joined else None
        if isinstance(chunk, Text | Reasoning) and type(last) is type(chunk) and last.block == chunk.block:
            joined[-1] = type(chunk)(chunk.block, last.text + chunk.text)
        elif not isinstance(chunk, Usage):
            joined.append(chunk)
    return joined


@each("seed", range(60))
@each("by", ["sentence", "window", "answer"])
def test_a_piece_is_passed_on_one_guard_time_after_it_closed_and_all_before_were_cleared(seed: int, by: Any) -> None:
    rng = random.Random(seed)
    chunks, parallel = random_response(rng), rng.randrange(1, 5)
    times = [*accumulate(rng.choice([0.0, 0.1, 1.0]) for _ in chunks)]
    reads = [(at, [chunk]) for at, chunk in zip(times, chunks, strict=True)]
    pieces = pieces_of(Guard(same, by=by, size=20), *([chunk] for chunk in chunks))
    seconds = {piece: rng.choice([0.0, 0.3, 2.0, 5.0]) for piece in pieces}
    closed = Simulation(Guard(same, by=by, size=20, parallel=1000), reads, seconds).started
    run = Simulation(Guard(same, by=by, size=20, parallel=parallel), reads, seconds)
    assert run.most <= parallel

    texts = [(at, chunk.text) for at, chunk in run.passed if isinstance(chunk, Text | Reasoning)]
    earlier, end = 0.0, times[-1] if by == "answer" else 0.0
    last = max([end, *run.cleared.values()]) if by == "answer" else 0.0
    assert [text for _, text in texts] == [piece.replace(SECRET, MASK) for piece in pieces]
    for (at, _), piece in zip(texts, pieces, strict=True):
        assert run.cleared[piece] <= at <= max(closed[piece], earlier, last) + seconds[piece]
        earlier = max(earlier, run.cleared[piece])

    expected = [
        type(chunk)(chunk.block, chunk.text.replace(SECRET, MASK)) if isinstance(chunk, Text | Reasoning) else chunk
        for chunk in plain(chunks)
    ]
    assert plain([chunk for _, chunk in run.passed]) == expected


def test_a_call_is_passed_on_when_all_text_before_it_is_cleared() -> None:
    stage = GuardStage(Guard(same))
    assert stage.feed([Text(0, "One. Two. "), *call(1), Text(2, "Three."), Finish("tool_calls")]) == []
    first, second, third = stage.take_due()
    assert stage.settle(third, "Three.") == []
    assert stage.settle(second, "Two. ") == []
    assert stage.settle(first, "1. ") == [Text(0, "1. "), Text(0, "Two. "), *call(1), Text(2, "Three."),
                                          Finish("tool_calls")]  # fmt: skip


def test_an_empty_verdict_leaves_the_piece_out() -> None:
    assert through(Guard(same), [Text(0, "One. Two."), Finish("stop")], verdict=lambda check: "") == [Finish("stop")]


def test_white_space_is_not_checked() -> None:
    assert pieces_of(Guard(same), [Text(0, "One.\n"), Text(0, "\n\n"), Finish("stop")]) == ["One.\n"]
    assert through(Guard(same), [Text(0, "\n\n"), Finish("stop")]) == [Text(0, "\n\n"), Finish("stop")]


def test_a_withdrawn_attempt_is_not_passed_on_and_its_checks_are_void() -> None:
    stage = GuardStage(Guard(same, parallel=1))
    assert stage.feed([Text(0, "One. Two. ")]) == []
    (first,) = stage.take_due()
    assert stage.feed([Retry("again"), Text(0, "Three. ")]) == [Retry("again")]
    assert stage.take_due() == []  # the void check has not ended
    assert stage.settle(first, "One. ") == []
    (third,) = stage.take_due()
    assert stage.settle(third, "Three. ") == [Text(0, "Three. ")]
    assert stage.close() == []


# -- a guard that stops the run ----------------------------------------------------------------------------------------


def stop_at(word: str) -> Callable[[Check], str | StopRun]:
    return lambda check: StopRun("no such words") if word in check.text else check.text


@pytest.mark.parametrize("by", ["sentence", "answer"])
def test_a_stop_ends_the_response_before_the_piece(by: Any) -> None:
    chunks = [Text(0, f"One. Two {SECRET}. Three. "), *call(1), Usage(3, 4), Finish("tool_calls")]
    passed = through(Guard(same, by=by), chunks, verdict=stop_at(SECRET))
    kept = [Text(0, "One. ")] if by == "sentence" else []
    assert passed == [*kept, Usage(3, 4), Finish("content_filter", STOPPED_BY, "no such words")]
    assert collect(passed).finish_reason == "content_filter"


def test_a_stop_waits_for_what_came_before_it() -> None:
    stage = GuardStage(Guard(same))
    stage.feed([Text(0, "One. Two. Three. ")])
    first, second, third = stage.take_due()
    assert stage.settle(second, StopRun("no")) == []
    assert stage.feed([Text(0, "Four. "), *call(1)]) == []
    assert stage.settle(third, "Three. ") == []
    assert stage.settle(first, "One. ") == [Text(0, "One. "), Finish("content_filter", STOPPED_BY, "no")]
    assert stage.is_idle
    assert stage.close() == []


def test_a_failure_waits_for_what_came_before_it_and_a_stop_before_it_counts_more() -> None:
    error = GuardError("the guard raised ValueError")
    stage = GuardStage(Guard(same))
    stage.feed([Text(0, "One. Two. Three. "), Usage(3, 4)])
    first, second, third = stage.take_due()
    assert stage.fail(second, error) == []
    assert stage.fail(third, GuardError("late")) == []
    assert (stage.is_idle, stage.failure) == (False, error)
    assert stage.settle(first, "One. ") == [Text(0, "One. "), Usage(3, 4)]
    assert (stage.is_idle, stage.failure) == (True, error)
    stage = GuardStage(Guard(same))
    stage.feed([Text(0, "One. Two. ")])
    first, second = stage.take_due()
    assert stage.fail(second, error) == []
    assert stage.settle(first, StopRun("no")) == [Finish("content_filter", STOPPED_BY, "no")]
    assert stage.failure is None


def test_a_stop_does_not_wait_for_what_is_open() -> None:
    stage = GuardStage(Guard(same, call=allow))
    assert stage.feed([*call(0)[:2], Text(1, f"{SECRET}. ")]) == []
    (check,) = stage.take_due()
    assert stage.settle(check, StopRun("no")) == [Finish("content_filter", STOPPED_BY, "no")]
    assert stage.is_idle


def test_a_stop_at_one_of_two_open_calls_leaves_both_out() -> None:
    stage = GuardStage(Guard(same, call=allow))
    first, second = call(0), call(1)
    assert stage.feed([Text(2, "Open"), first[0], first[1], *second[:3]]) == []
    text, check = stage.take_due()
    assert stage.settle(check, StopRun("no")) == []
    assert stage.settle(text, "Open") == [Text(2, "Open"), Finish("content_filter", STOPPED_BY, "no")]
    assert stage.is_idle


def interleaved_response(rng: random.Random) -> list[StreamChunk]:
    """Text of two choices, and calls, whose chunks are mixed; often cut."""
    parts = [call(block) for block in range(rng.randrange(1, 4))]
    parts += [[Text(9, f"{choice}w{at}" + rng.choice([" ", ". "]), choice) for at in range(5)] for choice in (0, 1)]
    chunks: list[StreamChunk] = []
    while parts := [part for part in parts if part]:
        chunks.append(rng.choice(parts).pop(0))
    return chunks[: rng.randrange(1, len(chunks) + 1)]


@each("seed", range(100))
@each("by", ["sentence", "window"])
def test_after_a_stop_the_stage_is_idle_when_no_check_runs(seed: int, by: Any) -> None:
    rng = random.Random(seed)
    stage = GuardStage(Guard(same, call=allow, by=by, size=4, parallel=rng.randrange(1, 4)))
    running: list[Check] = []
    for chunk in interleaved_response(rng):
        stage.feed([chunk])
        running += stage.take_due()
        while running and (stage.is_stopped or rng.random() < 0.4):
            check = running.pop(rng.randrange(len(running)))
            stage.settle(check, StopRun("no") if rng.random() < 0.3 else masked(check))
            running += stage.take_due()
        assert stage.is_idle or not stage.is_stopped


# -- calls -------------------------------------------------------------------------------------------------------------


def test_calls_are_checked_once_when_their_arguments_close() -> None:
    stage = GuardStage(Guard(same, call=allow))
    start, delta, closed, whole = call(0)
    assert stage.feed([start, delta]) == []
    assert stage.take_due() == []
    assert stage.feed([closed]) == []
    (check,) = stage.take_due()
    assert (check.text, check.arguments) == ("look", {"city": "Rome"})
    assert stage.settle(check, None) == [start, delta, closed]
    assert stage.feed([whole, Finish("tool_calls")]) == [whole, Finish("tool_calls")]


def test_a_call_that_changes_after_it_closed_is_checked_again() -> None:
    stage = GuardStage(Guard(same, call=allow))
    start, delta, closed, _ = call(0)
    other = ToolCall("c0", "look", {"city": "Pisa"}, '{"city":"Pisa"}', sealed_by="finish")
    assert stage.feed([start, delta, closed, other]) == []
    first, second = stage.take_due()
    assert stage.settle(first, None) == [start, delta, closed]
    assert stage.settle(second, StopRun("not there")) == [Finish("content_filter", STOPPED_BY, "not there")]


def test_a_damaged_call_is_checked_as_text() -> None:
    start = ToolCallStart(0, "c0", "look")
    cut = ToolCallInvalid(0, "c0", "look", f'{{"city": "{SECRET}', "cut")
    passed = through(Guard(same, call=allow), [start, ToolCallDelta(0, cut.arguments_raw), cut, Finish("cut")])
    assert passed == [start, ToolCallInvalid(0, "c0", "look", f'{{"city": "{MASK}', "cut"), Finish("cut")]


QUOTED = ToolCallInvalid(0, "c0", "look", '{"city":"Rome"}', "quoted", "", {"city": "Rome"}, "text:hermes")


def test_a_damaged_call_that_may_run_is_checked_as_text_and_then_as_a_call() -> None:
    stage = GuardStage(Guard(same, call=allow))
    start, delta = ToolCallStart(0, "c0", "look"), ToolCallDelta(0, QUOTED.arguments_raw)
    assert stage.feed([start, delta, QUOTED]) == []
    [text] = stage.take_due()
    assert (text.text, text.arguments) == (QUOTED.arguments_raw, None)
    assert stage.settle(text, text.text) == []
    [again] = stage.take_due()
    assert (again.text, again.arguments) == ("look", {"city": "Rome"})
    assert stage.settle(again, None) == [start, delta, QUOTED]


def test_a_call_that_may_be_in_the_text_waits_for_its_end() -> None:
    stage = GuardStage(Guard(same), has_text_calls=True)
    start, delta, closed, whole = call(0)
    assert stage.feed([start, delta]) == []
    assert stage.feed([closed]) == [start, delta, closed]
    assert stage.feed([whole]) == [whole]
    assert not stage.is_checking
    native = ToolCallInvalid(1, "c1", "look", "{", "cut")
    assert stage.feed([ToolCallStart(1, "c1", "look"), native])[1:] == [native]
    text = ToolCallInvalid(2, "c2", "look", f'{{"city": "{SECRET}', "cut", origin="text:hermes")
    assert stage.feed([ToolCallStart(2, "c2", "look"), ToolCallDelta(2, text.arguments_raw), text]) == []
    [check] = stage.take_due()
    assert check.text == text.arguments_raw


def test_calls_in_unchecked_text_are_not_checked() -> None:
    stage = GuardStage(Guard(same, kinds=["reasoning"]), has_text_calls=True)
    assert stage.feed([ToolCallStart(0, "c0", "look"), QUOTED])[1:] == [QUOTED]


def test_a_call_that_never_ends_is_not_passed_on() -> None:
    assert through(Guard(same, call=allow), [ToolCallStart(0, "c0", "look"), ToolCallDelta(0, "{")]) == []


SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "c0", "action": {"commands": [SECRET]}}
STATE = Opaque(0, "openai-responses", "shell_call", SHELL)
VENDOR_CALL = ToolCall("c0", "shell", {"action": SHELL["action"]}, kind="vendor")
PRINTED = Opaque(1, "openai-responses", "shell_call_output", {"type": "shell_call_output", "call_id": "c0"})


def test_vendor_state_that_is_a_call_waits_for_the_check_of_the_call() -> None:
    stage = GuardStage(Guard(same, call=allow))
    assert stage.feed([STATE, Text(1, "Wait. ")]) == []
    (text,) = stage.take_due()
    assert stage.settle(text, "Wait. ") == []
    assert stage.feed([VENDOR_CALL]) == []
    (check,) = stage.take_due()
    assert (check.text, check.arguments) == ("shell", VENDOR_CALL.arguments)
    assert stage.settle(check, None) == [STATE, Text(1, "Wait. "), VENDOR_CALL]


def test_vendor_state_that_is_a_call_is_not_passed_on_if_the_call_is_stopped() -> None:
    chunks: list[StreamChunk] = [Text(1, "Wait. "), STATE, VENDOR_CALL, Finish("tool_calls")]
    passed = through(
        Guard(same, call=allow), chunks, verdict=lambda check: StopRun("no") if check.arguments else check.text
    )
    assert passed == [Text(1, "Wait. "), Finish("content_filter", STOPPED_BY, "no")]


def test_vendor_state_of_a_call_that_the_provider_ran_passes_with_its_result() -> None:
    stage = GuardStage(Guard(same, call=allow))
    assert stage.feed([STATE]) == []
    assert stage.feed([PRINTED]) == [STATE, PRINTED]
    hosted = Opaque(2, "openai-responses", "shell_call", {**SHELL, "environment": {"type": "container_reference"}})
    assert stage.feed([hosted]) == [hosted]


def test_vendor_state_of_a_call_that_was_cut_is_left_out() -> None:
    assert through(Guard(same, call=allow), [STATE, Finish("cut")]) == [Finish("cut")]
    assert through(Guard(same, call=allow), [STATE], [Retry("again"), PRINTED]) == [Retry("again"), PRINTED]
    assert through(Guard(same), [STATE, Finish("cut")]) == [STATE, Finish("cut")]


# -- vendor state and raw data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["fine", SECRET])
@pytest.mark.parametrize(
    "state",
    [
        Opaque(0, "anthropic", "signature", "sig"),
        Opaque(0, "openai-chat", "reasoning_details", [{"text": SECRET}]),
        Opaque(1, "openai-responses", "reasoning", {"summary": [{"text": SECRET}], "encrypted_content": "e"}),
        Opaque(1, "ollama", "context", [1, 2]),
    ],
)
def test_vendor_state_of_reasoning_that_was_changed_is_left_out(word: str, state: Opaque) -> None:
    passed = through(Guard(same), [Reasoning(0, word), state, Finish("stop")])
    assert (state in passed) == (word == "fine")


def test_vendor_state_stays_if_other_text_was_changed() -> None:
    kept: list[StreamChunk] = [
        Opaque(0, "anthropic", "signature", "sig"),
        Opaque(2, "gemini", "thought_signature", "sig"),
        Opaque(3, "anthropic", "redacted_thinking", {"data": "e"}),
    ]
    passed = through(Guard(same), [Reasoning(0, "Hm. "), kept[0], Text(1, SECRET), *call(2), *kept[1:]])
    assert [chunk for chunk in passed if isinstance(chunk, Opaque)] == kept


def test_text_that_is_only_in_vendor_state_is_checked() -> None:
    plan = Opaque(0, "cohere", "tool_plan", f"I ask {SECRET}.")
    assert through(Guard(same), [plan]) == [Opaque(0, "cohere", "tool_plan", f"I ask {MASK}.")]
    assert through(Guard(same, kinds=["text"]), [plan]) == [plan]
    summary = Opaque(0, "anthropic", "compaction", {"type": "compaction", "content": SECRET})
    assert through(Guard(same), [summary]) == []


def test_raw_data_that_may_repeat_text_is_not_passed_on() -> None:
    chunks: list[StreamChunk] = [
        Text(0, "Hi."),
        Unknown({"logprobs": SECRET}, "logprobs"),
        Error("broken", raw={"text": SECRET}),
    ]
    passed = through(Guard(same), chunks, [Finish("error", message=f"malformed call: {SECRET}")])
    assert passed == [Text(0, "Hi."), Unknown(None, "logprobs"), Error("broken"), Finish("error")]


# -- settings, limits and cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"text": 3}, "Guard.text must be a function, not 3"),
        ({"call": "no"}, "Guard.call must be a function, not 'no'"),
        ({"by": "word"}, "Guard.by must be 'sentence', 'window' or 'answer', not 'word'"),
        ({"size": 0}, "Guard.size must be a whole number of 1 or more, not 0"),
        ({"parallel": True}, "Guard.parallel must be a whole number of 1 or more, not True"),
        ({"timeout": float("inf")}, "Guard.timeout must be a number of seconds, more than 0, not inf"),
        ({"kinds": ["calls"]}, "Guard.kinds may contain 'text', 'reasoning' and 'refusal', not 'calls'"),
    ],
)
def test_a_wrong_setting_says_what_is_right(options: dict[str, Any], problem: str) -> None:
    arguments: dict[str, Any] = {"text": same, **options}
    with pytest.raises(UsageError) as error:
        Guard(**arguments)
    assert str(error.value) == problem


def test_a_context_has_what_a_guard_may_want_to_know() -> None:
    assert GuardContext("text", "before", 2, "deps").deps == "deps"


@pytest.mark.parametrize("by", ["sentence", "window", "answer"])
def test_the_cost_of_a_stage_is_linear(by: Any) -> None:
    guard = Guard(same, by=by, parallel=1000)

    def prepare(size: int) -> Callable[[], object]:
        chunks: list[StreamChunk] = [Text(0, "words. ") for _ in range(size)]
        return lambda: through(guard, *([chunk] for chunk in chunks), [Finish("stop")])

    assert_linear(prepare, 4000)
