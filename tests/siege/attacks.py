"""The attacks, by name. Each goes on until it is cancelled."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from msgspec import Struct

from tests.siege.wire import Place, chat

Attack = Callable[[Place], Awaitable[None]]

MB = 1_000_000


class Named(Struct, frozen=True):
    """An attack on one of the servers."""

    name: str
    kind: str  # serve, or gateway
    play: Attack


# -- bodies ------------------------------------------------------------------------------------------------------------


def filled(unit: bytes, size: int) -> bytes:
    """A request whose body is full of one thing."""
    return b'{"model":"bad/good","messages":[{"role":"user","content":"x"}],"z":[' + unit * (size // len(unit)) + b"0]}"


def in_text(unit: bytes, size: int) -> bytes:
    """A request whose message is full of one thing."""
    text = unit * (size // len(unit))
    return b'{"model":"bad/good","stream":true,"messages":[{"role":"user","content":"' + text + b'"}]}'


BODIES: dict[str, Callable[[int], bytes]] = {
    "empty lists": partial(filled, b"[],"),
    "empty strings": partial(filled, b'"",'),
    "objects": partial(filled, b'{"a":1},'),
    "long numbers": partial(filled, b"7" * 4000 + b","),
    "small numbers": partial(filled, b"1,"),
    "nesting": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "escapes": partial(in_text, rb"\\"),
    "unicode escapes": partial(in_text, rb"\u0041"),
    "plain text": partial(in_text, b"word, word: word. "),
    "emojis": partial(in_text, b"word " * 6 + "\U0001f600".encode()),
    "tiny exponents": partial(filled, b"5e-324,"),
    "messages": lambda size: (
        b'{"model":"good","stream":true,"messages":['
        + b",".join([b'{"role":"user","content":"%b"}' % (b"x" * (size // 1900 - 30))] * 1900)
        + b"]}"
    ),
    "one key again and again": lambda size: b"{" + b'"a":1,' * (size // 6) + b'"a":1}',
}


async def repeat(path: str, body: bytes, place: Place, *, clients: int = 4) -> None:
    """Some clients that send a body again and again."""

    async def client() -> None:
        while True:
            await place.post(path, body)
            await asyncio.sleep(0.01)

    await every(client() for _ in range(clients))


# -- connections -------------------------------------------------------------------------------------------------------


async def hold(place: Place, *, count: int, begin: bytes, more: bytes = b"", pause: float = 2.5) -> None:
    """Many connections that begin with some bytes, send more now and then, and come again when they are closed."""
    gate = asyncio.Semaphore(100)  # so many are opened at once

    async def client() -> None:
        while True:
            with suppress(OSError):
                async with gate:
                    reader, writer = await place.connect()
                    writer.write(begin)
                with suppress(OSError):
                    await until_closed(reader, writer, more, pause)
                writer.close()
            await asyncio.sleep(0.5)

    await every(client() for _ in range(count))


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, more: bytes, pause: float) -> None:
    """Send more now and then, and read, until the other side closes the connection."""
    while True:
        try:
            async with asyncio.timeout(pause):
                while await reader.read(65536):
                    pass
                return
        except TimeoutError:
            if more:
                writer.write(more)


async def never_read(place: Place, head: bytes, *, count: int) -> None:
    """Clients that ask and do not read."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", place.port, limit=1024)
                stack.callback(writer.close)
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(head)
        await asyncio.sleep(3600)


async def pipeline(place: Place) -> None:
    """Many requests in one piece."""
    while True:
        await place.send(place.head("GET", "/healthz") * 20_000)


async def half_closed(place: Place) -> None:
    """Connections whose clients send nothing more."""

    async def client() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await place.connect()
                writer.write(place.head("GET", "/healthz"))
                writer.write_eof()
                await reader.read()
                writer.close()
            await asyncio.sleep(0.1)

    await every(client() for _ in range(200))


async def every(work: Iterable[Awaitable[None]]) -> None:
    await asyncio.gather(*work)


# -- requests ----------------------------------------------------------------------------------------------------------


async def many_starts(place: Place) -> None:
    """Runs, as fast as they can be started."""
    await repeat("/runs", b'{"prompt":"hello"}', place, clients=20)


async def many_readers(place: Place) -> None:
    """Readers of one run."""
    answer = await place.post("/runs", b'{"prompt":"long"}')
    run_id = json.loads(answer.partition(b"\r\n\r\n")[2])["id"]
    await hold(place, count=1999, begin=place.head("GET", f"/runs/{run_id}/events"), pause=60)


async def long_thread(place: Place) -> None:
    """A conversation of 12 MB, which many clients ask for."""
    prompt = "x" * MB
    for _ in range(12):
        await place.post("/v1/chat/completions", json.dumps(chat("agent", prompt)).encode())
        await place.post("/runs", json.dumps({"prompt": prompt, "thread": "long"}).encode())

    async def client() -> None:
        while True:
            await place.send(place.head("GET", "/threads/long"))

    await every(client() for _ in range(20))


def ask(model: str, *contents: str, clients: int = 2, is_streamed: bool = True) -> Attack:
    """Clients that ask a model of the upstream again and again."""
    body = json.dumps(chat(f"bad/{model}", *contents or ("hello",), tools=True, stream=is_streamed)).encode()

    async def client(place: Place) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await place.connect()
                writer.write(place.head("POST", "/v1/chat/completions", len(body), connection="close") + body)
                while await reader.read(1 << 20):
                    pass
                writer.close()

    async def play(place: Place) -> None:
        await every(client(place) for _ in range(clients))

    return play


def without_token(attack: Attack) -> Attack:
    return lambda place: attack(Place(place.kind, place.port, ""))


HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
HEALTH = HEAD.replace(b"/ ", b"/healthz ", 1) + b"\r\n"


def body_attacks(kind: str, path: str, size: int) -> list[Named]:
    """Bodies that take long to read."""
    return [
        Named(f"{size // MB} MB of {name}", kind, partial(_repeat, path, make, size)) for name, make in BODIES.items()
    ]


async def _repeat(path: str, make: Callable[[int], bytes], size: int, place: Place) -> None:
    await repeat(path, make(size), place)


def unfinished(path: str, size: int, count: int) -> Attack:
    """Bodies that do not end."""

    async def play(place: Place) -> None:
        await hold(place, count=count, begin=place.head("POST", path, size) + b" " * (size - 1), pause=60)

    return play


def slow(path: str, count: int) -> Attack:
    """Bodies that come byte by byte."""

    async def play(place: Place) -> None:
        await hold(place, count=count, begin=place.head("POST", path, 10_000), more=b" ", pause=0.5)

    return play


def connection_attacks(kind: str, idle: int) -> list[Named]:
    """Connections of clients without a token."""
    attacks: dict[str, Attack] = {
        "connections that ask for the health": partial(hold, count=2100, begin=HEALTH, more=HEALTH),
        f"{idle} idle connections": partial(hold, count=idle, begin=b""),
        "slow heads": partial(hold, count=500, begin=HEAD, more=b"x: y\r\n", pause=0.5),
        "long heads": partial(hold, count=50, begin=HEAD + b"x: " + b"y" * MB),
        "pipelined requests": pipeline,
        "half-closed connections": half_closed,
    }
    return [Named(name, kind, without_token(attack)) for name, attack in attacks.items()]


def hidden(make: Callable[[str], str], size: int) -> str:
    """A long message in which the commands of the calls are hidden."""
    words = " ".join(f"run {number} is what it says, and nothing else." for number in range(100))
    unit = make(words)
    return (unit + " ") * (size // (len(unit) + 1))


SOURCES: dict[str, Callable[[str], str]] = {
    "plain text": lambda text: text,
    "ligatures": lambda text: "\ufdfa" * (len(text) // 3),
    "escaped markup": lambda text: "&amp;amp;" * (len(text) // 9),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "escaped quotes": lambda text: '"\u2026" \\"' * (len(text) // 6),
    "percent escapes": lambda text: "%2541" * (len(text) // 5),
    "escaped letters": lambda text: "\\u0041" * (len(text) // 6),
}

RUNS, CHAT = "/runs", "/v1/chat/completions"
LONG_ANSWER = json.dumps(chat("agent", "long")).encode()
LONG_STREAM = json.dumps(chat("bad/endless", "hello")).encode()


def _never_read(body: bytes, count: int) -> Attack:
    async def play(place: Place) -> None:
        await never_read(place, place.head("POST", CHAT, len(body)) + body, count=count)

    return play


ATTACKS: list[Named] = [
    *body_attacks("serve", RUNS, 4 * MB),
    *connection_attacks("serve", 5000),
    Named("unfinished bodies", "serve", unfinished(RUNS, 4 * MB - 100, 60)),
    Named("slow bodies", "serve", slow(RUNS, 300)),
    Named("many starts", "serve", many_starts),
    Named("readers of one run", "serve", many_readers),
    Named("a long conversation", "serve", long_thread),
    Named("clients that do not read", "serve", _never_read(LONG_ANSWER, 50)),
    *body_attacks("gateway", CHAT, 32 * MB),
    *connection_attacks("gateway", 10_000),
    Named("unfinished bodies", "gateway", unfinished(CHAT, 31 * MB, 60)),
    Named("slow bodies", "gateway", slow(CHAT, 300)),
    Named("clients that do not read", "gateway", _never_read(LONG_STREAM, 50)),
    *(
        Named(f"2 MB of {name} to search", "gateway", ask("quoted", hidden(make, 2 * MB)))
        for name, make in SOURCES.items()
    ),
    *(
        Named(f"upstream: {name}", "gateway", ask(model))
        for model, name in {
            "calls": "100,000 calls", "line": "a line without end", "endless": "text without end",
            "comments": "comments without end", "bomb": "200 MB in 200 KB", "deep": "nesting",
            "head": "a head without end", "arguments": "arguments without end", "events": "600,000 events",
            "values": "frames of empty lists", "marks": "a frame of marks", "braces": "a frame of braces",
            "written": "a frame of calls in the text", "body": "100,000 calls in a body",
            "choices": "choices without end",
            "listed": "arguments of empty lists", "chunks": "chunks of one byte", "empty": "empty data without end",
            "deltas": "empty deltas without end", "strays": "odd lines without end",
            "unknown": "unknown frames without end",
            "blocks": "blocks without end",
        }.items()
    ),
    *(
        Named(f"upstream, not streamed: {name}", "gateway", ask(model, is_streamed=False))
        for model, name in {
            "calls": "100,000 calls", "endless": "text without end", "braces": "a frame of braces",
            "events": "600,000 events",
        }.items()
    ),
]  # fmt: skip


def by_name() -> dict[str, Any]:
    return {f"{attack.kind}: {attack.name}": attack for attack in ATTACKS}


SHORT = (
    "serve: 4 MB of empty lists", "serve: unfinished bodies", "gateway: 32 MB of nesting",
    "gateway: upstream: 100,000 calls", "gateway: upstream: 200 MB in 200 KB",
    "gateway: upstream: frames of empty lists",
    "gateway: upstream: a frame of braces", "gateway: upstream: 100,000 calls in a body",
)  # fmt: skip
"""The attacks of the short form."""
