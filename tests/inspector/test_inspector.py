"""The inspector: entries of an exchange, the store, its endpoints, and the commands. Its page is in tests/clients."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.app import penstock as command
from penstock.inspector import InspectedExchange, Inspections, app, read_file
from penstock.inspector.endpoints import SLICE, InspectorEndpoints, page
from penstock.inspector.entries import Asked, Entry, EventEntry, FrameEntry, OddEntry, Requested, SentEntry
from penstock.inspector.quirk_table import quirks
from penstock.serve import ServerLimits
from penstock.testing import Loopback, Reply, Scripted, Status, call, drop, read_recordings, say
from penstock.transport.commands import HTTPRequest, HTTPResponseHead
from penstock.wires import wire_name
from tests.asgi_client import Browser
from tests.budget import sample
from tests.clients.inspector_server import ODD, chunk
from tests.quirks import numbers
from tests.support import Vector, vectors
from tests.turns import counted_turns
from tests.wires.test_laws import assert_expected

KEY = "sk-a-key-that-nobody-may-see"
REPLY = Reply(say("Let me look."), call("weather", {"city": "Rome"}))


def of(entries: list[Entry], kind: type[Any]) -> list[Any]:
    return [entry for entry in entries if isinstance(entry, kind)]


def upstream(
    inspections: Inspections, pieces: list[bytes], id: str = "x", wire: str = "openai-chat"
) -> InspectedExchange:
    """An exchange with a provider, as a gateway feeds it."""
    exchange = inspections.open(id)
    body = json.dumps({"model": "m", "key": KEY}).encode()
    recorder = exchange.recorder(wire, "local:m", HTTPRequest("http://up/v1?key=" + KEY, {"x-api-key": KEY}, body))
    recorder.begin(HTTPResponseHead(200, {"content-type": "text/event-stream", "set-cookie": "a=b"}), 0, 0)
    for piece in pieces:
        recorder.add(piece, 0)
    recorder.end(0)
    recorder.close()
    exchange.end("complete")
    return exchange


# Entries.


def test_every_vector_has_the_events_of_its_decoder_frame_by_frame() -> None:
    for vector in sample(vectors(), few=400):
        exchange = upstream(Inspections(), [vector.body()], wire=vector.wire)
        entries = exchange.entries()
        wanted = penstock.collect(penstock.decode(vector.body(), wire_name(vector.wire)))
        assert exchange.turn() == wanted, vector.name
        events = [json.loads(bytes(entry.event)) for entry in of(entries, EventEntry)]
        reasons = [event["reason"] for event in events if event["type"] == "finish"]
        assert reasons[:1] == [wanted.finish_reason], vector.name
        frames = [entry.frame for entry in of(entries, FrameEntry)]
        assert frames == list(range(1, len(frames) + 1))


def test_what_is_odd_has_the_number_of_its_quirk() -> None:
    entries = upstream(Inspections(), ODD).entries()
    assert [(entry.frame, entry.quirk) for entry in of(entries, OddEntry)] == [(2, 104), (9, 19), (9, 53)]


def test_habits_of_a_server_are_found_at_their_first_frame() -> None:
    function = {"name": "f", "arguments": "{}"}
    fragments = [{"id": "a", "function": function}, {"id": "b", "function": {**function, "arguments": {}}}]
    pieces = [chunk({"content": "Hm."}), *(chunk({"tool_calls": [one]}) for one in fragments), chunk({}, "tool_calls")]
    entries = upstream(Inspections(), pieces).entries()
    assert {(entry.frame, entry.quirk) for entry in of(entries, OddEntry)} >= {(2, 1), (3, 35)}


def test_comments_and_broken_bytes_are_frames() -> None:
    entries = upstream(Inspections(), [b": busy\n\n", b"data: \xff\xfe\n\n", *ODD[2:]]).entries()
    assert [(entry.name, entry.text[:7]) for entry in of(entries, FrameEntry)[:2]] == [(":", ": busy"), ("", "base64:")]


def test_comments_are_found_wherever_the_bytes_are_cut() -> None:
    whole = b": busy\n\n" + chunk({"content": "a:b"}) + b":still busy\r\n\r\n" + chunk({}, "stop")
    for cut in range(1, len(whole)):
        entries = upstream(Inspections(), [whole[:cut], whole[cut:]]).entries()
        comments = [entry.text for entry in of(entries, FrameEntry) if entry.name == ":"]
        assert comments == [": busy", ":still busy"], cut


def test_what_was_sent_on_stands_beside_the_frame_before_it() -> None:
    exchange = Inspections().open()
    recorder = exchange.recorder("openai-chat", "m", HTTPRequest("http://up", {}, b"{}"))
    recorder.begin(HTTPResponseHead(200, {}), 0, 0)
    for number, piece in enumerate(ODD):
        recorder.add(piece, 0)
        exchange.sent(f"piece {number}".encode())
    assert [entry.frame for entry in of(exchange.entries(), SentEntry)] == list(range(1, len(ODD) + 1))


def test_secrets_are_masked_in_every_form() -> None:
    inspections = Inspections()
    exchange = upstream(inspections, [f'data: {{"choices": [], "note": "{KEY}"}}\n\n'.encode(), *ODD])
    exchange.asked(
        "openai-responses",
        "m",
        {"input": "the other is sk-client-key-123456"},
        {"authorization": "Bearer sk-client-key-123456"},
    )
    exchange.sent(f"data: {KEY}\n\n".encode())
    shown = (
        msgspec.json.encode(exchange.entries()) + exchange.recording() + msgspec.json.encode(inspections.summaries())
    )
    assert KEY.encode() not in shown
    assert b"sk-client-key" not in shown
    assert b"set-cookie" not in shown


def test_a_request_that_is_sent_again_is_shown_twice() -> None:
    inspections = Inspections()
    script = Scripted([Status(503), REPLY])
    model = penstock.Model("openai:m", via=script, record=inspections, retries=penstock.Retries(first_delay=0))
    model.complete("Hi.")
    [summary] = inspections.summaries()[1]
    exchange = inspections.find(summary.id)
    assert exchange is not None
    assert len(of(exchange.entries(), Requested)) == 2
    assert (summary.status, summary.outcome, summary.wire) == (200, "complete", "openai-responses")


def test_outcomes_say_how_an_exchange_ended() -> None:
    inspections = Inspections()
    model = penstock.Model("openai:m", via=Scripted([REPLY, Reply("Hm", drop()), Status(400)]), record=inspections)
    model.complete("Hi.")
    model.complete("Hi.")
    with pytest.raises(penstock.BadRequestError):
        model.complete("Hi.")
    assert [summary.outcome for summary in inspections.summaries()[1]] == ["complete", "cut", "failed"]


def test_an_exported_recording_can_be_played_and_inspected_again(tmp_path: Path) -> None:
    inspections = Inspections()
    first = penstock.Model("anthropic:m", via=Scripted(REPLY), record=inspections).complete("Hi.")
    [summary] = inspections.summaries()[1]
    exchange = inspections.find(summary.id)
    assert exchange is not None
    file = tmp_path / "exported.jsonl"
    file.write_bytes(exchange.recording())
    assert penstock.Model(f"replay:{file}").complete("Hi.") == first
    again = read_file(file).find("1")
    assert again is not None
    assert of(again.entries(), FrameEntry)[0].text == of(exchange.entries(), FrameEntry)[0].text
    assert len(read_recordings(file)) == 1


def test_a_copied_vector_is_a_vector() -> None:
    from penstock.inspector.endpoints import vector

    for pieces in (ODD, [b": busy\n\n", *ODD]):
        exchange = upstream(Inspections(), pieces)
        copied = msgspec.convert(vector(exchange.entries(), exchange.turn()), Vector)
        assert copied.quirks == [19, 53, 104]
        assert_expected(penstock.collect(penstock.decode(copied.body(), "openai-chat")), copied.expected)


def test_the_table_of_quirks_is_that_of_the_page() -> None:
    assert list(quirks()) == numbers()
    assert all(quirk.servers and quirk.sends and quirk.does for quirk in quirks().values())
    assert "query<|channel|>commentary" in quirks()[31].sends, "a bar inside a cell is not its end"
    assert not [quirk for quirk in quirks().values() if "](" in quirk.does], "a link is only its text"


# The store.


def test_an_exchange_that_had_to_go_does_not_come_back() -> None:
    inspections = Inspections(max_exchanges=1)
    first = inspections.open("first")
    inspections.open("second")
    first.sent(b"late")
    assert [summary.id for summary in inspections.summaries()[1]] == ["second"]
    assert inspections.find("first") is None


def test_the_bodies_of_requests_count_for_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    inspections = Inspections(max_bytes=5000)
    for number in range(10):
        inspections.open(str(number)).asked("openai-chat", "m", {"prompt": "x" * 2000})
    assert [summary.id for summary in inspections.summaries()[1]] == ["8", "9"]
    monkeypatch.setattr("penstock.inspector.exchange.MAX_EXCHANGE", 1000)
    exchange = inspections.open("large")
    exchange.asked("openai-chat", "m", {"prompt": "x" * 2000})
    exchange.received(chunk({"content": "Hi"}))
    [asked] = of(exchange.entries(), Asked)
    assert msgspec.json.decode(asked.body) == "a body of 2013 bytes, which is too large to be kept"
    assert of(exchange.entries(), FrameEntry)


def test_nothing_is_decoded_before_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.inspector.frame_reader.FrameReader.feed", None)
    monkeypatch.setattr("penstock.redaction.Mask.value", None)
    inspections = Inspections()
    exchange = upstream(inspections, ODD)
    exchange.asked("openai-chat", "m", b'{"input": "not even JSON')
    assert inspections.summaries()[1][0].odd is None


def test_a_body_that_is_not_json_is_shown_as_text_without_secrets() -> None:
    exchange = Inspections().open()
    exchange.asked("openai-chat", "m", f'{{"input": "{KEY}'.encode(), {"authorization": f"Bearer {KEY}"})
    [asked] = of(exchange.entries(), Asked)
    assert msgspec.json.decode(asked.body) == '{"input": "***'


def test_a_long_body_is_masked_in_a_thread_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    inspections = Inspections()
    exchange = inspections.open("long")
    exchange.asked("openai-chat", "m", {"input": [f"{number} {KEY}" for number in range(5000)]}, {"x-api-key": KEY})
    exchange.end("complete")
    threads: list[int] = []
    decode = msgspec.json.decode

    def counted(body: bytes) -> Any:
        threads.append(threading.get_ident())
        return decode(body)

    monkeypatch.setattr("penstock.inspector.exchange.msgspec.json.decode", counted)

    async def read() -> bytes:
        feed = InspectorEndpoints(inspections, ServerLimits())._entries(exchange, 0)
        return b"".join([piece async for piece in feed]).replace(b"]\n\ndata: [", b",")

    async def read_twice() -> tuple[bytes, bytes]:
        return await asyncio.gather(read(), read())

    first, second = asyncio.run(read_twice())
    assert first == second
    assert first.count(b"4999 ***") == 1
    assert KEY.encode() not in first
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


# The endpoints.


def blocks(body: bytes) -> list[Any]:
    return [json.loads(block[6:]) for block in body.decode().split("\n\n") if block.startswith("data: [")]


def test_the_page_asks_nobody_else() -> None:
    assert b"http" not in page().body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"src=" not in page().body


def test_an_exchange_is_fed_as_it_happens() -> None:
    async def run() -> None:
        inspections = Inspections()
        exchange = inspections.open("x")
        exchange.asked("openai-chat", "m", {})
        connection = Browser(app(inspections)).connect("GET", "/inspect/exchanges/x?after=0")
        await connection.reply.until('"asked"')
        exchange.healed(53, "a finish reason")
        await connection.reply.until('"healed"')
        assert not connection.reply.is_complete
        exchange.end("complete")
        await connection.reply.until("event: end")
        types = [entry["type"] for block in blocks(connection.reply.body) for entry in block]
        assert types == ["asked", "healed", "end"]

    asyncio.run(run())


def test_a_feed_continues_after_the_entries_that_a_reader_has() -> None:
    async def run() -> None:
        inspections = Inspections()
        upstream(inspections, ODD)
        whole = await Browser(app(inspections)).get("/inspect/exchanges/x")
        rest = await Browser(app(inspections)).get("/inspect/exchanges/x?after=5")
        assert blocks(rest.body)[0] == blocks(whole.body)[0][5:]
        for odd in ("many", "-5", "9" * 5000):
            assert (await Browser(app(inspections)).get(f"/inspect/exchanges/x?after={odd}")).body == whole.body

    asyncio.run(run())


def test_the_list_is_fed_with_every_change() -> None:
    async def run() -> None:
        inspections = Inspections()
        inspections.open("one")
        connection = Browser(app(inspections)).connect("GET", "/inspect/exchanges")
        await connection.reply.until('"one"')
        inspections.open("two")
        await connection.reply.until('"two"')
        inspections.close()
        await connection.task

    asyncio.run(run())


def test_exchanges_need_the_token_and_the_page_does_not() -> None:
    async def run() -> None:
        secured = app(Inspections(), token="a-long-token-of-ours")
        page = await Browser(secured).get("/inspect")
        refused = await Browser(secured).get("/inspect/quirks")
        shown = await Browser(secured).get("/inspect/quirks", authorization="Bearer a-long-token-of-ours")
        unknown = await Browser(app(Inspections())).get("/inspect/exchanges/none")
        assert (page.status, refused.status, shown.status, unknown.status) == (200, 401, 200, 404)

    asyncio.run(run())


def test_a_server_of_agents_shows_the_exchanges_of_its_models() -> None:
    async def run() -> None:
        inspections = Inspections()
        model = penstock.Model("openai:m", via=Scripted("Sunny."), record=inspections)
        agent = penstock.Agent(model, name="desk")
        served = penstock.serve.app(agent, inspections=inspections)
        await agent.arun("Hi.")
        [summary] = inspections.summaries()[1]
        shown = await Browser(served).get(f"/inspect/exchanges/{summary.id}")
        assert b"Sunny" in shown.body
        assert b"Penstock inspector" in (await Browser(served).get("/inspect")).body
        await served.close()

    asyncio.run(run())
    with pytest.raises(penstock.UsageError, match="all tenants"):
        penstock.serve.app(
            penstock.Agent(penstock.Model("sim:fast"), name="a"), auth=lambda scope: "", inspections=Inspections()
        )


# The commands.


def test_decode_shows_frames_with_their_events(tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"".join(ODD))
    shown = CliRunner().invoke(command, ["decode", "--frames", str(file)])
    assert shown.exit_code == 0
    assert "    2  : keep-alive\n" in shown.stdout
    assert 'quirk 53: the finish reason was "stop", although calls are present' in shown.stdout
    lines = CliRunner().invoke(command, ["decode", "--frames", "--json", "--wire", "openai-chat", str(file)])
    assert [json.loads(line)["type"] for line in lines.stdout.splitlines()][:3] == ["frame", "frame", "event"]
    file.write_bytes(ODD[2])
    assert CliRunner().invoke(command, ["decode", "--frames", str(file)]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "pass either a recording or --gateway URL"),
        (["nothing.jsonl"], "cannot read"),
        (["--gateway", "ftp://x"], "is not the URL of a gateway"),
        (["--gateway", "http://127.0.0.1:1"], "cannot reach"),
        (["pyproject.toml", "--host", "0.0.0.0"], "can be reached from other machines"),
    ],
)
def test_inspect_says_what_is_wrong(arguments: list[str], words: str) -> None:
    ended = CliRunner().invoke(command, ["inspect", "--no-open", *arguments])
    assert ended.exit_code == 2
    assert words in ended.output


def test_inspect_refuses_a_server_without_an_inspector() -> None:
    with Loopback("Hi.") as server:
        ended = CliRunner().invoke(command, ["inspect", "--no-open", "--gateway", server.url])
    assert "the inspector of this server is not enabled" in ended.output


def test_the_event_loop_gets_turns_while_a_long_exchange_is_read() -> None:
    slices = 10
    inspections = Inspections()
    exchange = inspections.open("long")
    for _ in range(slices):
        exchange.sent(b"x" * SLICE)
    exchange.end("complete")

    async def read() -> tuple[bytes, int]:
        async with counted_turns() as turns:
            feed = InspectorEndpoints(inspections, ServerLimits())._entries(exchange, 0)
            return b"".join([piece async for piece in feed]), turns()

    text, turns = asyncio.run(read())
    assert text.count(b'"sent"') == slices
    assert text.endswith(b"event: end\ndata: {}\n\n")
    assert turns >= slices - 1
