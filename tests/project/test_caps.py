"""Every named cap (a module constant `MAX_*`) has a test that fails when the cap is removed.

A function is run once with a small cap and once without one, and the results differ. The few caps that are tested in
other files are in `ELSEWHERE`.
"""

from __future__ import annotations

import ast
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner

import penstock
from penstock import (
    ArgumentsError,
    Finish,
    Opaque,
    PartialJSON,
    ProviderError,
    Said,
    Text,
    Tool,
    ToolCall,
    ToolCallInvalid,
    Unknown,
    UnknownNameError,
    UsageError,
)
from penstock.calls.closing_json import ClosingJSON
from penstock.calls.rope import Rope
from penstock.cli.app import penstock as command_line
from penstock.cli.model_options import CommandError
from penstock.cli.runs.log_options import find_run
from penstock.cli.runs.run_table import short_ids
from penstock.cli.screen.call_card import CallCard
from penstock.cli.screen.response_page import Choices
from penstock.cli.screen.rows import plain
from penstock.cli.screen.run_page import RunPage
from penstock.cli.wire_detection import detect_wire
from penstock.dialects.wrong_dialect import WrongDialect
from penstock.framing import SSE, AWSFrames, Body, JSONValues, Stray
from penstock.hooks import ToolSearch
from penstock.hooks.compaction import transcript
from penstock.inspector import InspectedExchange, Inspections
from penstock.inspector.frame_reader import CallHabits, shown_text
from penstock.jsontext.portable import as_text
from penstock.log import RunRow, memory
from penstock.log.bodies import body_of
from penstock.log.postgres.connections import Connections
from penstock.messages import file, image, user
from penstock.results import as_outcome
from penstock.run.events import RunStart
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.stored import snapshot
from penstock.testing import Loopback, Raw, ReceivedRequest, Reply, Scripted, demo, say
from penstock.testing.sample import Sampler
from penstock.testing.wires.judge import find_rejection
from penstock.tools.schema_arguments import SchemaArguments
from penstock.wires import find_encoder, find_response_frames, wire_name
from penstock.wires.gemini.counts import Counts, LastCounts
from penstock.wires.gemini.partial_args import keys_of
from penstock.wires.shared.decode_request.fields import clean_value
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_errors import malformed_call
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.request import Request
from tests.architecture import tree_of
from tests.support import aws_message

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
NO_CAP = sys.maxsize


class Cap(NamedTuple):
    """A cap by package and name, a small value for it, and what `observe` returns with that value and without a cap."""

    name: str
    value: int
    observe: Callable[[], Any]
    capped: Any
    uncapped: Any


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def constants_of(path: Path) -> Iterator[str]:
    """The named caps of a module."""
    for statement in tree_of(path).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        is_text = isinstance(statement, ast.Assign) and isinstance(getattr(statement.value, "value", None), str)
        for target in targets:
            if isinstance(target, ast.Name) and target.id.lstrip("_").startswith("MAX_") and not is_text:
                yield f"{module_of(path)}.{target.id}"


PAY = Tool.from_schema("pay", "Pay.", {"type": "object"})


@cache
def existing() -> list[str]:
    """All caps, by module and name."""
    return [cap for path in SOURCES.rglob("*.py") for cap in constants_of(path)]


def find_cap(name: str) -> str:
    """The module and the name of a cap that is given by its package and its name."""
    package, _, constant = name.rpartition(".")
    matches = [
        cap for cap in existing() if f"{cap}.".startswith(f"penstock.{package}.") and cap.endswith(f".{constant}")
    ]
    assert len(matches) == 1, f"{name}: expected one cap of this name, there are {matches}"
    return matches[0]


@cache
def import_everything() -> None:
    """Imports all modules: one that is imported while a cap is changed would keep the changed value."""
    for path in SOURCES.rglob("*.py"):
        if path.name != "__main__.py":
            import_module(module_of(path))


@contextmanager
def cap_set_to(name: str, value: int) -> Generator[None]:
    """Sets a cap wherever it was imported."""
    import_everything()
    module, _, constant = find_cap(name).rpartition(".")
    current = getattr(import_module(module), constant)
    with pytest.MonkeyPatch.context() as patch:
        for name_of_module, loaded in list(sys.modules.items()):
            if name_of_module.startswith("penstock") and vars(loaded).get(constant) == current:
                patch.setattr(loaded, constant, value)
        yield


# -- framing -----------------------------------------------------------------------------------------------------------


def size_of_page() -> int:
    body = Body("sse")
    body.feed(b"<html>" + b"x" * 994)
    [stray] = body.close()
    assert isinstance(stray, Stray)
    return len(stray.data)


def strays_of_nested_lists() -> int:
    return len([framed for framed in JSONValues().feed(b'[[[[{"a":1}') if isinstance(framed, Stray)])


def remembered_headings() -> int:
    framing = SSE()
    for number in range(10):
        framing.feed(f'event: e{number}\ndata: {{"a":1}}\n\n'.encode() * 2)
    return len(vars(framing)["_headings"])


def stray_codes_of_long_headers() -> list[str]:
    framed = AWSFrames().feed(aws_message({"name": "x" * 1000}, b"{}"))
    return [one.code for one in framed if isinstance(one, Stray)]


def long_frame_codes() -> list[str]:
    frames = SSE().feed(b"data: " + b"x" * 1000 + b"\n\n")
    return [one.code for one in frames if isinstance(one, Stray)]


# -- JSON --------------------------------------------------------------------------------------------------------------


def is_readable(text: str) -> bool:
    view = PartialJSON()
    view.feed(text)
    return not view.error


class CountingRope(Rope):
    """A rope that counts how often its whole text is read."""

    reads = 0

    def text(self) -> str:
        self.reads += 1
        return super().text()


def reads_of_open_arguments() -> int:
    """How often the parser reads arguments from their start, if each of 20 pieces could be their end."""
    rope = CountingRope()
    arguments = ClosingJSON(rope)
    for size in range(1, 21):
        rope.append("{")
        arguments.closes(size)
    return rope.reads


# -- wires -------------------------------------------------------------------------------------------------------------


def decoded(wire: str, *frames: Any, tools: Any = None) -> list[Any]:
    body = b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    return list(penstock.decode(body, wire_name(wire), tools))


def kept_counts() -> int:
    """How many token counts wait to be merged after ten reads of one chunk each."""
    counts = LastCounts()
    for number in range(10):
        counts.add(Counts(number))
        counts.settle(1)
    return len(counts.waiting)


def invalid_arguments() -> list[str]:
    function = {"name": "f", "arguments": json.dumps({"a": "x" * 100})}
    delta = {"tool_calls": [{"index": 0, "id": "c", "function": function}]}
    events = decoded("openai-chat", {"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]})
    return [event.why for event in events if isinstance(event, ToolCallInvalid)]


def repeated_errors() -> int:
    errors = [{"error": {"message": f"error {number}"}} for number in range(5)]
    return len([event for event in decoded("openai-chat", *errors, *errors) if event.type == "error"])


def signature_sizes() -> tuple[int, int]:
    """The characters of a signature that are kept as state, and those that arrive as unknown."""
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "Hm."}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x" * 50}}
    events = decoded("anthropic", start, *[delta] * 10, {"type": "content_block_stop", "index": 0})
    kept = sum(len(str(event.data)) for event in events if isinstance(event, Opaque))
    return kept, 50 * len([event for event in events if isinstance(event, Unknown)])


def unknown_texts() -> int:
    """A final text that contradicts its pieces is reported, unless the pieces were too long to be remembered."""
    item = {"type": "message", "id": "m", "role": "assistant", "content": []}
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    events = decoded(
        "openai-responses",
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", **place, "delta": "x" * 100},
        {"type": "response.output_text.done", **place, "text": "other"},
    )
    return len([event for event in events if isinstance(event, Unknown)])


def repeated_fields() -> int:
    fields = {f"field{number}": 1 for number in range(6)}
    chunk = {"candidates": [{"content": {"parts": [{"text": "Hi."}]}}], **fields}
    return len([event for event in decoded("gemini", chunk, chunk) if isinstance(event, Unknown)])


def plan_pieces() -> int:
    piece = {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "x" * 60}}}
    events = decoded("cohere", *[piece] * 4, {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}})
    return len([event for event in events if isinstance(event, Opaque)])


def document_name() -> int:
    request = Request(model="m", messages=(user("Read.", file(b"x", "text/plain", "n" * 300)),))
    body = find_encoder("bedrock")(request, frozenset()).body
    [document] = [part["document"] for part in body["messages"][0]["content"] if "document" in part]
    return len(document["name"])


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def is_sound(value: Any) -> bool:
    try:
        clean_value(value, "here")
    except UsageError:
        return False
    return True


# -- dialects ----------------------------------------------------------------------------------------------------------

FIELD = '<function_calls><invoke name="f"><parameter name="a">{}</parameter></invoke></function_calls>'
NS = "]<]minimax[>["


def parsed(dialect: str, text: str, field: Any = None) -> list[Any]:
    tools = None if field is None else [{"name": "f", "parameters": {"type": "object", "properties": {"a": field}}}]
    parser = penstock.TextParser(dialect, tools)
    return [*parser.feed(text), *parser.close()]


def calls(events: list[Any]) -> list[Any]:
    return [event.arguments for event in events if isinstance(event, ToolCall)]


def reports_of_another_dialect() -> int:
    watch = WrongDialect("xml", [{"name": "look", "parameters": {"type": "object"}}])
    watch.feed(Text(0, '<tool_call>{"name": "look", "arguments": {}}</tool_call>'))
    return len(watch.feed(Finish("stop"))) - 1


def pieces_of_held_text() -> int:
    """The events of text that could be the beginning of a call: it is released at the cap, or at the end."""
    parser = penstock.TextParser("hermes")
    return sum(bool(parser.feed(piece)) for piece in ['<tool_call>{"arguments": {"s": "', *["x" * 10] * 20])


def repaired_value() -> Any:
    """A tag that begins a line ends the value before it, if its indent is short enough."""
    mail = {"type": "object", "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}}}
    parser = penstock.TextParser("xml", [{"name": "mail", "parameters": mail}])
    value = f'<parameter name="to">ann\n{" " * 20}<parameter name="copies">2</parameter>'
    events = [*parser.feed(f'<invoke name="mail">{value}</invoke>'), *parser.close()]
    [broken] = [event for event in events if isinstance(event, ToolCallInvalid)]
    return (broken.repaired or {}).get("to")


def why_a_call_with_many_fields_is_invalid() -> list[str]:
    others = "".join(f', "field{number}": {number}' for number in range(5))
    events = parsed("hermes", f'<tool_call>{{"name": "f", "arguments": {{"a": 1}}{others}}}</tool_call>')
    return [event.why for event in events if isinstance(event, ToolCallInvalid)]


def nested_elements() -> list[Any]:
    inner = f"{NS}<q>" * 4 + "x" + f"{NS}</q>" * 4
    head, tail = f'{NS}<tool_call>{NS}<invoke name="f">{NS}<p>', f"{NS}</p>{NS}</invoke>{NS}</tool_call>"
    return calls(parsed("minimax_m3", head + inner + tail))


ALTERNATIVES = {"anyOf": [*({"description": str(number)} for number in range(5)), {"type": "integer"}]}


# -- runs --------------------------------------------------------------------------------------------------------------


def loads_a_high_block() -> bool:
    state = json.loads(msgspec.json.encode(snapshot(Run([user("Go.")], {}).state))) | {"next_block": 10}
    try:
        load(json.dumps(state), {})
    except UsageError:
        return False
    return True


# -- logs --------------------------------------------------------------------------------------------------------------


class Idle:
    """A connection to a database."""

    def close(self) -> None:
        """It is not one of the idle connections."""


def idle_connections() -> int:
    connections: Any = Connections("postgresql://localhost/runs")
    for _ in range(5):
        connections._give_back(Idle())
    return len(connections._idle)


# -- transport ---------------------------------------------------------------------------------------------------------


def error_of(body: bytes, content_type: str) -> ProviderError:
    connector = Scripted([Raw(body, content_type, status=400)], cuts="bytes")
    with pytest.raises(ProviderError) as raised:
        penstock.Model("openai-compatible:m", via=connector).stream_text_and_classify("Hi.")
    return raised.value


def code_of_error(text: str) -> str:
    script = Scripted([Reply(say(text))])
    turn = penstock.Model("openai-compatible:m", via=script).stream_text_and_classify("Hi.")
    return turn.error.code if turn.error else ""


# -- tools -------------------------------------------------------------------------------------------------------------

OBJECT = {"type": "object", "properties": {"next": {"$ref": "#"}, "end": {"type": "string"}}}


def inspected(count: int, data: bytes) -> InspectedExchange:
    exchange = Inspections().open()
    for _ in range(count):
        exchange.sent(data)
    exchange.healed(1, "")
    exchange.end("complete")
    return exchange


def habits_of_call_frames() -> list[tuple[int, int]]:
    habits = CallHabits("openai-chat")
    calls = [{"index": 0, "id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}]
    for number, fragment in enumerate(calls, 1):
        habits.add(number, json.dumps({"choices": [{"delta": {"tool_calls": [fragment]}}]}).encode())
    return list(habits.find())


def number_of_inspections(data: bytes) -> int:
    inspections = Inspections()
    for _ in range(5):
        inspections.open().sent(data)
    return len(inspections.summaries()[1])


def is_accepted(depth: int) -> bool:
    value: dict[str, Any] = {"end": "x"}
    for _ in range(depth):
        value = {"next": value}
    try:
        SchemaArguments(OBJECT).check(value)
    except ArgumentsError:
        return False
    return True


def takes_malformed_schema() -> bool:
    try:
        SchemaArguments({"properties": {name: {"minimum": "x"} for name in "abcde"}})
    except UsageError:
        return False
    return True


def argument_errors(arguments: dict[str, Any]) -> str:
    fields = {name: {"type": "string"} for name in arguments}
    with pytest.raises(ArgumentsError) as raised:
        SchemaArguments({"type": "object", "properties": fields}).check(arguments)
    return str(raised.value)


PNG = b"\x89PNG\r\n\x1a\n"


def number_of_parts() -> int:
    return len(as_outcome([image(PNG)] * 5).content)


# -- testing -----------------------------------------------------------------------------------------------------------


def sampled(schema: Any) -> Any:
    return Sampler("Hi", {"type": "object", "properties": {"a": schema}, "required": ["a"]}).arguments()["a"]


def sampled_depth() -> int | str:
    linked = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    try:
        value, depth = Sampler("Hi", linked).arguments(), 0
    except RecursionError:
        return "endless"
    while value:
        value, depth = value["a"], depth + 1
    return depth


def optional_fields() -> int:
    properties = {f"p{number}": {"type": "string"} for number in range(6)}
    return len(Sampler("Hi", {"type": "object", "properties": properties}).arguments())


def demo_reply(prompt: str, *names: str) -> Reply:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    body = {"messages": [{"role": "user", "content": prompt}], "tools": tools}
    return demo(ReceivedRequest("openai-chat", body))


LONG = "n" * 1000
CHAT_TOOL = {"type": "function", "function": {"name": LONG}}
BEDROCK = {
    "messages": [{"role": "user", "content": [{"text": "Hi."}]}],
    "toolConfig": {"tools": [{"toolSpec": {"name": LONG, "inputSchema": {"json": {"type": "object"}}}}]},
}


def is_rejected(wire: str, body: dict[str, Any], model: str = "") -> bool:
    return find_rejection(ReceivedRequest(wire, body, model_in_path=model)) is not None


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi."}, *messages], **more}


def chat_call(id: str) -> list[Any]:
    called = {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [called]}, {"role": "tool", "tool_call_id": id, "content": "1"}]


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": "Hi."}, *items], **more}


def response_call(id: str) -> list[Any]:
    called = {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}
    return [called, {"type": "function_call_output", "call_id": id, "output": "1"}]


def claude(name: str, **more: Any) -> dict[str, Any]:
    called = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"}
    messages = [
        {"role": "user", "content": "Hi."}, {"role": "assistant", "content": [called]},
        {"role": "user", "content": [result]},
    ]  # fmt: skip
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    return {"model": "m", "max_tokens": 5, "messages": messages, "tools": tools, **more}


def status_of_large_request() -> int:
    with Loopback("Hi.") as server:
        body = json.dumps(chat({"role": "user", "content": "x" * 5000})).encode()
        request = urllib.request.Request(server.base_url("openai-chat") + "/chat/completions", body)
        try:
            with urllib.request.urlopen(request) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code


# -- command line ------------------------------------------------------------------------------------------------------


def card_rows(arguments: str = "", result: str = "") -> int:
    card = CallCard("", "f")
    card.write(arguments)
    card.end("done", result)
    return len(card.rows(40, 0.0))


def inner_rows() -> int:
    """The rows that a card shows of an agent that runs inside of its call."""
    page = RunPage()
    for number in range(20):
        page.add(Said(user(str(number))), 0.0)
    card = CallCard("", "f")
    card.inner = page
    return len(card.rows(40, 0.0)) - 2


def width_of_card() -> int:
    return len(plain(CallCard("", "n" * 300).rows(None, 0.0)[0]))


def released_choices() -> int:
    """The events of a second choice that are released before the first one has ended."""
    choices = Choices()
    return sum(len(choices.feed(Text(choice, "x", choice))) for choice in (0, 1, 1, 1, 1)) - 1


def unknown_frames() -> int:
    body = b"".join(b'data: {"beat": %d}\n\n' % number for number in range(20))
    shown = CliRunner().invoke(command_line, ["decode", "--wire", "openai-chat", "-"], input=body)
    return shown.output.count('"beat"')


def bytes_read_for_detection() -> int:
    pieces = iter([b"data: {}\n\n"] * 20)
    with pytest.raises(UsageError):
        detect_wire(pieces)
    return 10 * (20 - len(list(pieces)))


def is_key_on_one_line() -> bool:
    shown = CliRunner().invoke(command_line, ["models"], env={"COLUMNS": "200", "ANTHROPIC_API_KEY": None})
    return "ANTHROPIC_API_KEY" in shown.output


def runs_that_an_ambiguous_id_may_mean() -> int:
    """How many runs the error lists."""
    store = memory()
    for number in range(4):
        store.create(RunRow(id=f"run-{number}"), body_of(RunStart((user("Go."),), "a")))
    with pytest.raises(CommandError) as raised:
        find_run(store, "run-")
    store.close()
    return str(raised.value).count("run-") - 1


def written_text() -> int:
    """How much of a text a Responses stream has; the response ends with an error before it grows too large."""
    encoder = ResponseEncoder(find_response_frames("openai-responses")(ResponseHead()))
    stream = b"".join(encoder.feed([Text(0, "text")]) for _ in range(10)) + encoder.close()
    return len(penstock.collect(penstock.decode(stream, wire="openai-responses")).text)


CAPS = [
    # framing
    Cap("framing._MAX_PAGE", 100, size_of_page, 100, 1000),
    Cap("framing._MAX_LISTS", 2, strays_of_nested_lists, 1, 0),
    Cap("framing._MAX_HEADINGS", 4, remembered_headings, 4, 10),
    Cap("framing._MAX_HEADERS", 100, stray_codes_of_long_headers, ["bad_length"], []),
    Cap("framing.MAX_FRAME_BYTES", 500, long_frame_codes, ["frame_too_large"], []),
    # JSON
    Cap("jsontext._MAX_KEY", 50, lambda: is_readable('{"' + "k" * 100), False, True),
    Cap("jsontext._MAX_SCALAR", 50, lambda: is_readable("1" * 100), False, True),
    Cap("jsontext.MAX_DEPTH", 10, lambda: is_readable("[" * 20), False, True),
    Cap("jsontext._MAX_TEXT", 10, lambda: len(as_text("x" * 100)), 10, 100),
    # wires
    Cap("calls._MAX_TRIES", 4, reads_of_open_arguments, 7, 20),
    Cap("calls.MAX_ARGUMENTS", 50, invalid_arguments, ["too_large"], []),
    Cap("wires.MAX_ERRORS", 2, repeated_errors, 8, 5),
    Cap("wires.MAX_STATE", 100, signature_sizes, (100, 400), (500, 0)),
    Cap("wires.MAX_LEVELS", 5, lambda: is_sound(nested(10)), False, True),
    Cap("wires.MAX_TEXT", 50, unknown_texts, 0, 1),
    Cap("wires.MAX_PATH_KEYS", 2, lambda: keys_of("$.a.b.c"), (), ("a", "b", "c")),
    Cap("wires.MAX_FIELDS", 4, repeated_fields, 12, 6),
    Cap("wires.MAX_DOCUMENT_NAME", 50, document_name, 50, 300),
    Cap("wires.MAX_PLAN", 100, plan_pieces, 2, 1),
    Cap("wires.MAX_COUNTS", 4, kept_counts, 2, 10),
    # dialects
    Cap("dialects.MAX_MARKS", 3, reports_of_another_dialect, 0, 1),
    Cap("dialects.MAX_WATCHED", 10, reports_of_another_dialect, 0, 1),
    Cap("dialects.MAX_HELD", 100, pieces_of_held_text, 14, 0),
    Cap("dialects.MAX_INDENT", 10, repaired_value, None, "ann"),
    Cap(
        "dialects.MAX_HEADER", 10,
        lambda: len(calls(parsed("xml", FIELD.replace('"a"', '"parameter_name"').format(1)))), 0, 1,
    ),
    Cap("dialects.MAX_OTHER_FIELDS", 4, why_a_call_with_many_fields_is_invalid, ["malformed"], []),
    Cap("dialects.MAX_ALTERNATIVES", 3,
        lambda: calls(parsed("xml", FIELD.format(5), ALTERNATIVES)), [{"a": "5"}], [{"a": 5}]),
    Cap("dialects.MAX_DIGITS", 3,
        lambda: calls(parsed("xml", FIELD.format(12345), {"type": "integer"})), [{"a": "12345"}], [{"a": 12345}]),
    Cap("dialects.MAX_NESTING", 2, nested_elements, [],
        [{"p": {"q": {"q": {"q": {"q": "x"}}}}}]),
    # runs
    Cap("run.MAX_BLOCK", 5, loads_a_high_block, False, True),
    # logs
    Cap("log.MAX_IDLE", 2, idle_connections, 2, 5),
    # transport
    Cap("transport.MAX_ERROR_BODY", 20,
        lambda: len(str(error_of(b"x" * 100, "text/plain").raw)), 20, 100),
    Cap("transport._MAX_SHOWN", 20,
        lambda: len(str(error_of(b"x" * 100, "text/plain").raw)), 20, 100),
    Cap("transport.MAX_RESPONSE_BYTES", 5000, lambda: code_of_error("word " * 100), "response_too_large", ""),
    # responses that a server writes
    Cap("wires.MAX_QUOTE", 5, lambda: LONG in malformed_call(ToolCallInvalid(0, "c", "f", LONG, "cut")).message,
        False, True),
    Cap("wires.MAX_RESPONSE", 10, written_text, 8, 40),
    # tools
    Cap("tools.MAX_STEPS", 10, lambda: is_accepted(10), False, True),
    Cap("tools.MAX_FAULTS", 3, takes_malformed_schema, False, True),
    Cap("tools.MAX_PROBLEMS", 2,
        lambda: argument_errors(dict.fromkeys("abcde", 1)).splitlines()[2:],
        ["… and 3 more"], [f"`{name}`: expected a string, got 1" for name in "cde"]),
    Cap("tools.MAX_SHOWN", 10, lambda: "characters)" in argument_errors({"a": [1] * 50}),
        True, False),
    Cap("results.MAX_RESULT", 100, lambda: len(as_outcome("x" * 500).text), 68, 500),
    Cap("results.MAX_MEDIA", 5, lambda: as_outcome(PNG).text, "<8 bytes that are not text>", ""),
    Cap("results.MAX_PARTS", 3, number_of_parts, 1, 5),
    Cap("jsontext.MAX_NESTING", 4, lambda: as_outcome([nested(6), {1}]).text, '[[[["…"]]],[1]]',
        "[[[[[[[1]]]]]],[1]]"),
    # testing
    Cap("testing.MAX_CALLS", 2,
        lambda: len(demo_reply("Use alpha, beta and gamma.", "alpha", "beta", "gamma").calls), 2, 3),
    Cap("testing.MAX_QUOTE", 10, lambda: "x" * 50 in demo_reply("x" * 50).text, False, True),
    Cap("testing.MAX_DEPTH", 4, sampled_depth, 5, "endless"),
    Cap("testing.MAX_VALUES", 5,
        lambda: sampled({"type": "array", "items": {"const": 1}, "minItems": 20}).count(1), 4, 20),
    Cap("testing.MAX_OPTIONAL", 2, optional_fields, 2, 6),
    Cap("testing.MAX_LENGTH", 5, lambda: len(sampled({"type": "string", "minLength": 20})), 5, 20),
    Cap("testing._MAX_REQUEST", 1000, status_of_large_request, 413, 200),
    Cap("testing.wires.openai_chat.MAX_NAME", 10,
        lambda: is_rejected("openai-chat", chat(tools=[CHAT_TOOL])), True, False),
    Cap("testing.wires.openai_chat.MAX_ID", 10,
        lambda: is_rejected("openai-chat", chat(*chat_call(LONG))), True, False),
    Cap("testing.wires.openai_responses.MAX_NAME", 10,
        lambda: is_rejected("openai-responses", responses(tools=[{"type": "function", "name": LONG}])), True, False),
    Cap("testing.wires.openai_responses.MAX_ID", 10,
        lambda: is_rejected("openai-responses", responses(*response_call(LONG))), True, False),
    Cap("testing.wires.mistral.MAX_NAME", 10,
        lambda: is_rejected("mistral", chat(tools=[CHAT_TOOL])), True, False),
    Cap("testing.wires.bedrock.MAX_WORD", 10,
        lambda: is_rejected("bedrock", BEDROCK, "m"), True, False),
    Cap("testing.wires.anthropic.MAX_TOOL_NAME", 10,
        lambda: is_rejected("anthropic", claude("f", tools=[{"name": LONG, "input_schema": {"type": "object"}}])),
        True, False),
    Cap("testing.wires.anthropic.MAX_CALL_NAME", 10,
        lambda: is_rejected("anthropic", claude(LONG)), True, False),
    # inspector
    Cap("inspector.MAX_TEXT", 10, lambda: shown_text(b"x" * 50, None), "xxxxxxxxxx… (50 bytes)", "x" * 50),
    Cap("inspector.MAX_CALL_FRAMES", 1, habits_of_call_frames, [], [(2, 1)]),
    Cap("inspector.MAX_EXCHANGE", 20, lambda: len(inspected(5, b"x" * 10).entries()), 5, 7),
    Cap("inspector.MAX_EXCHANGES", 2, lambda: number_of_inspections(b""), 2, 5),
    Cap("inspector.MAX_BYTES", 25, lambda: number_of_inspections(b"x" * 10), 2, 5),
    # command line
    Cap("cli.MAX_HELD", 2, released_choices, 4, 0),
    Cap("cli.MAX_UNKNOWN", 5, unknown_frames, 6, 21),
    Cap("cli.MAX_BYTES", 50, bytes_read_for_detection, 60, 200),
    Cap("cli.MAX_LINES", 3,
        lambda: card_rows(arguments=json.dumps({"a": "x " * 200})), 5, 17),
    Cap("cli.MAX_RESULT_LINES", 3, lambda: card_rows(result="x " * 200), 5, 13),
    Cap("cli.MAX_INNER_ROWS", 3, inner_rows, 4, 20),
    Cap("cli.MAX_WIDTH", 50, width_of_card, 50, 303),
    Cap("cli.MAX_ID", 10, lambda: short_ids(["a" * 15, "b" * 15]), ["a" * 8, "b" * 8], ["a" * 15, "b" * 15]),
    Cap("cli.MAX_CANDIDATES", 2, runs_that_an_ambiguous_id_may_mean, 2, 4),
    Cap("cli.MAX_KEY", 10, is_key_on_one_line, False, True),
    Cap("hooks.MAX_PART", 10, lambda: len(transcript([user("x" * 50)])), 19, 56),
    Cap("hooks.MAX_TRANSCRIPT", 10, lambda: len(transcript([user("x" * 50)])), 13, 56),
    Cap("hooks.MAX_QUERY", 5, lambda: ToolSearch([PAY]).tools[0].function(query="find pay"), [],
        [{"name": "pay", "description": "Pay."}]),
    Cap("errors.MAX_LISTED", 2, lambda: "a, b, c" in str(UnknownNameError("zz", "abc")), False, True),
]  # fmt: skip

ELSEWHERE = {
    "calls.MAX_ARGUMENT_VALUES": "wires/test_response_limits.py",
    "calls.MAX_BLOCKS": "wires/test_response_limits.py",
    "calls.MAX_CALLS": "wires/test_response_limits.py",
    "framing.MAX_COMMENT_BYTES": "wires/test_response_limits.py",
    "healing.MAX_MARKS": "gateway/test_gateway_caps.py",
    "wires.MAX_CHOICES": "wires/test_response_limits.py",
    "wires.MAX_FRAME_ESCAPES": "wires/test_response_limits.py",
    "wires.MAX_FRAME_VALUES": "wires/test_response_limits.py",
    "gateway.hosted.commands.MAX_ERRORS": "gateway/tools/test_web_tools.py",
    "gateway.hosted.commands.MAX_OUTPUT": "gateway/tools/test_web_tools.py",
    "gateway.hosted.pages.MAX_PAGES": "gateway/tools/test_web_tools.py",
    "gateway.hosted.rounds.MAX_ROUNDS": "gateway/tools/test_web_tools.py",
    "gateway.hosted.runners.MAX_RUNNING": "gateway/tools/test_web_tools.py",
    "gateway.hosted.runners.MAX_TEXTS": "gateway/tools/test_web_tools.py",
    "history.MAX_NAMED": "gateway/tools/test_deferred_tools.py",
    "agent.MAX_CODE": "agent/test_logging.py",
    "agent.MAX_FAILURES": "agent/calls/test_tool_exceptions.py",
    "log.retention.status.MAX_PROBLEMS": "cli/test_log_command.py",
    "log.retention.run_files.MAX_LINE": "log/retention/test_run_files.py",
    "log.retention.sweep.MAX_NAME": "log/retention/test_keep.py",
    "log.sqlite.pruning.MAX_EVENTS": "log/test_log_growth.py",
    "log.sqlite.pruning.MAX_PAGES": "log/test_log_growth.py",
    "agent.records.MAX_CODE": "agent/test_logging.py",
    "agent.MAX_CHECKS": "agent/ending/test_stop.py",
    "transport.MAX_IDLE": "transport/test_worker_threads.py",
    "asgi.MAX_REFUSAL": "asgi/websocket/test_served.py",
    "wires.MAX_LANES": "asgi/websocket/test_served.py",
    "wires.MAX_LANE_NAME": "asgi/websocket/test_served.py",
    "wires.MAX_QUEUE": "asgi/websocket/test_served.py",
    "wires.MAX_RUNNING": "asgi/websocket/test_served.py",
    "transport.MAX_EARLY": "transport/websocket/test_client.py",
    "transport.MAX_UNREAD": "transport/websocket/test_client.py",
    "transport.MAX_UNUSED": "transport/websocket/test_client.py",
    "model.MAX_REMEMBERED": "transport/websocket/test_connecting.py",
    "wires.MAX_KEPT_TOOLS": "wires/requests/test_decode_request.py",
    "jsontext.MAX_MESSAGE": "hooks/test_hooks.py",
    "agent.MAX_WAIT": "agent/ending/test_cancel.py",
    "dialects.MAX_DECODED": "dialects/test_provenance.py",
    "healing.MAX_RESCUED": "gateway/test_rescued.py",
    "dialects.MAX_COMPARED": "dialects/test_quoted_sources.py",
    "dialects.MAX_MARKUP": "dialects/test_provenance.py",
    "agent.MAX_SHOWN": "hooks/test_ask_if_from.py",
    "dialects.MAX_ARGUMENTS": "dialects/test_sources.py",
    "dialects.MAX_INDEXED": "dialects/test_sources.py",
    "dialects.MAX_NUMBER": "dialects/test_sources.py",
    "dialects.MAX_PLACES": "dialects/test_sources.py",
    "dialects.MAX_PARSED": "dialects/test_source_calls.py",
    "dialects.MAX_SOURCES": "dialects/test_source_calls.py",
    "dialects.MAX_VALUE": "dialects/test_source_calls.py",
    "dialects.MAX_READINGS": "dialects/test_provenance.py",
    "dialects.MAX_SEARCHES": "dialects/test_provenance.py",
    "dialects.MAX_BEFORE": "healing/test_rescue_corpus.py",
    "healing.MAX_WRAPPING": "healing/test_forms.py",
    "dialects.MAX_VALUES": "dialects/test_provenance.py",
    "guard.MAX_HELD": "guard/test_guard.py",
    "log.MAX_BYTES": "log/test_log_open.py",
    "serve.MAX_KEY": "serve/test_one_start.py",
    "log.MAX_DELAY": "log/test_flusher.py",
    "log.MAX_GATHERED": "log/test_flusher.py",
    "log.MAX_KNOWN": "log/sqlite/test_sqlite_events.py",
    "log.MAX_LEASES": "log/test_log_owners.py",
    "log.MAX_LOCKED": "log/postgres/test_postgres_waits.py",
    "log.MAX_MAINTENANCE": "log/postgres/test_postgres_waits.py",
    "log.MAX_ROWS": "log/sqlite/test_sqlite_events.py",
    "log.MAX_STATEMENT": "log/postgres/test_postgres_waits.py",
    "jsontext.strict.MAX_HELD": "jsontext/test_strict_json.py",
    "log.MAX_TEXT": "log/test_inline_runs.py",
    "log.follower.MAX_WAIT": "log/test_log_follow.py",
    "log.postgres.schema.MAX_WAIT": "log/test_log_open.py",
    "mcp.MAX_ANSWERS": "mcp/test_mcp.py",
    "mcp.MAX_DECLARATIONS": "mcp/test_mcp_bad_input.py",
    "mcp.MAX_DESCRIPTION": "mcp/test_mcp.py",
    "mcp.MAX_LISTED": "mcp/test_mcp_bad_input.py",
    "mcp.MAX_MESSAGE": "mcp/test_mcp.py",
    "mcp.MAX_NAME": "mcp/test_mcp.py",
    "mcp.MAX_PAGES": "mcp/test_mcp.py",
    "mcp.MAX_REPORTED": "mcp/test_mcp_bad_input.py",
    "mcp.MAX_SCHEMA": "mcp/test_mcp_bad_input.py",
    "mcp.MAX_STDERR": "mcp/test_mcp.py",
    "mcp.MAX_TOOLS": "mcp/test_mcp.py",
    "output.MAX_KNOWN": "output/test_output_types.py",
    "output.MAX_PROBLEM": "agent/test_output_runs.py",
    "run.MAX_AHEAD": "agent/calls/test_progress.py",
    "run.MAX_LEVELS": "run/test_nested_machine.py",
    "asgi.MAX_SERIES": "asgi/test_metrics.py",
    "asgi.MAX_LABEL": "asgi/test_metrics.py",
    "serve.operations.timeline.MAX_ENTRIES": "serve/operations/test_admin.py",
    "serve.operations.timeline.MAX_NAME": "serve/operations/test_admin.py",
    "log.retention.survey.MAX_CONTINUED": "log/retention/test_survey.py",
    "cli.MAX_FILES": "serve/test_serve_lifecycle.py",
    "dialects.MAX_UNREAD": "dialects/test_whole_calls.py",
    "gateway.MAX_ASKED": "servers/test_windows.py",
    "gateway.MAX_RATIOS": "servers/test_fitted_requests.py",
    "gateway.servers.expectations.MAX_CHECKED": "servers/test_fitted_requests.py",
    "gateway.servers.check.MAX_CHECKED": "servers/test_check.py",
    "gateway.MAX_COUNT": "gateway/test_gateway_counts.py",
    "heal.MAX_HEAD": "heal/test_heal_transport.py",
    "heal.MAX_HELD_READS": "heal/test_heal_transport.py",
    "heal.MAX_KEPT": "heal/test_heal_transport.py",
    "heal.MAX_REQUEST": "heal/test_heal_transport.py",
    "healing.MAX_EXAMINED": "gateway/test_gateway_caps.py",
    "healing.MAX_FIELDS": "gateway/test_gateway_caps.py",
    "gateway.MAX_KEPT": "gateway/test_gateway_caps.py",
    "gateway.MAX_LISTS": "gateway/test_gateway_models.py",
    "gateway.MAX_LEARNED": "gateway/calls/test_calls_auto.py",
    "gateway.MAX_HELD": "gateway/calls/test_calls_auto.py",
    "gateway.MAX_SECOND": "gateway/watch/test_doubtful_ends.py",
    "gateway.MAX_LISTED": "gateway/test_gateway_caps.py",
    "jsontext.MAX_LINE": "gateway/test_gateway_caps.py",
    "loggers.MAX_VALUE": "jsontext/test_shown_text.py",
    "healing.MAX_NAME": "gateway/test_gateway_caps.py",
    "healing.MAX_NOTES": "gateway/test_gateway_caps.py",
    "gateway.MAX_REMEMBERED": "gateway/test_gateway_memory.py",
    "healing.MAX_REPAIRED": "gateway/test_gateway_caps.py",
    "gateway.MAX_FILE": "gateway/test_gateway_settings.py",
    "gateway.MAX_CONVERSATIONS": "gateway/watch/test_prompt_cache.py",
    "gateway.MAX_HASHES": "gateway/watch/test_prompt_cache.py",
    "gateway.MAX_SHOWN": "gateway/test_gateway_settings.py",
    "gateway.MAX_RESPONSE": "gateway/test_gateway_memory.py",
    "healing.MAX_TAIL": "gateway/test_gateway_caps.py",
    "asgi.MAX_ENDED": "asgi/test_access.py",
    "asgi.MAX_TENANT": "asgi/test_access.py",
    "jsontext.MAX_DIGITS": "jsontext/test_meter.py",
    "serve.MAX_ANSWERS_BYTES": "serve/test_shared_answers.py",
    "serve.MAX_FRAME": "serve/test_serve_client.py",
    "serve.MAX_ID": "serve/test_serve.py",
    "serve.MAX_KEPT": "serve/test_feeds.py",
    "serve.MAX_KEPT_BYTES": "serve/test_feeds.py",
    "serve.MAX_LISTED": "serve/test_serve.py",
    "serve.MAX_POLL": "serve/test_serve.py",
    "transport.MAX_PASSED": "gateway/test_piece_lane.py",
    "dialects.MAX_UNCONFIRMED": "dialects/test_ambiguous_ends.py",
    "transport.MAX_PAUSES": "transport/test_shared_limits.py",
    "serve.MAX_RUNS": "serve/test_front_ends.py",
    "servers.MAX_FACTS": "servers/test_facts.py",
    "servers.MAX_REPLY": "servers/test_facts.py",
    "tracing.MAX_CONTENT": "tracing/test_tracing.py",
    "tracing.MAX_URL": "tracing/test_tracing.py",
    "transport.MAX_NAMES": "transport/test_secrets.py",
    "transport.MAX_DELAY": "transport/test_transport.py",
    "transport.MAX_POOLS": "transport/test_pools.py",
    "wires.MAX_INDEX": "wires/test_indexes.py",
}
"""The test files that cover the other caps, which need threads, event loops or a conversation."""


@pytest.mark.parametrize("cap", CAPS, ids=lambda cap: cap.name)
def test_a_cap_limits_what_it_is_for(cap: Cap) -> None:
    with cap_set_to(cap.name, cap.value):
        assert cap.observe() == cap.capped
    with cap_set_to(cap.name, NO_CAP):
        assert cap.observe() == cap.uncapped


def test_every_cap_has_a_test() -> None:
    covered = {find_cap(name) for name in [*(cap.name for cap in CAPS), *ELSEWHERE]}
    assert sorted(set(existing()) - covered) == [], "these caps need a test: add them to CAPS or to ELSEWHERE"


@pytest.mark.parametrize(("cap", "file"), ELSEWHERE.items())
def test_the_other_caps_are_named_in_their_test_files(cap: str, file: str) -> None:
    assert cap.rpartition(".")[2] in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
