"""Hot reload of gateway.toml: a change counts when it was written whole, and a mistake keeps the old settings."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from penstock.gateway import Upstream, app
from penstock.gateway.config import settings_file
from penstock.gateway.config.file import settings_from
from penstock.gateway.config.settings_file import FileSettings, SettingsWatch, changed_sections
from penstock.gateway.fallbacks import FAILURES, Circuits
from penstock.gateway.routing import Candidate, find_candidates
from penstock.healing.settings import Healing
from penstock.inspector import Inspections
from penstock.testing import Loopback
from tests.asgi_client import serving
from tests.gateways import chat, delta, sse, text_of, web_server

ONE = '[upstreams.one]\nurl = "http://127.0.0.1:1/v1"\n'
TWO = f'model = "x"\n{ONE}'


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    write(path, ONE)
    return path


def changed(source: FileSettings) -> int:
    """The looks until a change counts, at most five."""
    return next((number for number in range(1, 6) if source.look()), 0)


def test_a_change_counts_when_two_looks_find_the_same_content(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.gateway")
    source = FileSettings(path)
    assert not changed(source)
    write(path, TWO)
    assert changed(source) == 2
    assert source.current.model == "x"
    assert f"read {path} again: model" in caplog.text
    assert not changed(source)


def test_half_a_file_is_never_used(path: Path) -> None:
    """It would be valid: a model that the file names further on would go to the first upstream."""
    source, text = FileSettings(path), f'{TWO}[upstreams.two]\nurl = "http://127.0.0.1:2/v1"\n'
    for end in range(1, len(text)):  # a slow writer: every look finds another piece
        write(path, text[:end])
        assert not source.look()
        assert (source.current.model, source.problem) == ("", "")
    write(path, text)
    assert changed(source) == 2
    assert [*source.current.upstreams] == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nonsense", "is not TOML"),
        (b"", "there is no upstream"),
        (b"\xff", "is not UTF-8"),
        (b"port = 1\n", "use --port"),
        (ONE.encode() + b"[models.m]\nto = 'two'", "there is no upstream 'two', only one"),
        (None, "cannot read"),
    ],
)
def test_a_mistake_is_reported_and_keeps_the_settings(
    content: bytes | None, words: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = FileSettings(path)
    before = source.current
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert changed(source) == 2
    assert source.current is before
    assert words in source.problem
    assert f"the settings are not changed: {source.problem}" in caplog.text
    assert not changed(source), "it is reported once"
    write(path, ONE)
    assert changed(source) == 2
    assert (source.current, source.problem) == (before, "")


def test_a_file_that_is_replaced_or_has_the_same_size_and_time_is_seen(path: Path) -> None:
    source, stat = FileSettings(path), path.stat()
    other = path.with_name("other")
    write(other, ONE.replace("one", "two"))
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)
    assert changed(source) == 2
    assert [*source.current.upstreams] == ["two"]


def test_a_file_that_was_only_touched_is_not_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.gateway")
    source = FileSettings(path)
    os.utime(path, (1, 1))
    assert not changed(source)
    assert caplog.text == ""


def test_the_changed_sections_are_named() -> None:
    def of(**tables: Any) -> Any:
        return settings_from({"upstreams": {"a": {"url": "http://x"}, "b": {"url": "http://y"}}, **tables})

    plain = of()
    assert changed_sections(plain, plain) == []
    assert changed_sections(plain, of(upstreams={"a": {"url": "http://z"}})) == ["upstreams.a", "upstreams.b"]
    assert changed_sections(plain, of(models={"m-*": {"to": "b"}})) == ["models.m-*"]
    assert changed_sections(plain, of(healing={"usage": False}, hosted_tools="refuse")) == ["healing", "hosted_tools"]
    turned = settings_from({"upstreams": {"b": {"url": "http://y"}, "a": {"url": "http://x"}}})
    assert changed_sections(plain, turned) == ["the order of the sections"]


def test_an_upstream_with_another_url_has_no_failures_yet() -> None:
    def at(url: str) -> Candidate:
        return Candidate(Upstream(name="one", url=url), "m", Healing())

    circuits = Circuits()
    for _ in range(FAILURES):
        circuits.of(at("http://127.0.0.1:1")).failed()
    assert circuits.of(at("http://127.0.0.1:1")).is_open
    assert not circuits.of(at("http://127.0.0.1:2")).is_open


def test_a_running_request_keeps_its_settings(path: Path) -> None:
    async def main() -> str:
        gate = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(sse(delta(content="Hi "), done=False))
            await gate.wait()
            await response.write(sse(delta(content="there."), delta("stop")))
            return response

        async with web_server(answer) as url:
            write(path, f'[upstreams.one]\nurl = "{url}/v1"\n')
            source = FileSettings(path)
            async with serving(app(settings=source)) as browser:
                connection = browser.connect("POST", "/v1/chat/completions", chat())
                await connection.reply.until("Hi ")
                write(path, ONE)
                assert changed(source)
                assert find_candidates(source.current, "m")[0].upstream.url == "http://127.0.0.1:1/v1"
                gate.set()
                await connection.task
                return text_of(connection.reply.body)

    assert asyncio.run(main()) == "Hi there."


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what happens elsewhere has no event
            await asyncio.sleep(0.005)


def test_a_mistake_is_shown_by_healed_and_by_the_inspector(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_file, "LOOK_SECONDS", 0.01)
    inspections = Inspections()

    async def main() -> None:
        async with serving(app(settings=FileSettings(path), inspections=inspections)) as browser:

            async def problem() -> str:
                return str((await browser.get("/healed")).json["settings_problem"])

            assert await problem() == ""
            feed = browser.connect("GET", "/inspect/exchanges")
            await feed.reply.until('event: alert\ndata: ""\n\n')
            write(path, "port = 1")
            await feed.reply.until("use --port")
            await feed.reply.until("The settings before this change are still used: ")
            assert "use --port" in await problem()
            write(path, TWO)
            await until(lambda: feed.reply.body.endswith(b'event: alert\ndata: ""\n\n'))
            assert await problem() == ""
            feed.leave()
            await feed.task

    asyncio.run(main())


def test_a_watch_survives_a_failing_look_and_ends_with_the_app(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_file, "LOOK_SECONDS", 0.001)
    source, calls = FileSettings(path), list[int]()

    def look() -> bool:
        calls.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(source, "look", look)
    watch = SettingsWatch(source, lambda: None)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        watch.open()
        watch.open()
        await until(lambda: len(calls) >= 3)
        watch.close()
        count = len(calls)
        await asyncio.sleep(0.02)
        assert len(calls) == count

    asyncio.run(main())


@contextmanager
def running(path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command with a file, and its address."""
    command = [sys.executable, "-m", "penstock", "gateway", "--port", "0", "--config", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "gateway to one on " in line
        yield process, line.split(" on ")[1].split("/v1")[0]
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def read(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return bytes(response.read())


def test_the_command_reads_a_changed_file_again_without_a_request(path: Path) -> None:
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    with Loopback(["Hi."]) as server, running(path) as (process, url):
        assert process.stderr is not None
        write(path, "nonsense")
        assert any("the settings are not changed" in line for line in iter(process.stderr.readline, ""))
        assert "is not TOML" in msgspec.json.decode(read(f"{url}/healed"))["settings_problem"]
        write(path, f'[upstreams.one]\nurl = "{server.base_url("openai-chat")}"\n')
        assert any("again: upstreams.one" in line for line in iter(process.stderr.readline, ""))
        assert text_of(read(f"{url}/v1/chat/completions", body)) == "Hi."


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no SIGHUP on this system")
def test_the_command_reads_its_file_again_on_sighup(path: Path) -> None:
    with running(path) as (process, _):
        assert process.stderr is not None
        process.send_signal(signal.SIGHUP)
        assert any("again: nothing changed" in line for line in iter(process.stderr.readline, ""))
