"""The framings: each is compared with a simple parser of the same rules, for any cuts, and tested at its caps."""

from __future__ import annotations

import gzip
import json
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.framing import (
    NDJSON,
    SSE,
    AWSFrames,
    Body,
    Framed,
    Frames,
    Framing,
    JSONValues,
    Stray,
    aws,
    json_array,
    ndjson,
    sse,
)
from penstock.framing import frames as frame
from tests.cases import each
from tests.support import pieces_of

Seen = list[tuple[str, bytes]]
"""The name and payload of each frame; a stray is `stray:` with its code, and its bytes."""


def seen(framed: Iterable[Framed]) -> Seen:
    out: Seen = []
    for item in framed:
        if isinstance(item, Stray):
            out.append((f"stray:{item.code}", item.data))
        else:
            out += [(item.event, payload) for payload in item.data]
    return out


def read(framing: Framing, pieces: Iterable[bytes]) -> Seen:
    """The frames of the pieces, by `single_frame` where possible, as the decoder reads them."""
    framed: list[Framed] = []
    for piece in pieces:
        if isinstance(framing, SSE | NDJSON) and (payload := framing.single_frame(piece)) is not None:
            framed.append(Frames(framing.event, [payload]))
        else:
            framed += framing.feed(piece)
    return seen(framed + framing.close())


@st.composite
def cuttings(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The data in pieces: single bytes, or random cuts."""
    if len(data) < 300 and draw(st.booleans()):
        return list(pieces_of(data, 1))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# SSE


def sse_by_lines(data: bytes) -> Seen:
    """A simple parser: the WHATWG rules line by line, and our extensions of them."""
    parts = [*re.split(rb"(\r\n|\r|\n)", data.removeprefix(b"\xef\xbb\xbf")), b"", b"", b""]
    out: Seen = []
    block: list[tuple[bytes, bytes]] = []  # lines with their ends
    for line, end in zip(parts[::2], parts[1::2], strict=True):
        if line:
            block.append((line, end))
        elif block:  # a blank line, or the end of the stream, which ends a block too
            out += sse_block(block)
            block = []
    return out


def sse_block(block: list[tuple[bytes, bytes]]) -> Seen:
    out = Seen()
    while len(block) > 1 and is_object(block[0][0]):  # one JSON object per line, without any framing
        out.append(("", block.pop(0)[0]))
    if block[0][0].startswith(b"{"):  # one value, on several lines, and what follows it
        lines = b"".join(line + end for line, end in block).rstrip(b"\r\n")
        end = next((end for end in range(1, len(lines)) if is_object(lines[:end])), len(lines))
        return [*out, ("", lines[:end]), *[("stray:", lines[end:])][: len(lines) - end]]
    name, data, is_damaged, unnamed = b"", list[bytes](), False, list[int]()
    for line, _ in [*block, (b"", b"")]:
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        is_text = value.decode("utf-8", "replace").encode() == value
        if field == b"data":
            data.append(value)
        elif field == b"event" and not unnamed:
            name = value
        elif field == b"event" and is_text:
            while unnamed:
                place = unnamed.pop()
                out[place] = (value.decode(), out[place][1])
        elif field == b"event":
            out.append(("stray:", line))
        elif field == b"error":
            out.append(("error", value))
        elif field not in (b"", b"id", b"retry") and data and not is_ignored(line):
            data.append(line)
            is_damaged = True
        elif field not in (b"", b"id", b"retry"):
            out.append(("stray:", line))
        if data and (not line or is_whole(data)):  # the end of the block, or of an object in it
            is_named = name.decode("utf-8", "replace").encode() == name
            label = name.decode() if is_named and not is_damaged else "stray:"
            unnamed += [len(out)] if not label else []
            out.append((label, b"\n".join(data)))
            data, is_damaged = [], False
    return out


def is_whole(data: list[bytes]) -> bool:
    """Whether the `data` lines are `[DONE]`, or as much as an object has brackets."""
    if data[0].lstrip()[:1] != b"{":
        return len(data) == 1 and data[0].strip() == b"[DONE]"
    outside = re.sub(rb'"(?:[^"\\]|\\.)*("|\Z)', b"", b"\n".join(data).lstrip(), flags=re.DOTALL)
    depths = accumulate(1 if byte in b"{[" else -1 if byte in b"}]" else 0 for byte in outside)
    return any(depth == 0 for depth in depths)


def is_ignored(line: bytes) -> bool:
    """Whether a line is an unknown field without any JSON."""
    return re.fullmatch(rb'[\w-]+:[^{}\[\]"\\]*', line) is not None


def is_object(line: bytes) -> bool:
    try:
        return line.startswith(b"{") and isinstance(json.loads(line.decode(), strict=False), dict)
    except ValueError:
        return False


texts = st.one_of(
    st.sampled_from(
        [b"", b" ", b"  x", b"x ", b":", b"\t", b"data: y", b"[DONE]", b"{", b"}", b'{"a":1}', b' {"b":{}} ']
    ),
    st.sampled_from(
        [b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b\x0c\x1c", b"\xef\xbb\xbf", b"\xf0\x9f\x9b\x9f", b"\xff\xfe", b"\x00"]
    ),
    st.binary(max_size=6).map(lambda raw: raw.replace(b"\r", b"r").replace(b"\n", b"n")),
)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
names = st.sampled_from([b"", b"a", b"error", b" b", b"\xff"])
fields = st.sampled_from(
    [b"data:", b"data: ", b"data", b"event:", b"event: ", b":", b": ", b"id: ", b"retry:", b"error: ", b"odd: ", b"{"]
)
lines = st.one_of(st.builds(bytes.__add__, fields, texts), texts)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Several blocks in the same style, as servers send them."""
    end, space = draw(line_ends), draw(st.sampled_from([b"", b" "]))
    event = draw(st.one_of(st.none(), names))
    head = b"" if event is None else b"event:" + space + event + end
    payloads = draw(st.lists(texts, min_size=1, max_size=5))
    return b"".join(head + b"data:" + space + payload + end + end for payload in payloads)


@st.composite
def odd_blocks(draw: st.DrawFn) -> bytes:
    """Lines of any kind with any line ends."""
    return b"".join(line + draw(line_ends) for line in draw(st.lists(lines, max_size=5))) + draw(line_ends)


sse_streams = st.builds(
    lambda bom, blocks, rest: bom + b"".join(blocks) + rest,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(st.one_of(runs(), odd_blocks()), max_size=6),
    st.one_of(st.just(b""), lines),
)


@given(st.data())
def test_sse_equals_a_line_by_line_parser(data: st.DataObject) -> None:
    stream = data.draw(sse_streams)
    expected = sse_by_lines(stream)
    assert read(SSE(), [stream]) == expected
    assert read(SSE(), data.draw(cuttings(stream))) == expected


@given(st.lists(runs(), min_size=1, max_size=4))
def test_sse_read_block_by_block_gives_the_same_frames(blocks: list[bytes]) -> None:
    stream = b"".join(blocks)
    pieces = re.findall(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+\Z", stream, re.DOTALL)
    assert b"".join(pieces) == stream
    assert read(SSE(), pieces) == sse_by_lines(stream)


def test_a_very_large_event_is_one_frame() -> None:  # QUIRKS 120
    payload = b"x" * 5_000_000
    stream = b"data: a\n\ndata: " + payload + b"\n\ndata: b\n\n"
    assert read(SSE(), pieces_of(stream, 65536)) == [("", b"a"), ("", payload), ("", b"b")]


# NDJSON and JSON values

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(['"}', "{[", "\\", "\n}"])
)
objects = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        max_leaves=6,
    ),
    max_size=3,
)
indents = st.sampled_from([None, None, 0, 2, "\t"])


def dumped(value: Any, indent: Any, escape: bool) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=escape).encode()


written = st.builds(dumped, objects, indents, st.booleans())


@given(st.data())
def test_ndjson_gives_one_frame_per_value_and_per_other_line(data: st.DataObject) -> None:
    plain = st.sampled_from([b"upstream timed out", b"[1, 2]", b"null", b'"x"'])
    items = data.draw(st.lists(st.one_of(written, plain), max_size=6))
    ends = st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n\t\n"])
    stream = b"".join(item + data.draw(ends) for item in items)
    if data.draw(st.booleans()):
        stream = stream.rstrip(b"\r\n\t ")  # QUIRKS 110
    frames = read(NDJSON(), data.draw(cuttings(stream)))
    assert [line_value(payload) for _, payload in frames] == [line_value(item) for item in items]


def line_value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def test_a_damaged_line_does_not_affect_the_next_lines() -> None:
    stream = b'{"a":1}\n{"message":{"content":"half\n{"b":2}\n{"c":3}\n'
    payloads = [payload.strip() for _, payload in read(NDJSON(), [stream])]
    assert payloads == [b'{"a":1}', b'{"message":{"content":"half', b'{"b":2}', b'{"c":3}']


@pytest.mark.parametrize("half", [b'{"message":{"a":1,', b'{"message":[', b"{", b'{\n  "a": [\n    {'])
def test_a_line_damaged_outside_a_string_does_not_affect_the_next_lines(half: bytes) -> None:
    payloads = [payload.strip() for _, payload in read(NDJSON(), [half + b'\n{"b":2}\n{\n "c":[\n  {}\n ]\n}\n'])]
    assert [line_value(payload) for payload in payloads[1:]] == [{"b": 2}, {"c": [{}]}]


@given(st.data())
def test_json_values_in_a_row_or_in_an_array_are_frames(data: st.DataObject) -> None:
    items = data.draw(st.lists(written, min_size=1, max_size=5))
    blank = st.sampled_from([b"", b"\n", b" \r\n\t"])
    if data.draw(st.booleans()):
        stream = b"[" + (data.draw(blank) + b"," + data.draw(blank)).join(items) + data.draw(blank) + b"]"
    else:
        stream = data.draw(blank).join(items)
    frames = read(JSONValues(), data.draw(cuttings(data.draw(blank) + stream)))
    assert [json.loads(payload) for _, payload in frames] == [json.loads(item) for item in items]


def test_deeply_nested_lists_are_reported_once() -> None:
    for size in (1, 10, 1_000_000):
        [(name, data)] = read(JSONValues(), pieces_of(b"[" * 1_000_000, size))
        assert name == "stray:"
        assert len(data) < 100
    assert read(JSONValues(), [b"[{}]" * 30]) == [("", b"{}")] * 30


def test_an_incomplete_value_is_reported() -> None:
    assert read(JSONValues(), [b'[{"a":1},{"b":"']) == [("", b'{"a":1}'), ("stray:", b'{"b":"')]


# AWS frames


def number(kind: int, size: int) -> st.SearchStrategy[tuple[int, bytes, Any]]:
    limit = 1 << (8 * size - 1)
    return st.integers(-limit, limit - 1).map(lambda value: (kind, value.to_bytes(size, "big", signed=True), value))


def counted(raw: bytes) -> bytes:
    return struct.pack(">H", len(raw)) + raw


header_values = st.one_of(
    st.sampled_from([(0, b"", True), (1, b"", False)]),
    number(2, 1), number(3, 2), number(4, 4), number(5, 8), number(8, 8),
    st.binary(max_size=9).map(lambda raw: (6, counted(raw), raw.hex())),
    st.text(max_size=9).map(lambda text: (7, counted(text.encode()), text)),
    st.binary(min_size=16, max_size=16).map(lambda raw: (9, raw, raw.hex())),
)  # fmt: skip
header_names = st.text(min_size=1, max_size=12)


def aws_message(headers: dict[str, tuple[int, bytes, Any]], payload: bytes) -> bytes:
    head = b"".join(
        bytes([len(name.encode())]) + name.encode() + bytes([kind]) + raw for name, (kind, raw, _) in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def text_header(text: str) -> tuple[int, bytes, Any]:
    return 7, counted(text.encode()), text


@given(st.dictionaries(header_names, header_values, max_size=5))
def test_aws_headers_of_all_types_are_parsed(headers: dict[str, tuple[int, bytes, Any]]) -> None:
    message = aws_message(headers, b"")
    end = len(message) - 4
    assert aws.parse_headers(message[12:end]) == {name: value for name, (_, _, value) in headers.items()}


@given(st.binary(max_size=60))
def test_malformed_aws_headers_are_none(raw: bytes) -> None:
    assert isinstance(aws.parse_headers(raw), dict | None)


events = st.lists(
    st.tuples(st.sampled_from(["messageStart", "contentBlockDelta", ""]), st.binary(max_size=30)),
    min_size=1,
    max_size=5,
)


@given(st.data())
def test_aws_frames_are_parsed(data: st.DataObject) -> None:
    sent = data.draw(events)
    stream = b"".join(aws_message({":event-type": text_header(name)}, payload) for name, payload in sent)
    assert read(AWSFrames(), data.draw(cuttings(stream))) == sent


@given(st.data())
def test_a_flipped_bit_is_detected_and_earlier_frames_stay_valid(data: st.DataObject) -> None:
    sent = data.draw(events)
    messages = [aws_message({":event-type": text_header(name)}, payload) for name, payload in sent]
    hit = data.draw(st.integers(0, len(messages) - 1))
    at = data.draw(st.integers(0, len(messages[hit]) - 1))
    damaged = bytearray(messages[hit])
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    stream = b"".join([*messages[:hit], bytes(damaged), *messages[hit + 1 :]])
    got = read(AWSFrames(), [stream])
    assert got[:hit] == sent[:hit]
    assert [name for name, _ in got[hit:]] == ["stray:bad_checksum"]
    assert read(AWSFrames(), data.draw(cuttings(stream))) == got


def test_contradictory_lengths_are_reported() -> None:
    prelude = struct.pack(">II", 20, 90)
    stream = prelude + struct.pack(">I", zlib.crc32(prelude)) + b"x" * 40
    assert read(AWSFrames(), [stream]) == [("stray:bad_length", stream[:12])]


def test_exceptions_and_errors_are_named_by_their_headers() -> None:
    thrown = aws_message(
        {":message-type": text_header("exception"), ":exception-type": text_header("throttlingException")}, b"{}"
    )
    failed = aws_message(
        {":message-type": text_header("error"), ":error-code": text_header("Z"), ":error-message": text_header("m")},
        b"",
    )
    assert read(AWSFrames(), [thrown + failed]) == [
        ("throttlingException", b"{}"),
        ("error", b'{"code":"Z","message":"m"}'),
    ]


def test_an_incomplete_frame_is_reported() -> None:
    message = aws_message({}, b"payload")
    assert read(AWSFrames(), [message, message[:-1]]) == [("", b"payload"), ("stray:", message[:-1])]


# Which framing it is

AWS = aws_message({":event-type": text_header("messageStart")}, b'{"role":"assistant"}')
BODIES: dict[str, tuple[bytes, Seen]] = {
    "sse": (b'data: {"a":1}\n\n: x\n\ndata: [DONE]\n\n', [("", b'{"a":1}'), ("", b"[DONE]")]),
    "sse that begins with a comment": (b": waiting for it\n\ndata: {}\n\n", [("", b"{}")]),
    "sse that begins with a name": (b"event: ping\ndata: {}\n\n", [("ping", b"{}")]),
    "json": (b'{"a": {"b": [1]}}', [("", b'{"a": {"b": [1]}}')]),
    "json and done": (b'{"a": 1, "bcd": 2}\ndata: [DONE]\n\n', [("", b'{"a": 1, "bcd": 2}'), ("", b"[DONE]")]),
    "array": (b'[{"a":1}\n,\r\n{"b":2}]', [("", b'{"a":1}'), ("", b'{"b":2}')]),
    "aws": (AWS, [("messageStart", b'{"role":"assistant"}')]),
    "markup": (b"<html><body>502</body></html>", [("stray:not_a_stream", b"<html><body>502</body></html>")]),
    "gzip": (packed := gzip.compress(b"data: {}\n\n", mtime=0), [("stray:compressed", packed)]),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00\x51", [("stray:compressed", b"\x28\xb5\x2f\xfd\x04\x00\x51")]),
    "nothing": (b"", []),
    "blank": (b" \r\n\t\n ", []),
}


@each("usual", ["sse", "ndjson", "aws"])
@each(("body", "expected"), BODIES.values(), ids=list(BODIES))
@each("lead", [b"", b"\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \r\n"])
def test_the_framing_is_detected_by_the_first_bytes(usual: Any, body: bytes, expected: Seen, lead: bytes) -> None:
    if usual == "ndjson":
        expected = [
            (name, raw.replace(b"[DONE]", b"data: [DONE]") if body[:1] == b"{" else raw) for name, raw in expected
        ]
    for size in (1, 2, 5, 12, 13, 1000):
        assert [(name, raw.strip()) for name, raw in read(Body(usual), pieces_of(lead + body, size))] == expected


@given(st.sampled_from(["sse", "ndjson", "aws"]), st.data())
def test_cuts_do_not_show_for_any_bytes(usual: Any, data: st.DataObject) -> None:
    kinds = [sse_streams, st.lists(written, max_size=3).map(b"\n".join), st.binary(max_size=60), st.just(AWS)]
    body = b"".join(data.draw(st.lists(st.one_of(*kinds), max_size=3)))
    assert read(Body(usual), data.draw(cuttings(body))) == read(Body(usual), [body])


# Caps

CAP = 1000


@pytest.fixture
def small_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (frame, sse, ndjson, json_array, aws):
        monkeypatch.setattr(module, "MAX_FRAME_BYTES", CAP)


Wrap = Callable[[bytes], bytes]
FRAMINGS: dict[str, tuple[Callable[[], Framing], Wrap]] = {
    "sse": (SSE, lambda text: b'data: {"a":"' + text + b'"}\n\n'),
    "sse with crlf and names": (SSE, lambda text: b'event: e\r\ndata: {"a":"' + text + b'"}\r\n\r\n'),
    "sse without spaces": (SSE, lambda text: b'data:{"a":"' + text + b'"}\n\n'),
    "ndjson": (NDJSON, lambda text: b'{"a":"' + text + b'"}\n'),
    "ndjson over several lines": (NDJSON, lambda text: b'{\n"a":\n"' + text + b'"\n}\n'),
    "json": (JSONValues, lambda text: b'{"a":"' + text + b'"},'),
    "aws": (AWSFrames, lambda text: aws_message({}, b'{"a":"' + text + b'"}')),
}
every_framing = pytest.mark.parametrize(("make", "wrap"), FRAMINGS.values(), ids=list(FRAMINGS))


def told_values(framed: Seen) -> list[Any]:
    return [json.loads(raw)["a"] if not name.startswith("stray") else name for name, raw in framed]


@pytest.mark.usefixtures("small_cap")
@every_framing
def test_a_frame_beyond_the_cap_is_skipped_and_reported(make: Callable[[], Framing], wrap: Wrap) -> None:
    stream = wrap(b"before") + wrap(b"x" * (2 * CAP)) + wrap(b"after") + wrap(b"y" * (40 * CAP)) + wrap(b"last")
    expected = ["before", "stray:frame_too_large", "after", "stray:frame_too_large", "last"]
    for size in (1, 2, 3, 64, CAP, CAP + 1, len(stream)):
        assert told_values(read(make(), pieces_of(stream, size))) == expected


@pytest.mark.usefixtures("small_cap")
@every_framing
def test_the_cap_is_exact_for_every_cut(make: Callable[[], Framing], wrap: Wrap) -> None:
    around = CAP - len(wrap(b""))
    for length in range(around - 8, around + 8):
        stream = wrap(b"before") + wrap(b"x" * length) + wrap(b"after")
        whole = read(make(), [stream])
        for size in (1, 2, 3, 7, 100, CAP):
            assert read(make(), pieces_of(stream, size)) == whole


@pytest.mark.usefixtures("small_cap")
@every_framing
def test_a_frame_without_end_takes_bounded_memory(make: Callable[[], Framing], wrap: Wrap) -> None:
    framing, piece = make(), b"x" * CAP
    framing.feed(wrap(b"before") + wrap(b"x" * 3_000_000)[:500])
    tracemalloc.start()
    try:
        for _ in range(3000):
            framing.feed(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * CAP


def test_many_values_in_one_read_take_linear_time() -> None:
    stream = b'{"a":1}' * 60_000  # with a copy of the rest for each value, this would take minutes
    assert len(read(JSONValues(), [stream])) == 60_000


def test_the_frame_cap_is_32_mib() -> None:
    assert frame.MAX_FRAME_BYTES == 32 * 1024 * 1024
    [stray] = [
        item for item in SSE().feed(b"data: " + b"x" * (frame.MAX_FRAME_BYTES + 1)) if not isinstance(item, Frames)
    ]
    assert "MAX_FRAME_BYTES" in stray.note
