"""The hooks of `penstock.hooks`: shorter histories, tool search, stop conditions."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

import penstock
from penstock import Agent, HistoryReplaced, Message, Model, Step, StepEnd, StepStart, Tool, UsageError
from penstock.hooks import ToolSearch, compact, estimate_tokens, fallback, stop_after, stop_when
from penstock.hooks.compaction import MAX_TRANSCRIPT, NOTE, transcript
from penstock.log.in_memory import MemoryStore
from penstock.log.take_up import read_log
from penstock.messages import SUMMARY, assistant, image, result, tool_results, user
from penstock.run.rebuild import rebuild
from penstock.testing import ReceivedRequest, Reply, Scripted, Status, call, drop, fail, say
from tests.scripted_runs import answer_with, check_history, drive, resuming, streaming, sync_and_async


def step_of(history: list[Message], number: int = 2) -> Step:
    messages = tuple(history)
    model = Model("openai-compatible:m", via=Scripted([]))
    return Step(number=number, messages=messages, history=messages, tools=(), instructions="", model=model, options={})


def compacted(history: list[Message], hook: Any) -> list[Message]:
    step = asyncio.run(hook(step_of(history)))
    return history if step is None else list(step.history)


def random_history(chance: Random) -> list[Message]:
    """Users, responses and calls with results, of any length, as they follow each other in runs."""
    history = [user("The task. " * chance.choice([1, 50]))]
    for number in range(chance.randrange(1, 40)):
        if history[-1].role == "assistant":
            history.append(user("And then? " * chance.choice([1, 40])))
            continue
        calls = [
            penstock.ToolCall(f"c{number}.{at}", "look", {"n": at}, block=at + 1) for at in range(chance.randrange(4))
        ]
        history.append(assistant(penstock.Reasoning(0, "Hm. " * 9) if calls else "I see.", *calls))
        if calls:
            values = [chance.choice(["ok", "x" * 3000, image(b"png")]) for _ in calls]
            results = [
                result(one, value, is_error=chance.random() < 0.1) for one, value in zip(calls, values, strict=True)
            ]
            history.append(tool_results(*results))
    return history if history[-1].role != "assistant" else [*history, user("Go on.")]


def test_a_compacted_history_is_valid_and_no_call_is_without_its_result() -> None:
    shorter = 0
    for seed in range(300):
        chance = Random(seed)
        history = random_history(chance)
        assert penstock.check(history) == []
        limit = chance.choice([200, 1000, 4000])
        after = compacted(history, compact(limit, keep=chance.choice([1, 2, 4]), target=chance.choice([0.2, 0.5, 1.0])))
        assert penstock.check(after) == []
        check_history(after)
        assert after[0].parts[0] == history[0].parts[0]  # the task stays
        assert after[-1].role == history[-1].role
        if estimate_tokens(history) > limit:
            shorter += estimate_tokens(after) < estimate_tokens(history)
        else:
            assert after == history
    assert shorter > 100


def turns(count: int, size: int = 4000) -> list[Message]:
    history = [user("Task.")]
    for number in range(count):
        one = penstock.ToolCall(f"c{number}", "look", {})
        history += [assistant(one), tool_results(result(one, f"{number} " + "x" * size))]
    return history


def test_results_are_shortened_first_and_the_oldest_first() -> None:
    after = compacted(turns(10), compact(8000, target=0.7, keep=2))
    assert len(after) == 21
    lengths = [len(message.results[0].text) for message in after if message.results]
    assert lengths == sorted(lengths)
    assert lengths[0] < 500
    assert lengths[-1] > 4000
    assert "characters were left out" in after[2].results[0].text


def test_then_the_oldest_exchanges_are_replaced_by_a_summary() -> None:
    script = Scripted(["It was all about x."])
    hook = compact(1000, model=Model("openai-compatible:m", via=script), keep=2, max_result=200)
    after = compacted(turns(40, 300), hook)
    assert after[0].parts[1].text == f"{SUMMARY}It was all about x."  # type: ignore[union-attr]
    assert estimate_tokens(after) <= 1000
    assert len(script.requests) == 1
    assert "result of look: 0 xxx" in script.requests[0].prompt
    again = compacted([*after, *turns(40, 300)[1:]], compact(1000, keep=2))
    assert [part.text for part in again[0].parts] == ["Task.", f"{SUMMARY}{NOTE}"]  # type: ignore[union-attr]


def test_a_summary_of_a_summary_has_the_first_one() -> None:
    script = Scripted(["One.", "Two."])
    hook = compact(1000, model=Model("openai-compatible:m", via=script), keep=2)
    after = compacted([*compacted(turns(40, 300), hook), *turns(40, 300)[1:]], hook)
    assert [part.text for part in after[0].parts] == ["Task.", f"{SUMMARY}Two."]  # type: ignore[union-attr]
    assert "One." in script.requests[1].prompt


@pytest.mark.parametrize(
    "failure",
    [Status(401), Reply(say("It was all"), fail("overloaded", "no")), Reply(say("It was all"), drop()), Reply("")],
)
def test_a_summary_that_fails_becomes_a_note(failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = Model("openai-compatible:m", via=Scripted([failure]), retries=penstock.Retries(attempts=0))
    hook = compact(1000, model=model, keep=2)
    after = compacted(turns(40, 300), hook)
    assert after[0].parts[1].text == f"{SUMMARY}{NOTE}"  # type: ignore[union-attr]
    assert "the summary of a history failed" in caplog.text


def test_one_huge_recent_result_is_shortened_as_a_last_resort() -> None:
    after = compacted(turns(1, 1_000_000), compact(1000))
    assert estimate_tokens(after) <= 1000


@sync_and_async
def test_a_long_run_stays_below_the_limit(mode: str) -> None:
    def look(n: int) -> str:
        """Look."""
        return "x" * 4000

    sizes: list[int] = []

    def answer(request: ReceivedRequest) -> Reply | str:
        sizes.append(len(json.dumps(request.body)))
        return Reply(call("look", {"n": len(sizes)})) if len(sizes) < 30 else "Done."

    model = Model("openai-compatible:m", via=Scripted(answer))
    agent = Agent(model, [look], before_step=compact(10_000, keep=2))
    if mode == "sync":
        with agent.stream("Go.") as run:
            replaced = sum(isinstance(event, HistoryReplaced) for event in run)
            messages = run.messages
    else:

        async def read() -> tuple[int, list[Message]]:
            async with agent.astream("Go.") as run:
                count = sum([isinstance(event, HistoryReplaced) async for event in run])
                return count, run.messages

        replaced, messages = asyncio.run(read())
    assert 0 < replaced < 10
    assert max(sizes) < 60_000
    assert penstock.check(messages) == []


def pictures(count: int) -> list[Message]:
    history = [user("Task.")]
    for number in range(count):
        one = penstock.ToolCall(f"c{number}", "look", {})
        history += [assistant(one), tool_results(result(one, image(b"png")))]
    return history


def test_images_in_old_results_are_left_out_before_anything_is_removed() -> None:
    after = compacted(pictures(10), compact(6000, target=0.5, keep=1))
    assert len(after) == 21
    kinds = [type(message.results[0].content[0]).__name__ for message in after if message.results]
    assert kinds == ["Text"] * 8 + ["Image"] * 2
    assert after[2].results[0].text == "[1 images or files were left out]"


def test_the_images_of_the_last_results_stay_if_even_the_newest_are_shortened() -> None:
    call_ = penstock.ToolCall("c", "look", {})
    last = tool_results(result(call_, "x" * 90_000, image(b"png")))
    after = compacted([*pictures(3), assistant(call_), last, user("Well?")], compact(1500))
    media = [[type(part).__name__ for part in message.results[0].content] for message in after if message.results]
    assert media == [["Text"], ["Text"], ["Text"], ["Text", "Image"]]
    assert len(after[-2].results[0].text) < 4000


def test_what_was_joined_to_a_summary_goes_into_the_next_one() -> None:
    """The first message does not grow by a message of the user at each compaction."""
    hook = compact(1000, keep=2)
    history = [user("Task.")]
    for number in range(200):
        history += [assistant("I see. " * 20), user(f"{number}. " + "And then? " * 20)]
        history = compacted(history, hook)
        assert estimate_tokens(history) <= 1000
    assert [part.text for part in history[0].parts][:2] == ["Task.", f"{SUMMARY}{NOTE}"]  # type: ignore[union-attr]
    assert len(history[0].parts) <= 3


def looping(count: int) -> Any:
    """A script that calls a tool in this many steps, with other words each time."""
    return [*(Reply(f"{number}. " + "words " * 40, call("look", {"n": number})) for number in range(count)), "Done."]


@sync_and_async
def test_if_what_must_stay_is_too_long_summaries_are_rare_and_it_is_reported_once(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    def look(n: int) -> str:
        """Look."""
        return "ok"

    summaries = Scripted(lambda request: "All fine.")
    hook = compact(1000, model=Model("openai-compatible:small", via=summaries), keep=2)
    agent = Agent(Model("openai-compatible:m", via=Scripted(looping(40))), [look], before_step=hook)
    prompt = "The task. " * 500
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")(prompt), mode)
    assert run.finish_reason == "answered"
    assert 2 <= len(summaries.requests) <= 8  # 40 steps have about 3,000 tokens, and each summary replaces 500
    assert sum(isinstance(event, HistoryReplaced) for event in events) == len(summaries.requests)
    assert estimate_tokens(run.messages) < estimate_tokens([user(prompt)]) + 1000
    assert caplog.text.count("cannot keep a history below its limit") == 1


def test_a_result_that_was_shortened_is_not_shortened_again() -> None:
    hook = compact(500, keep=1, max_result=200)
    once = compacted([user("Task. " * 1000), *turns(3)[1:]], hook)
    assert compacted(once, hook) == once
    assert all(len(one.text) <= 200 for message in once[:-1] for one in message.results)


@sync_and_async
def test_the_tokens_of_a_summary_count_for_the_run_also_after_a_rebuild(mode: str) -> None:
    def look(n: int) -> str:
        """Look."""
        return "x" * 400

    summaries = Scripted(lambda request: "All fine.")
    hook = compact(500, model=Model("openai-compatible:small", via=summaries), keep=1)
    model, store = Model("openai-compatible:m", via=Scripted(looping(12))), MemoryStore()
    agent = Agent(model, [look], before_step=[hook, stop_after(steps=11)], name="a")
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode)
    answers = [event.usage.input_tokens for event in events if isinstance(event, StepEnd) and event.usage]
    spent = [start.changes.usage for start in events if isinstance(start, StepStart) and start.changes.usage]
    assert len(spent) > 2
    assert run.usage.input_tokens > sum(answers)
    log = [event for _, _, event in read_log(store, "r")]
    assert rebuild(log, {}).usage == run.usage
    at = max(at for at, event in enumerate(log) if isinstance(event, StepEnd))
    before = rebuild(log[: at + 1], {}).usage
    assert before.input_tokens == sum(answers) + sum(one.input_tokens for one in spent)


def test_a_hook_counts_the_tokens_of_its_own_requests() -> None:
    seen = list[int]()

    def first(step: Step) -> Step:
        return step.add_usage(penstock.Usage(100, 10)).add_usage(None).add_usage(penstock.Usage(5, 5))

    def second(step: Step) -> Step:
        seen.append(step.usage.input_tokens)
        return step.stop("enough")

    agent = Agent(Model("openai-compatible:m", via=Scripted([])), before_step=[first, second])
    result = agent.run("Go.")
    assert (result.usage.input_tokens, result.usage.output_tokens, seen) == (105, 15, [105])
    with pytest.raises(UsageError, match="takes the usage of a response, not 5"):
        step_of([user("Go.")]).add_usage(5)  # type: ignore[arg-type]


def test_a_transcript_is_bounded() -> None:
    assert len(transcript(turns(1000, 5000))) < MAX_TRANSCRIPT + 10


# -- tool search -------------------------------------------------------------------------------------------------------


def many(count: int = 300) -> list[Tool[..., Any]]:
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}}
    kinds = ["invoice", "customer", "parcel"]
    return [
        Tool.from_schema(f"{kinds[at % 3]}_{at}", f"Shows {kinds[at % 3]} number {at}.", schema, lambda amount=0: "ok")
        for at in range(count)
    ] + [Tool.from_schema("sendEmail", "Sends a letter to a person.", {"type": "object"}, lambda: "sent")]


@sync_and_async
def test_found_tools_join_the_next_step(mode: str) -> None:
    search = ToolSearch(many(), limit=4)
    script = Scripted([
        Reply(call("search_tools", {"query": "parcel 41"})), Reply(call("parcel_41", {})),
        Reply(call("customer_40", {})), "Done.",
    ])  # fmt: skip
    agent = Agent(Model("openai-compatible:m", via=script), search.tools, before_step=search)
    result = agent.run("Go.") if mode == "sync" else asyncio.run(agent.arun("Go."))
    assert [tool.name for tool in script.requests[0].tools] == ["search_tools"]
    names = [tool.name for tool in script.requests[1].tools]
    assert (names[0], len(names), "parcel_41" in names) == ("search_tools", 5, True)
    texts = [one.text for message in result.messages for one in message.results]
    assert texts[1] == "ok"
    assert "customer_40" in texts[2]
    assert "ok" not in texts[2]  # it was not found, so it did not run


@sync_and_async
def test_found_tools_survive_a_shortened_history_and_a_stored_run(mode: str) -> None:
    def forget(step: Step) -> Step | None:
        return step.replace_history([user("Go on.")]) if step.number > 2 else None

    pay = Tool.from_schema("pay", "Pays a bill.", {"type": "object"}, lambda: "paid", approval=True)
    search = ToolSearch([*many(), pay], limit=4)
    script = Scripted([
        Reply(call("search_tools", {"query": "pay a bill"})), Reply(call("sendEmail", {})), Reply(call("pay", {})),
        Reply(call("pay", {})), "Done.",
    ])  # fmt: skip
    agent = Agent(Model("openai-compatible:m", via=script), search.tools, before_step=[forget, search])
    _, paused = drive(streaming(agent), mode)
    assert paused.finish_reason == "paused"
    _, run = drive(resuming(agent, paused.dump()), mode, answer_with(True))
    assert run.output == "Done."
    assert ["pay" in [tool.name for tool in request.tools] for request in script.requests] == [False, *[True] * 4]


def test_the_names_in_a_shortened_result_of_a_search_are_read() -> None:
    search = ToolSearch(many())
    text = '[{"name":"parcel_2","description":"\\"name\\":\\"parcel_5\\""},{"name":"parcel_8","descr\n[… 9 characters'
    found = tool_results(result(penstock.ToolCall("c", "search_tools", {}), text))
    names = [tool.name for tool in search(step_of([user("Go."), found])).tools]
    assert names == ["search_tools", "parcel_2", "parcel_8"]


@pytest.mark.parametrize(
    ("query", "first"),
    [("emails", "sendEmail"), ("letter", "sendEmail"), ("number 30 of invoices", "invoice_30"), ("SEND", "sendEmail")],
)  # fmt: skip
def test_the_search_ranks_by_the_words_of_names_and_descriptions(query: str, first: str) -> None:
    [search] = ToolSearch(many(), limit=1).tools[:1]
    assert search.function(query=query)[0]["name"] == first


def test_a_search_without_a_match_finds_nothing() -> None:
    assert ToolSearch(many()).tools[0].function(query="zebra !?") == []


def test_tools_of_others_stay() -> None:
    def other() -> str:
        """Something else."""
        return ""

    search = ToolSearch(many(3))
    script = Scripted(["Hi."])
    agent = Agent(Model("openai-compatible:m", via=script), [*search.tools, other], before_step=search)
    agent.run("Go.")
    assert [tool.name for tool in script.requests[0].tools] == ["search_tools", "other"]


# -- prompt caching ----------------------------------------------------------------------------------------------------


def cached_bodies(name: str, **options: Any) -> list[Any]:
    def look(n: int) -> str:
        """Look."""
        return "sunny"

    script = Scripted([*(Reply(call("look", {"n": at})) for at in range(3)), "Done."], strict=True)
    agent = Agent(Model(name, via=script), [look], instructions="Be brief.", **options)
    assert agent.run("Go.").output == "Done."
    return [request.body for request in script.requests]


def points_in(value: Any) -> int:
    """How many cache points a body has."""
    if isinstance(value, list):
        return sum(map(points_in, value))
    return (
        sum(name == "cachePoint" or points_in(inner) for name, inner in value.items()) if isinstance(value, dict) else 0
    )


def test_cache_points_follow_the_loop_and_the_last_one_is_found_again() -> None:
    bodies = cached_bodies("bedrock:anthropic.claude-sonnet-5", cache="1h")
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    for body, before in zip(bodies[1:], bodies, strict=False):
        assert points_in(body) == 4  # the most that are allowed
        assert (body["system"][-1], body["toolConfig"]["tools"][-1]) == (point, point)
        users = [message for message in body["messages"] if message["role"] == "user"]
        assert [message["content"][-1] == point for message in users[-2:]] == [True, True]
        assert points_in(users[:-2]) == 0
        assert users[-2] == [message for message in before["messages"] if message["role"] == "user"][-1]


def test_anthropic_moves_its_breakpoint_itself() -> None:
    bodies = cached_bodies("anthropic:claude-sonnet-5", before_step=lambda step: step.replace(cache=step.number < 4))
    assert [body.get("cache_control") for body in bodies] == [{"type": "ephemeral"}] * 3 + [None]


@pytest.mark.parametrize("name", ["openai:m", "openai-compatible:m", "gemini:m", "cohere:m", "ollama:m"])
def test_nobody_else_is_asked_to_cache(name: str) -> None:
    assert cached_bodies(name, cache=True) == cached_bodies(name)


def test_a_wrong_cache_is_refused() -> None:
    with pytest.raises(UsageError, match="cache must be True, False, '5m' or '1h', not '2h'"):
        cached_bodies("anthropic:m", cache="2h")


# -- stop conditions ---------------------------------------------------------------------------------------------------


def test_stop_after_steps_and_on_a_condition() -> None:
    step = step_of([user("Go.")], number=3)
    assert stop_after(steps=3)(step).stopped is None
    assert stop_after(steps=2)(step).stopped == "the run took 2 steps"
    assert stop_when(lambda step: step.number == 3)(step).stopped == "a stop condition was met"
    assert stop_when(lambda step: "because")(step).stopped == "because"


@sync_and_async
@pytest.mark.parametrize("answer", [False, True, "enough of it"])
def test_a_stop_condition_may_be_async(mode: str, answer: Any) -> None:
    async def is_enough(step: Step) -> Any:
        await asyncio.sleep(0)
        return answer if step.number == 2 else None

    def look(n: int) -> str:
        """Look."""
        return "ok"

    agent = Agent(Model("openai-compatible:m", via=Scripted(looping(1))), [look], before_step=stop_when(is_enough))
    _, run = drive(streaming(agent), mode)
    why = answer if isinstance(answer, str) else "a stop condition was met"
    assert (run.finish_reason, run.why) == (("stopped", why) if answer else ("answered", ""))


def test_a_tool_that_failed_does_not_stop() -> None:
    one = penstock.ToolCall("c", "look", {})
    for is_error in (False, True):
        step = step_of([user("Go."), assistant(one), tool_results(result(one, "hm", is_error=is_error))])
        assert (stop_after(tool="look")(step).stopped is None) is is_error


def test_a_message_after_the_results_does_not_hide_that_a_tool_has_returned() -> None:
    one = penstock.ToolCall("c", "look", {})
    called = [user("Go."), assistant(one), tool_results(result(one, "sunny"))]
    assert stop_after(tool="look")(step_of([*called, user("And hurry.")])).stopped == "the tool look has returned"
    assert stop_after(tool="look")(step_of([*called, assistant("Sunny."), user("Thanks.")])).stopped is None


@sync_and_async
def test_a_run_that_got_a_message_before_its_last_tool_returned_ends_and_says_why(mode: str) -> None:
    def look() -> str:
        return "sunny"

    def hurry(running: Any, event: Any) -> None:
        if isinstance(event, penstock.ToolCallStart):
            assert running.why == ""
            running.say("And hurry.")

    script = Scripted([Reply(call("look", {})), "Too late."])
    agent = Agent(Model("openai-compatible:m", via=script), [look], before_step=stop_after(tool="look"))
    _, running = drive(streaming(agent), mode, hurry)
    assert (running.finish_reason, running.why) == ("stopped", "the tool look has returned")
    assert running.messages[-1].text == "And hurry."


@pytest.mark.parametrize(
    "make", [lambda: stop_after(), lambda: fallback(), lambda: compact(0), lambda: ToolSearch([], limit=0)]
)
def test_hooks_without_a_sense_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
