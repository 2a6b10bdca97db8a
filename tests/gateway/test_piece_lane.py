"""The direct way of text through the gateway: clients get the same bytes as by the stages, which are the reference."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Generator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import AsyncStream, ConnectionFailed, Decoder, Model, StreamChunk, Usage
from penstock.declarations import ToolDeclaration
from penstock.gateway import Healing
from penstock.gateway.piece_lane import PieceLane
from penstock.healing.decoding import HealedDecoding, ResponseContext
from penstock.healing.report import HealingReport
from penstock.testing import Scripted
from penstock.transport import attempt
from penstock.transport.commands import HTTPResponseHead
from penstock.turn import TurnBuilder
from penstock.wires import find_response_frames
from penstock.wires.openai_responses import encode_response as responses
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead
from tests.cases import each
from tests.gateways import HABITS, SHELL, delta, sse
from tests.support import frame_bytes, vectors

FRONTS = ("openai-chat", "openai-responses", "anthropic", "gemini", "ollama")
SHELL_TOOL = ToolDeclaration(SHELL["name"], SHELL["description"], SHELL["parameters"])  # type: ignore[arg-type]


class Done:
    """Something that need not be waited for."""

    def __await__(self) -> Generator[None]:
        yield from ()


class Relay:
    """What a client gets for the reads of an upstream, and how many of them took the direct way."""

    def __init__(
        self, reads: Iterable[bytes], front: str = "openai-chat", *, has_lane: bool, healing: Healing | None = None
    ) -> None:
        context = ResponseContext(
            wire="openai-chat", client_wire=front, tools=(SHELL_TOOL,), messages=(), fields={}, id_prefix="call_r_",
            healing=healing or Healing(), report=HealingReport(), estimate=Usage(7),
        )  # fmt: skip
        self.decoding = HealedDecoding(Decoder(context.wire, context.tools, id_prefix=context.id_prefix), context)
        self.encoder = ResponseEncoder(find_response_frames(front)(ResponseHead(id="1", model="m", created=1)))
        self.sent: list[bytes] = []
        self.shown: list[bytes] = []
        self.taken = 0
        self._turn = TurnBuilder()
        self.lane = lane = PieceLane(self.encoder, self, self._turn.add, self.shown.append)
        take = None
        for data in reads:
            if take is not None and take(data):
                self.taken += 1
                continue
            chunks = self.decoding.feed(data)
            self._feed(chunks)
            take = lane.open_after(chunks, self.decoding) if has_lane else None
        self._feed(self.decoding.close())
        self.sent.append(self.encoder.close())
        self.turn = self._turn.build()
        self.report = (context.report.build(), context.report.notes)

    @property
    def frames(self) -> bytes:
        return b"".join(self.sent)

    def _feed(self, chunks: list[StreamChunk]) -> None:
        self._note(chunks)
        self.sent.append(self.encoder.feed(chunks))

    def _note(self, chunks: list[StreamChunk]) -> None:
        for chunk in chunks:
            self._turn.add(chunk)

    def write_now(self, piece: bytes) -> bool:
        self.sent.append(piece)
        return True

    async def write(self, piece: bytes) -> None:
        raise AssertionError("it was written")


def assert_same(reads: list[bytes], front: str, healing: Healing | None = None) -> int:
    direct = Relay(reads, front, has_lane=True, healing=healing)
    reference = Relay(reads, front, has_lane=False, healing=healing)
    assert direct.frames == reference.frames
    assert direct.turn == reference.turn
    assert direct.decoding.output.size == reference.decoding.output.size
    assert direct.report == reference.report
    assert len(direct.shown) <= direct.taken == direct.lane.taken
    return direct.taken


def test_reads_that_leave_the_path_are_counted() -> None:
    pieces = [*(f"word {number} " for number in range(9)), " a", " <", "b", ">", " and", " so", " on"]
    reads = [frame(piece) for piece in pieces]
    assert_same([*reads, END], "openai-chat")
    direct = Relay(reads, has_lane=True)
    assert (direct.lane.taken, direct.lane.left) == (direct.taken, 1)


def frame(piece: str, choice: int = 0) -> bytes:
    chunk = delta(content=piece)
    chunk["choices"][0]["index"] = choice
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


END = sse(delta("stop"))
PLAIN = [frame(f"word {number} ") for number in range(20)]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("healing", [Healing(), Healing(rescue=False, reasoning=False)], ids=["healed", "as it is"])
def test_plain_text_takes_the_direct_way(front: str, healing: Healing) -> None:
    taken = assert_same([*PLAIN, END], front, healing)
    assert taken >= len(PLAIN) - 3  # the first ones say what the frames of the server look like


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["word ", "<", "<think>", "</think>", "<tool_call>", '{"name": "shell"', "`", "```\n", "é😀"]),
    st.sampled_from(["\\", '"', "\n", "\x00", "\x7f", "\u2028"]),
)  # fmt: skip


@given(
    st.lists(st.tuples(PIECES, st.sampled_from([0, 0, 0, 1])), max_size=30),
    st.sampled_from(FRONTS),
    st.booleans(),
    st.integers(1, 3),
)
def test_any_text_arrives_as_by_the_stages(
    pieces: list[tuple[str, int]], front: str, is_healed: bool, together: int
) -> None:
    frames = [frame(piece.encode("utf-8", "replace").decode(), choice) for piece, choice in pieces]
    reads = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    assert_same([*reads, END], front, Healing() if is_healed else Healing(rescue=False, reasoning=False))


ARGUMENTS = {"command": "ls -l", "files": [{"name": "größer 😀"}, {"n": 1.5, "is": True}], "note": 'a "b" \n c' * 9}
DAMAGED = ("{}{text}", "{text},", "```json\n{text}\n```", "{text}</tool_call>", "{{}}{text}", "{half}", "{text}{text}")


def call_reads(arguments: str, size: int) -> list[bytes]:
    """A call whose arguments come in pieces of this size."""
    entry = {"index": 0, "id": "a", "type": "function", "function": {"name": "shell", "arguments": ""}}
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    deltas: list[dict[str, Any]] = [
        {"tool_calls": [entry]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces),
    ]
    frames = [b"data: " + json.dumps(delta(**one), ensure_ascii=False).encode() + b"\n\n" for one in deltas]
    return [*frames, sse(delta("tool_calls"))]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_pieces_of_arguments_take_the_direct_way(front: str, size: int) -> None:
    reads = call_reads(json.dumps(ARGUMENTS), size)
    assert assert_same(reads, front) >= len(reads) // 3
    assert_same([*PLAIN[:5], *reads[:-1], *PLAIN[:5], reads[-1]], front)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("size", [1, 4])
def test_damaged_arguments_arrive_as_by_the_stages(front: str, damage: str, size: int) -> None:
    text = json.dumps(ARGUMENTS)
    reads = call_reads(damage.replace("{text}", text).replace("{half}", text[: len(text) // 2]), size)
    assert_same(reads, front)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("habit", HABITS)
def test_calls_after_and_before_text_arrive_as_by_the_stages(front: str, habit: str) -> None:
    frames = [each + b"\n\n" for each in HABITS[habit].split(b"\n\n") if each]
    before, last = frames[:-2], frames[-2:]
    assert_same([*PLAIN[:6], *before, *PLAIN[:6], *last], front)


@each("vector", [one for one in vectors() if one.wire == "openai-chat"], ids=lambda one: one.name)
def test_every_vector_arrives_as_by_the_stages(vector: Any) -> None:
    reads = [frame_bytes(vector.wire, one) for one in vector.frames]
    assert_same(reads, "openai-chat")
    assert_same(reads, "openai-responses")


def test_bytes_that_are_not_utf_8_are_decoded() -> None:
    broken = PLAIN[3].replace(b"word", b"w\xffrd")
    assert_same([*PLAIN[:5], broken, *PLAIN[:5], END], "openai-chat")


def test_a_response_that_grows_too_large_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_RESPONSE", 60)
    direct = Relay(PLAIN, "openai-responses", has_lane=True)
    assert direct.encoder.error is not None
    assert direct.frames.count(b'"type":"error"') == 1


class Reads:
    """A connection with these reads; then it breaks, or ends."""

    def __init__(self, reads: list[bytes], failure: Exception | None = None) -> None:
        self._reads = [*reads]
        self._failure = failure

    async def open(self, command: Any) -> HTTPResponseHead:
        return HTTPResponseHead(200, {})

    async def read(self, seconds: float | None) -> bytes:
        if self._reads:
            return self._reads.pop(0)
        if self._failure is not None:
            raise self._failure
        return b""

    def abort(self) -> None: ...

    async def close(self) -> None: ...


class Kept:
    """A recorder that keeps the bytes."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def recorder(self, *_: object) -> Kept:
        return self

    def add(self, data: bytes, now: float) -> None:
        self.data.append(data)

    def begin(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...
    def hide(self, *_: object) -> None: ...
    def refuse(self, *_: object) -> None: ...
    def close(self) -> None: ...


def read_all(connection: Reads, record: Kept | None = None) -> tuple[list[bytes], list[StreamChunk]]:
    """The bytes that were passed on, and the chunks of the others."""

    async def main() -> tuple[list[bytes], list[StreamChunk]]:
        model = Model("openai:m", api_key="k", wire="openai-chat", via=Scripted([]), record=record)
        stream: AsyncStream = AsyncStream(model.ask("Hi."), connection)
        passed: list[bytes] = []

        def take(data: bytes) -> Awaitable[None] | bool:
            if b"word" not in data:
                return False
            passed.append(data)
            return Done() if len(passed) % 2 else True

        chunks = await stream.start()
        while (more := await stream.next_batch(take)) is not None:
            chunks += more
        await stream.close()
        return passed, chunks

    return asyncio.run(main())


def test_bytes_that_are_passed_on_are_recorded_in_order() -> None:
    record = Kept()
    passed, chunks = read_all(Reads([frame("Hi "), *PLAIN, END]), record)
    assert passed == PLAIN
    assert record.data == [frame("Hi "), *PLAIN, END]
    assert [chunk.type for chunk in chunks] == ["text", "finish"]


def test_bytes_that_are_passed_on_count_towards_the_size_of_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "MAX_RESPONSE_BYTES", 1000)
    _, chunks = read_all(Reads([frame("Hi "), *PLAIN, END]))
    assert [chunk.code for chunk in chunks if chunk.type == "error"] == ["response_too_large"]


def test_a_response_without_an_end_is_counted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.model.stream.MAX_PASSED", 300)
    passed, chunks = read_all(Reads([frame("Hi "), *PLAIN, END]))
    assert len(passed) < len(PLAIN)
    assert sum(chunk.type == "text" for chunk in chunks) == 1 + len(PLAIN) - len(passed)


def test_a_connection_that_breaks_after_bytes_were_passed_on_is_an_error() -> None:
    _, chunks = read_all(Reads([frame("Hi "), *PLAIN], ConnectionFailed("the connection broke")))
    assert [chunk.type for chunk in chunks] == ["text", "error", "finish"]
