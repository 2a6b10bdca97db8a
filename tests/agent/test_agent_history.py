"""The history that a run begins with, holds at any moment, and leaves."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from penstock import (
    Agent,
    Context,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallStart,
    ToolEnd,
    ToolProgress,
    ToolStart,
    UsageError,
    tool,
)
from penstock.messages import user
from penstock.testing import Reply, Scripted, call, say
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    SOON,
    Bench,
    check_history,
    drive,
    every_wire,
    made,
    model_on,
    on,
    run_of,
    script,
    streaming,
    sync_and_async,
)

# -- what it begins with -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("",), (None, []), ("", [])])
def test_a_run_without_prompt_and_messages_is_an_error(arguments: Any) -> None:
    for start in (made([]).stream, made([]).astream, made([]).run):
        with pytest.raises(UsageError, match="nothing to answer"):
            start(*arguments)
    with pytest.raises(UsageError, match="nothing to answer"):
        asyncio.run(made([]).arun(*arguments))


@sync_and_async
def test_a_prompt_after_a_user_message_joins_it(mode: str) -> None:
    result = run_of(made([Reply("Hi.")]), mode, "And Oslo?", [user("What of Rome?")])
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert [part.text for part in result.messages[0].parts if isinstance(part, Text)] == ["What of Rome?", "And Oslo?"]
    result = run_of(made([Reply("Hi.")]), mode, "", [user("What of Rome?")])
    assert [message.text for message in result.messages] == ["What of Rome?", "Hi."]


def test_a_run_continues_from_the_history_of_another() -> None:
    _, running = drive(streaming(made(script(), *Bench().tools)), "sync")
    result = made([Reply("Good bye.")], *Bench().tools).run("And now?", running.messages)
    assert (len(result.messages), result.output) == (len(running.messages) + 2, "Good bye.")


# -- at any moment -----------------------------------------------------------------------------------------------------


@sync_and_async
@every_wire
def test_the_history_is_valid_at_every_event_and_reading_it_changes_nothing(wire: str, mode: str) -> None:
    bench, is_seen = Bench(), threading.Event()
    texts: set[str] = set()

    def on_event(running: Any, event: StreamEvent) -> None:
        before = running.dump()
        messages = running.messages
        check_history(messages)
        texts.update(result.text for message in messages for result in message.results)
        if isinstance(event, ToolProgress):
            is_seen.set()
        assert mode == "sync" or running.dump() == before

    @tool
    def slow(context: Context[Any]) -> str:
        """Go on until it was seen to run."""
        context.report("started")
        is_seen.wait(SOON)
        return "slow"

    replies = [Reply(say("Hm."), call("slow"), call("write", {"text": "a"})), *script()[1:]]
    agent = Agent(model_on(wire, via=Scripted(replies)), [slow, *bench.tools])
    _, running = drive(streaming(agent), mode, on_event)
    assert running.output == "All done."
    assert any("still running" in text for text in texts)
    assert not any("still running" in result.text for message in running.messages for result in message.results)


# -- ids ---------------------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic", "cohere", "bedrock"])
def test_ids_that_a_provider_repeats_are_made_unique(wire: str, mode: str) -> None:
    names: dict[str, list[str]] = {}

    def note(id: str, *_: Any) -> None:
        names.setdefault("start", []).append(id)

    once = Reply(call("write", {"text": "a"}, id="c1"), call("look", {"city": "Rome"}, id="c2"))
    agent = on(wire, [once, once, Reply("Done.")], *Bench().tools, on_tool_start=note)
    events, running = drive(streaming(agent), mode)
    ids = {"c1", "c2", "c1_2", "c2_2"}
    for kind in (ToolCallStart, ToolCall):
        assert {event.id for event in events if isinstance(event, kind)} == ids
    assert {event.call_id for event in events if isinstance(event, ToolStart)} == ids == set(names["start"])
    assert [call.id for message in running.messages for call in message.tool_calls] == ["c1", "c2", "c1_2", "c2_2"]
    assert Counter(event.result.call_id for event in events if isinstance(event, ToolEnd)) == Counter(ids)
    check_history(running.messages)
    again = on(wire, [once, Reply("Done.")], *Bench().tools)
    later = run_of(again, mode, "And now?", running.messages)
    assert [call.id for call in later.messages[-3].tool_calls] == ["c1_3", "c2_3"]
