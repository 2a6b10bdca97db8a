"""Mistakes that used to pass without a word: blocking calls in async code, options without effect, a wrong dialect."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Agent, AgentStreamer, BadRequestError, Model, Text, ToolCall, Unknown, UsageError
from penstock.dialects.prompt import prompts
from penstock.model import event_loop
from penstock.testing import Loopback, Scripted
from tests.budget import sample
from tests.cases import each
from tests.scripted_runs import sync_and_async

# -- blocking calls in async code --------------------------------------------------------------------------------------


def model() -> Model:
    return Model("openai-compatible:m", via=Scripted(lambda request: "Hi."))


def run_agent() -> None:
    Agent(model()).run("Go.")


def stream_agent() -> None:
    with Agent(model()).stream("Go.") as run:
        for _ in run:
            pass


def next_of_agent() -> None:
    with Agent(model()).stream("Go.") as run:
        next(run)


def complete() -> None:
    model().complete("Go.")


def stream_model() -> None:
    with model().stream("Go.") as stream:
        for _ in stream:
            pass


def iterate_model() -> None:
    for _ in model().stream("Go."):
        pass


def drive_run() -> None:
    runs = penstock.Runs(penstock.log.memory(), {"helper": Agent(model(), name="helper")})
    assert runs.drive(runs.start("helper", "Go.")).state == "over"


BLOCKING: dict[Callable[[], None], str] = {
    run_agent: "await agent.arun()", stream_agent: "agent.astream()", next_of_agent: "agent.astream()",
    drive_run: "await runs.adrive()",
    complete: "await model.acomplete()", stream_model: "model.astream()", iterate_model: "model.astream()",
}  # fmt: skip
every_call = pytest.mark.parametrize("blocking", BLOCKING, ids=lambda blocking: blocking.__name__)


@pytest.fixture(autouse=True)
def nobody_was_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "_warned", set())


@every_call
def test_a_blocking_call_in_a_coroutine_warns_once_and_names_the_async_one(blocking: Callable[[], None]) -> None:
    async def main() -> None:
        blocking()
        blocking()
        run_agent()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
    [warning] = [one for one in caught if issubclass(one.category, RuntimeWarning)]
    assert f"use `{BLOCKING[blocking]}`" in str(warning.message)
    assert warning.filename == __file__


@every_call
def test_a_blocking_call_elsewhere_does_not_warn(blocking: Callable[[], None]) -> None:
    async def in_a_thread() -> None:
        await asyncio.to_thread(blocking)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocking()
        asyncio.run(in_a_thread())


def test_in_a_notebook_a_blocking_call_works_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = types.ModuleType("IPython")
    notebook.get_ipython = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)

    async def cell() -> str:
        drive_run()
        return Agent(model()).run("Go.").output

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(cell()) == "Hi."


def test_the_warning_reaches_a_user() -> None:
    code = """
import asyncio, penstock
from penstock.testing import Scripted

async def main():
    agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(lambda request: "Hi.")))
    print(agent.run("Go.").output, agent.run("Go.").output)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Hi. Hi.\n"
    assert done.stderr.count("RuntimeWarning: agent.run() in async code blocks the event loop") == 1


# -- rescue beside calls -----------------------------------------------------------------------------------------------


def look(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@pytest.mark.parametrize("rescue", [True, ["hermes"]])
def test_rescue_beside_calls_is_refused(rescue: Any) -> None:
    for make in (
        lambda: Agent(model(), [look], calls="xml", rescue=rescue),
        lambda: AgentStreamer(model(), [look], rescue=rescue),
        lambda: model().complete("Go.", tools=[look], calls="hermes", rescue=rescue),
    ):
        with pytest.raises(UsageError, match="remove rescue, or calls"):
            make()
    assert Agent(model(), [look], calls="xml", rescue=False).run("Go.").output == "Hi."


# -- a wrong dialect ---------------------------------------------------------------------------------------------------

HERMES = '<tool_call>\n{"name": "look", "arguments": {"city": "Rome"}}\n</tool_call>'
XML = '<function_calls>\n<invoke name="look">\n<parameter name="city">Rome</parameter>\n</invoke>\n</function_calls>'
OTHERS = {
    "xml": [HERMES, '{"name": "look", "parameters": {"city": "Rome"}}', '[look(city="Rome")]'],
    "hermes": [XML, '<|python_tag|>{"name": "look", "parameters": {"city": "Rome"}}'],
}


def notes(turn: Any) -> list[str]:
    return [one.note for one in turn.unknown if "dialect" in one.note]


@sync_and_async
@pytest.mark.parametrize(
    ("calls", "text"), [(calls, text) for calls, texts in OTHERS.items() for text in texts], ids=lambda text: text[:12]
)
def test_a_call_in_another_dialect_is_reported(calls: str, text: str, mode: str) -> None:
    asked = Model("openai-compatible:m", via=Scripted(lambda request: f"I look.\n{text}"))
    if mode == "sync":
        turn = asked.complete("Go.", tools=[look], calls=calls)
    else:
        turn = asyncio.run(asked.acomplete("Go.", tools=[look], calls=calls))
    [note] = notes(turn)
    assert note.startswith("the text looks like a call in the dialect ")
    assert (turn.text, turn.tool_calls) == (f"I look.\n{text}", [])


@each("calls", sorted(prompts()))
def test_a_call_in_any_other_dialect_is_noticed(calls: str) -> None:
    call = ToolCall("c1", "look", {"city": "Rome"})
    for other, prompt in sample(sorted(prompts().items()), 7):
        asked = Model("openai-compatible:m", via=Scripted([f"I look.\n{prompt.calls([call])}"]))
        turn = asked.complete("Go.", tools=[look], calls=calls)
        assert turn.tool_calls or turn.invalid_calls or notes(turn), other


def test_an_agent_reports_it_before_the_end_of_the_response() -> None:
    agent = Agent(Model("openai-compatible:m", via=Scripted(lambda request: HERMES)), [look], calls="xml")
    with agent.stream("Go.") as run:
        events = list(run)
    [at] = [number for number, event in enumerate(events) if isinstance(event, Unknown)]
    assert events[at].raw == {"dialect": "hermes", "name": "look", "arguments": {"city": "Rome"}}  # type: ignore[union-attr]
    assert [event.type for event in events[at:]] == ["unknown", "finish", "step_end", "done"]
    assert "".join(event.text for event in events if isinstance(event, Text)) == HERMES


@pytest.mark.parametrize("text", [
    XML, "It is sunny.", HERMES.replace("look", "other"), f"Write it so:\n```\n{HERMES}\n```", f"{XML}\n{HERMES}",
    'Say {"city": "Rome"} or look(city).',
])  # fmt: skip
def test_nothing_is_reported_for_other_texts(text: str) -> None:
    asked = Model("openai-compatible:m", via=Scripted(lambda request: text))
    assert notes(asked.complete("Go.", tools=[look], calls="xml")) == []


# -- a mistake in a script ---------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("step", [{"no": "reply"}, KeyError("oops")], ids=["no step", "an exception"])
def test_a_mistake_in_a_script_is_not_retried(step: Any, mode: str) -> None:
    requests: list[Any] = []

    def broken(request: Any) -> Any:
        requests.append(request)
        if isinstance(step, Exception):
            raise step
        return step

    with Loopback(broken) as server:
        for asked in (
            Model("openai-compatible:m", via=Scripted(broken)),
            Model("openai-compatible:m", base_url=server.url),
        ):
            requests.clear()
            with pytest.raises(BadRequestError, match="the script failed"):
                asked.complete("Go.") if mode == "sync" else asyncio.run(asked.acomplete("Go."))
            assert len(requests) == 1


# -- a decoder that is fed after its end -------------------------------------------------------------------------------


@each("item", [b"data: {}\n\n", "data: {}\n\n", {"choices": []}])
def test_a_closed_decoder_refuses_more_instead_of_dropping_it(item: Any) -> None:
    decoder = penstock.Decoder("openai-chat")
    decoder.close()
    with pytest.raises(UsageError, match="this decoder is closed"):
        decoder.feed_any(item)
