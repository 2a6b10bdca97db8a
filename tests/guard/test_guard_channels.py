r"""The channels by which a response can show a word, and the ways to spell it: a forbidden one gets through none.

The channels are the rows of the table in docs/guarding.md. Each is tried with the word as it is, with JSON escapes in
the frame, with JSON escapes in JSON that Penstock decodes (`\u0046`), byte by byte, and one character per frame. The
word ends with a character that JSON spells as a surrogate pair.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import penstock
from penstock import Agent, Guard, Model, OutputError, Retries, StopRun, Tool, tool
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.events import RunStart, encode
from penstock.testing import Raw, Scripted
from penstock.tracing import Tracing
from tests.scripted_runs import drive, sync_and_async

DOCS = Path(__file__).parents[2] / "docs" / "guarding.md"
WORD = "FORBIDDEN🦓"
MASK = "[left out]"
CHAT, COHERE, RESPONSES = "openai-compatible:m", "cohere:m", "openai:m"


def escaped(text: str, spell: str = "04x") -> str:
    r"""The text as JSON escapes: \u0046…, characters beyond U+FFFF as two."""
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:{spell}}" for at in range(0, len(units), 2))


IN_JSON = [WORD, escaped(WORD), escaped(WORD, "04X"), f"FO{escaped('RBIDDEN')}🦓", f"{WORD[:-1]}{escaped(WORD[-1])}"]
"""The spellings of the word in JSON that is the text of another JSON string."""

# -- responses ---------------------------------------------------------------------------------------------------------


def delta(reason: str | None = None, choice: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": choice, "delta": fields, "finish_reason": reason}]}


def called(arguments: str, name: str = "look", id: str = "c1") -> dict[str, Any]:
    return delta(tool_calls=[{"index": 0, "id": id, "type": "function",
                              "function": {"name": name, "arguments": arguments}}])  # fmt: skip


def calls(arguments: str, **options: str) -> list[Any]:
    return [called(arguments, **options), delta("tool_calls"), "[DONE]"]


def says(text: str, **fields: Any) -> list[Any]:
    return [delta(content=text, **fields), delta("stop"), "[DONE]"]


ANSWER = says("Done.")


class Channel(msgspec.Struct, frozen=True):
    """A channel: the frames of a response with a spelling of the word, and what the agent needs for it.

    `is_checked` if the guard sees the word; otherwise it is replaced or left out. `status` is that of an error
    response, which is sent instead.
    """

    frames: Callable[[str], list[Any]]
    options: dict[str, Any] = {}
    model: str = CHAT
    is_json: bool = False
    is_checked: bool = True
    has_call_guard: bool = False
    prompt: str = "Go."
    status: int = 200
    is_retried: bool = False


@tool(read_only=True)
def look(city: str) -> str:
    """Look at a city."""
    return "sunny"


def run_shell(**fields: Any) -> str:
    """Run a command."""
    return "ran"


ANY = Tool.from_schema("any", "Take anything.", {"type": "object"}, lambda **values: "taken", read_only=True)
VALUES = {"type": "object", "additionalProperties": {"type": "string"}}
NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "c0", "status": "completed"}


def hermes(arguments: str) -> str:
    return f'<tool_call>{{"name": "look", "arguments": {arguments}}}</tool_call>'


def shell(word: str) -> list[Any]:
    item = {**SHELL, "action": {"commands": [word], "timeout_ms": None, "max_output_length": None}}
    done = {"id": "r", "status": "completed", "output": [item], "model": "m"}
    return [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def reasoned(word: str) -> list[Any]:
    item = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": word}]}
    done = {"id": "r", "status": "completed", "output": [item], "model": "m"}
    return [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def planned(word: str) -> list[Any]:
    return [
        {"type": "message-start", "id": "m", "delta": {"message": {"role": "assistant"}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": word}}},
        {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}},
    ]


def named(model: str) -> list[Any]:
    return [{**frame, "model": model} if isinstance(frame, dict) else frame for frame in ANSWER]


JSON_OUTPUT = {"output": VALUES}
QUOTED = '{"city": "a long way to %s"}'

CHANNELS: dict[str, Channel] = {
    "text": Channel(lambda word: says(f"A {word} is here.")),
    "text of another choice": Channel(lambda word: [delta(choice=1, content=word), delta("stop", 1), *ANSWER]),
    "reasoning": Channel(lambda word: [delta(reasoning_content=word), *ANSWER]),
    "a refusal": Channel(lambda word: [delta(refusal=word), delta("stop"), "[DONE]"]),
    "text that is only in vendor state": Channel(planned, model=COHERE),
    "the copy of reasoning in vendor state": Channel(reasoned, model=RESPONSES),
    "a value of structured output": Channel(lambda word: says(f'{{"a": "{word}"}}'), JSON_OUTPUT, is_json=True),
    "a key of structured output": Channel(lambda word: says(f'{{"{word}": "a"}}'), JSON_OUTPUT, is_json=True),
    "structured output as arguments of a final tool": Channel(
        lambda word: calls(f'{{"a": "{word}"}}', name="final_output"),
        {"output": VALUES, "output_form": "tool"}, is_json=True,
    ),
    "structured output within other text": Channel(
        lambda word: says(f'Here it is:\n```json\n{{"a": "{word}"}}\n```'), {"output": VALUES, "output_form": "prompt"},
        is_json=True,
    ),
    "what is wrong with an output": Channel(lambda word: says(f'{{"n": "{word}"}}'), {"output": NUMBERS}, is_json=True),
    "a value of arguments": Channel(
        lambda word: calls(f'{{"city": "{word}"}}'), {"partial_arguments": True}, is_json=True, has_call_guard=True,
    ),
    "a key of arguments": Channel(
        lambda word: calls(f'{{"a": [{{"{word}": 1}}]}}', name="any"), is_json=True, has_call_guard=True,
    ),
    "the arguments of a call in the text": Channel(
        lambda word: says(hermes(f'{{"city": "{word}"}}')), {"calls": "hermes"}, is_json=True, has_call_guard=True,
    ),
    "a call of a tool that the provider defines": Channel(
        shell, {"vendor": {"type": "shell"}}, model=RESPONSES, has_call_guard=True,
    ),
    "the arguments of a damaged call": Channel(
        lambda word: calls(f'{{"city": "{word}", "b": '), {"partial_arguments": True}, is_json=True,
        has_call_guard=True,
    ),
    "repaired arguments": Channel(
        lambda word: calls(f'{{"city": "{word}"}}{{"city": "{word}"}}'), {"run_repaired": True}, is_json=True,
        has_call_guard=True,
    ),
    "the explanation of a damaged call": Channel(
        lambda word: calls(f'{{"{word}": 1, "{word}": 2}}', name="any"), is_json=True, has_call_guard=True,
    ),
    "a damaged call in the text": Channel(
        lambda word: says(hermes(f'{{"city": "{word}" oh}}')), {"calls": "hermes", "partial_arguments": True},
        is_json=True,
    ),
    "a quoted call in the text": Channel(
        lambda word: says(hermes(QUOTED % word)), {"calls": "hermes"}, is_json=True, prompt=hermes(QUOTED % WORD),
    ),
    "the id of a call": Channel(lambda word: calls('{"city": "Rome"}', id=f"call_{word}"), is_checked=False),
    "the name of a tool that is not declared": Channel(lambda word: calls('{"city": "Rome"}', name=word)),
    "the name of a tool in a damaged call": Channel(lambda word: calls('{"city": ', name=word)),
    "the provider's reason for the end": Channel(lambda word: [delta(content="Hm."), delta(word), "[DONE]"]),
    "the provider's explanation of the end": Channel(
        lambda word: [{"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm."}]},
                                       "finishReason": "SAFETY", "finishMessage": word}]}],
        model="google:m",
    ),
    "the name of the model that answered": Channel(lambda word: named(f"m-{word}")),
    "an error in the stream (message, code)": Channel(
        lambda word: [delta(content="Hm."), {"error": {"message": f"no {word}", "code": f"no_{word}", "type": word}}],
    ),
    "an error response (message, code, body)": Channel(
        lambda word: [{"error": {"message": f"no {word}", "code": f"no_{word}", "type": word, "param": word}}],
        status=400,
    ),
    "the reason of a retry": Channel(
        lambda word: [delta(content="Hm."), {"error": {"message": f"no {word}", "code": "server_error"}}],
        is_checked=False, is_retried=True,
    ),
    "raw data (`Unknown.raw`, `Usage.raw`)": Channel(
        lambda word: [{**delta(content="Hm."), "extra": {word: word}},
                      {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3, "tier": word, word: 1}},
                      *ANSWER],
        is_checked=False,
    ),
}  # fmt: skip


# -- how a response is spelled and sent --------------------------------------------------------------------------------


def one_by_one(frame: Any) -> Iterator[Any]:
    """The frame of a text or of arguments as frames with one character each."""
    choice = frame["choices"][0] if isinstance(frame, dict) and frame.get("choices") else {}
    part = choice.get("delta", {})
    field = next((name for name in ("content", "reasoning_content", "refusal") if part.get(name)), "")
    if field:
        for character in part[field]:
            yield {**frame, "choices": [{**choice, "delta": {field: character}}]}
    elif part.get("tool_calls"):
        [call] = part["tool_calls"]
        yield delta(tool_calls=[{**call, "function": {**call["function"], "arguments": ""}}])
        for character in call["function"]["arguments"]:
            yield delta(tool_calls=[{"index": 0, "function": {"arguments": character}}])
    else:
        yield frame


def spelled(frame: Any, is_escaped: bool) -> bytes:
    text = json.dumps(frame, ensure_ascii=is_escaped)
    return (text.replace("FORBIDDEN", escaped("FORBIDDEN")) if is_escaped else text).encode()


WAYS = ["plain", "escaped frames", "bytes", "characters", "characters in escaped frames"]


class Sent(Scripted):
    """Sends the response of a channel, and then answers."""

    def __init__(self, channel: Channel, word: str, way: str) -> None:
        frames, is_escaped = channel.frames(word), "escaped" in way
        if "characters" in way and channel.model == CHAT and channel.status == 200:
            frames = [part for frame in frames for part in one_by_one(frame)]
        lines = [frame.encode() if isinstance(frame, str) else spelled(frame, is_escaped) for frame in frames]
        body = b"".join(b"data: %b\n\n" % line for line in lines) if channel.status == 200 else lines[0]
        kind = "text/event-stream" if channel.status == 200 else "application/json"
        answer = b"".join(b"data: %b\n\n" % spelled(frame, False) for frame in ANSWER[:-1]) + b"data: [DONE]\n\n"
        end = [Raw(answer)] * 5
        super().__init__(
            [Raw(body, kind, channel.status), *end], cuts="bytes" if way == "bytes" or channel.is_retried else None
        )


# -- what anybody can see ----------------------------------------------------------------------------------------------


def strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield from strings(str(key))
                yield from strings(item)
        case list() | tuple():
            for item in value:
                yield from strings(item)
        case _:
            pass


ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def shows_word(texts: Iterator[str]) -> bool:
    r"""Whether a text has the word, or JSON that decodes to it."""
    for text in texts:
        plain = ESCAPE.sub(lambda code: chr(int(code[1], 16)), text.replace("\\\\", "\\"))
        plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if "FORBIDDEN" in text or "FORBIDDEN" in plain:
            return True
    return False


class Seen:
    """Everything that a run shows to its reader, its callbacks, its log, its traces and its provider."""

    def __init__(self, channel: Channel) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        is_word_said = WORD in channel.prompt  # what the user says is not checked
        self.tracing = Tracing(tracer_provider=provider, content=not is_word_said)
        self.texts: list[str] = []
        self.records: list[str] = []
        self._pieces: dict[Any, list[str]] = {}

    def add_event(self, event: Any) -> None:
        """Add an event, and its piece to those of its block: a word may be divided."""
        content = msgspec.json.decode(encode(event))
        if event.type == "done":
            content["messages"] = content["messages"][1:]
        self.texts += strings(content)
        piece = getattr(event, "text", getattr(event, "piece", None))
        if isinstance(piece, str):
            place = event.type, getattr(event, "block", None), getattr(event, "path", None), getattr(event, "choice", 0)
            self._pieces.setdefault(place, []).append(piece)

    def add_run(self, run: Any, script: Scripted) -> None:
        try:
            self.texts += strings(msgspec.to_builtins(run.output))
        except OutputError as error:
            self.texts += [str(error), error.text]
        self.texts += strings(msgspec.to_builtins(run.partial))
        self.texts += strings([json.loads(msgspec.json.encode(message)) for message in run.messages[1:]])
        if run.error is not None:
            self.texts += strings(msgspec.to_builtins({**vars(run.error), "": str(run.error)}))
        for request in script.requests[1:]:
            sent = request.body.get("messages", request.body.get("input"))
            self.texts += strings([message for message in sent if message.get("role") not in ("user", "system")])

    def add_spans(self) -> None:
        for span in self.exporter.get_finished_spans():
            events = [(event.name, dict(event.attributes or {})) for event in span.events]
            self.texts += strings([span.name, dict(span.attributes or {}), span.status.description, events])

    @property
    def shows_word(self) -> bool:
        self.add_spans()
        pieces = ("".join(pieces) for pieces in self._pieces.values())
        return shows_word(iter([*self.texts, *pieces, *self.records]))


class Records(logging.Handler):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self._seen = seen

    def emit(self, record: logging.LogRecord) -> None:
        self._seen.records.append(record.getMessage())


def run_channel(channel: Channel, word: str, way: str, guard: Any, mode: str) -> tuple[Any, Seen]:
    """A run whose first response shows the word in a channel."""
    seen, script, options = Seen(channel), Sent(channel, word, way), dict(channel.options)
    tools: list[Any] = [look, ANY]
    if vendor := options.pop("vendor", None):
        tools = [tool(vendor=vendor)(run_shell)]
    retries = Retries(first_delay=0, after_start=channel.is_retried)
    form = {"output_form": options.pop("output_form")} if "output_form" in options else {}
    model = Model(channel.model, via=script, api_key="k", retries=retries, **form)
    if "output" in options:
        tools = []
    agent: Agent[Any, Any] = Agent(model, tools, guard=guard, name="g", tracing=seen.tracing, **options)
    handler, logger = Records(seen), logging.getLogger("penstock")
    logger.addHandler(handler)
    try:
        with closing(penstock.log.memory()) as store:

            def start(prefix: str) -> Any:
                return getattr(agent, f"{prefix}stream")(messages=[user(channel.prompt)], log=store, run_id="r")

            events, run = drive(start, mode)
            for event in events:
                seen.add_event(event)
            seen.add_run(run, script)
            for _, _, logged in read_log(store, "r"):
                if not isinstance(logged, RunStart):
                    seen.add_event(logged)
    finally:
        logger.removeHandler(handler)
    return run, seen


def guards(checked: list[str], *, has_call: bool) -> dict[str, Guard]:
    """A guard that masks the word, and one that stops at it."""

    def mask(text: str) -> str:
        checked.append(text)
        return text.replace(WORD, MASK).replace("FORBIDDEN", MASK)

    def stop(text: str) -> str | StopRun:
        checked.append(text)
        return StopRun("not here") if "FORBIDDEN" in text else text

    def stop_call(name: str, arguments: dict[str, Any]) -> StopRun | None:
        texts = [name, *strings(arguments)]
        checked.extend(texts)
        return StopRun("not here") if any("FORBIDDEN" in text for text in texts) else None

    call = stop_call if has_call else None
    return {"mask": Guard(mask, call), "stop": Guard(stop, call), "answer": Guard(stop, call, by="answer")}


def spellings(channel: Channel) -> list[str]:
    return IN_JSON if channel.is_json else [WORD]


@sync_and_async
@pytest.mark.parametrize("name", CHANNELS)
def test_without_a_guard_the_word_is_seen(name: str, mode: str) -> None:
    channel = CHANNELS[name]
    for word in spellings(channel):
        _, seen = run_channel(channel, word, "plain", None, mode)
        assert seen.shows_word, word


@sync_and_async
@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("by", ["mask", "stop", "answer"])
def test_no_channel_shows_a_word_that_the_guard_forbids(name: str, by: str, mode: str) -> None:
    channel = CHANNELS[name]
    for word in spellings(channel):
        for way in WAYS if (by, mode) == ("mask", "sync") else ["characters"]:
            checked: list[str] = []
            guard = guards(checked, has_call=channel.has_call_guard)[by]
            run, seen = run_channel(channel, word, way, guard, mode)
            assert not seen.shows_word, (word, way)
            assert any("FORBIDDEN" in text for text in checked) == channel.is_checked, (word, way, checked)
            if by != "mask" and channel.is_checked:
                assert (run.finish_reason, run.why) == ("refused", "not here"), (word, way)


@sync_and_async
@pytest.mark.parametrize("by", ["mask", "stop"])
def test_an_error_that_comes_before_anything_else_is_checked(by: str, mode: str) -> None:
    """It is raised when no attempt is left, and not in the stream."""
    body = b"data: %b\n\n" % json.dumps({"error": {"message": f"no {WORD}", "code": "server_error"}}).encode()
    guard = guards([], has_call=False)[by]
    model = Model(CHAT, via=Scripted([Raw(body)] * 9, cuts="bytes"), api_key="k", retries=Retries(first_delay=0))
    events, run = drive(lambda prefix: getattr(Agent(model, guard=guard), f"{prefix}stream")("Go."), mode)
    assert run.finish_reason == ("error" if by == "mask" else "refused")
    assert run.why == (f"no {MASK}" if by == "mask" else "not here")
    assert "FORBIDDEN" not in str(events) + str(run.error) + str(run.error and vars(run.error))


def test_the_guide_lists_these_channels() -> None:
    _, _, section = DOCS.read_text().partition("## What a guard sees")
    lines = section.partition("\n## ")[0].splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][1:]
    assert [row[0].removeprefix("| ") for row in rows] == [*CHANNELS]
    assert [row[1].startswith("checked") for row in rows] == [channel.is_checked for channel in CHANNELS.values()]
    assert len(CHANNELS) == 30
