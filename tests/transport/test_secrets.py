"""Secrets of a request appear in no output, wherever and in whatever form a server sends them back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import socket
import stat
import sys
import threading
import traceback
from collections.abc import Iterator
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import penstock
from penstock import Error, Finish, Retries, Retry, StreamChunk, Unknown, Usage
from penstock.cli.kept_file import HistoryFile, KeptFile
from penstock.cli.questions import call_text
from penstock.events import encode
from penstock.log import RunRow
from penstock.redaction import Mask
from penstock.run import events as run_events
from penstock.testing import Loopback, Raw, Redirect, Scripted
from penstock.transport.redacted import MAX_NAMES, Redactor
from tests.dresses import ENCODINGS, ESCAPES
from tests.support import Vector, frame_bytes, vectors

KEY = "sk-hidden/0123+4567=89"
PASSWORD = "correct-horse-battery"
CONTENT_TYPES = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}
SERVER_WORDS = (Error, Finish, Retry, Unknown, Usage)
NO_RETRIES = Retries(attempts=0)
few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

keys = st.text("".join(map(chr, range(33, 127))), min_size=12, max_size=60).filter(lambda key: len(set(key)) > 7)
dresses = st.one_of(
    st.lists(st.sampled_from(list(ESCAPES.values())), max_size=3),
    st.tuples(st.sampled_from(list(ENCODINGS.values())), st.sampled_from(list(ESCAPES.values()))),
)


def views(text: str) -> Iterator[str]:
    """A text as it is, and as a reader might decode it."""
    for _ in range(4):
        yield text.lower()
        text = unquote(unescape(text))
        try:
            text = json.loads(f'"{text}"')
        except ValueError:
            pass


def assert_hidden(output: str, key: str, form: str = "") -> None:
    for view in views(output):
        assert key.lower() not in view
        assert not form or form.lower() not in view


def error_output(error: BaseException) -> str:
    """Everything that an exception says, with the exceptions that it refers to."""
    chain = [error]
    while following := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(following)
    lines = [f"{one} {one!r} {vars(one)} {json.dumps(getattr(one, 'raw', None))}" for one in chain]
    return "\n".join([*lines, *traceback.format_exception(error), repr(vars(pickle.loads(pickle.dumps(error))))])


def chunk_output(chunk: StreamChunk) -> str:
    return f"{chunk!r} {encode(chunk).decode()}" if isinstance(chunk, SERVER_WORDS) else ""


def output(step: Any, key: str, wire: Any = "openai-chat", **options: Any) -> str:
    """What a caller gets from a response, apart from what the model produced."""
    options = {"api_key": key, "retries": NO_RETRIES, "via": Scripted(step), "wire": wire} | options
    model = penstock.Model("openai-compatible:m", **options)
    try:
        with model.stream("Hi") as stream:
            return "".join(map(chunk_output, stream)) + repr(stream) + repr(stream.error)
    except penstock.ProviderError as error:
        return error_output(error)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all strings in a JSON value; a path to a key ends with None."""
    match value:
        case str():
            yield path
        case dict():
            for name, item in value.items():
                yield (*path, name, None)
                yield from places(item, (*path, name))
        case list():
            for at, item in enumerate(value):
                yield from places(item, (*path, at))


def changed(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """The value with another text at a place."""
    match path:
        case ():
            return text
        case (name, None):
            return {text if key == name else key: item for key, item in value.items()}
        case (step, *rest):
            items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
            made = [(key, changed(item, tuple(rest), text) if key == step else item) for key, item in items]
            return dict(made) if isinstance(value, dict) else [item for _, item in made]
    raise AssertionError(path)


def dressed(key: str, dress: Any) -> str:
    for put_on in dress:
        key = put_on(key)
    return key


VECTORS = [vector for vector in vectors() if any(isinstance(frame, dict) for frame in vector.frames)]


@given(st.sampled_from(VECTORS), st.randoms(use_true_random=False), keys, dresses)
@settings(few, max_examples=150)
def test_a_key_at_any_place_of_a_stream_in_any_form_is_hidden(
    vector: Vector, random: Any, key: str, dress: Any
) -> None:
    form = dressed(key, dress)
    at = random.choice([at for at, frame in enumerate(vector.frames) if isinstance(frame, dict)])
    found = list(places(vector.frames[at]))
    assume(found)
    frames = list(vector.frames)
    frames[at] = changed(frames[at], random.choice(found), form)
    try:
        body = b"".join(frame_bytes(vector.wire, frame) for frame in frames)
    except (KeyError, ValueError, UnicodeEncodeError):  # the frame has another shape now
        assume(False)
    step = Raw(body, content_type=CONTENT_TYPES.get(vector.wire, "text/event-stream"))
    assert_hidden(output(step, key, vector.wire), key, form)


ERRORS = [
    {"error": {"message": "no {}", "code": "x", "type": "y"}},
    {"error": {"message": "no", "code": "{}"}},
    {"error": {"message": "no", "type": "{}"}},
    {"error": {"message": "no", "{}": [{"{}": 1}, "{}"]}},
    {"error": "no {}"},
    {"detail": {"{}": "{}"}},
    [{"error": {"message": "no {}", "status": "{}"}}],
    "{}",
]


@given(st.sampled_from([400, 401, 404, 413, 429, 500, 302]), st.sampled_from(ERRORS), keys, dresses)
@few
def test_a_key_at_any_place_of_an_error_body_is_hidden(status: int, body: Any, key: str, dress: Any) -> None:
    form = dressed(key, dress)
    for path in list(places(body)):
        text = json.dumps(changed(body, path, f"no {form} there"))
        assert_hidden(output(Raw(text.encode(), "application/json", status), key), key, form)


@given(keys, dresses, st.integers(0, 600))
@few
def test_a_key_in_a_page_or_a_text_is_hidden(key: str, dress: Any, before: int) -> None:
    form = dressed(key, dress)
    for text in (f"<html><title>{form}</title>", f"<p>{'x' * before} {form}</p>", f"{'x' * before}{form} y"):
        for encoding in ("utf-8", "utf-16"):
            assert_hidden(output(Raw(text.encode(encoding), "text/html", 502), key), key, form)


@given(
    keys,
    st.lists(
        st.sampled_from([dress for name, dress in ESCAPES.items() if name not in ("wrapped", "zero width", "nulls")]),
        max_size=3,
    ),
)
@few
def test_a_key_in_the_head_of_a_response_is_hidden(key: str, dress: Any) -> None:
    form = dressed(key, dress)
    for name in ("location", "x-request-id", "request-id", "cf-ray", "content-type", "retry-after"):
        for status in (302, 401, 429):
            assert_hidden(output(Raw(b"no", status=status, headers={name: form}), key), key, form)
    assert_hidden(output(Redirect(f"https://{form}.example/{form}?to={form}#{form}"), key), key, form)


@pytest.mark.parametrize("name", ["x-gateway", "authorization", "cookie", "x-tenant"])
def test_every_value_of_headers_is_hidden(name: str) -> None:
    value = f"session={KEY}; theme=dark" if name == "cookie" else f"Bearer {KEY}" if name == "authorization" else KEY
    body = json.dumps({"error": {"message": f"the header {name} is {KEY}"}}).encode()
    printed = output(Raw(body, "application/json", 401), "another-key-123", headers={name: value})
    assert KEY not in printed
    assert name in printed


def test_public_headers_are_shown() -> None:
    body = json.dumps({"error": {"message": "unknown beta tools-2027-01-01"}}).encode()
    step = Raw(body, "application/json", 400)
    assert "tools-2027-01-01" in output(step, KEY, headers={"anthropic-beta": "tools-2027-01-01"})


@pytest.mark.parametrize("value", [f"{KEY}\n", f"{KEY}\r\nx: y", f"{KEY}é", f"{KEY}\0", KEY.encode(), 5])
def test_a_header_that_cannot_be_sent_is_reported_without_its_value(value: Any) -> None:
    with pytest.raises(penstock.UsageError) as raised:
        penstock.Model("openai:m", api_key="-", headers={"x-gateway": value})
    assert KEY not in error_output(raised.value)
    assert "x-gateway" in str(raised.value)


class Failing:
    """An HTTP client that fails with a message that contains the request."""

    def build_request(self, *_: Any, **options: Any) -> Any:
        return options

    def send(self, request: Any, **_: Any) -> Any:
        try:
            raise OSError(f"cannot send {request['headers']}")
        except OSError as error:
            raise ConnectionError(f"cannot send {request['headers']['authorization']}") from error


class AsyncFailing(Failing):
    async def send(self, request: Any, **_: Any) -> Any:
        super().send(request)


def test_the_messages_of_the_http_client_and_their_causes_are_hidden() -> None:
    options: Any = {"api_key": KEY, "retries": NO_RETRIES, "base_url": "http://localhost:1/v1"}
    with pytest.raises(penstock.ConnectionFailed, match=r"cannot send \*\*\*") as raised:
        penstock.Model("vllm:m", client=Failing(), **options).complete("Hi")
    assert_hidden(error_output(raised.value), KEY)
    with pytest.raises(penstock.ConnectionFailed, match=r"cannot send \*\*\*") as raised:
        asyncio.run(penstock.Model("vllm:m", client=AsyncFailing(), **options).acomplete("Hi"))
    assert_hidden(error_output(raised.value), KEY)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_over_http_is_hidden(is_async: bool) -> None:
    body = json.dumps({"error": {"message": f"no {KEY}", KEY: KEY}}).encode()
    with Loopback([Raw(body, "application/json", 401, {"x-request-id": KEY})]) as server:
        model = penstock.Model("vllm:m", server.base_url("openai-chat"), KEY, retries=NO_RETRIES)
        with pytest.raises(penstock.AuthenticationError) as raised:
            asyncio.run(model.acomplete("Hi")) if is_async else model.complete("Hi")
    assert_hidden(error_output(raised.value), KEY)
    assert raised.value.request_id == "***"


@pytest.mark.parametrize("is_async", [False, True])
def test_the_password_of_a_proxy_is_hidden(is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def refuse() -> None:
            connection, _ = proxy.accept()
            with connection:
                connection.recv(65536)
                reason = f"HTTP/1.1 407 no {PASSWORD}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                connection.sendall(reason.encode())

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://user:{PASSWORD}@127.0.0.1:{proxy.getsockname()[1]}")
        model = penstock.Model("vllm:m", "https://provider.example/v1", KEY, retries=NO_RETRIES)
        with pytest.raises(penstock.ConnectionFailed, match="407") as raised:
            asyncio.run(model.acomplete("Hi")) if is_async else model.complete("Hi")
        thread.join(30)
    assert_hidden(error_output(raised.value), PASSWORD)


@pytest.mark.parametrize("library", ["httpx2", "httpx", "aiohttp"])
def test_the_logs_of_the_http_client_hide_secrets(library: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answer = Raw(b'data: {"choices":[]}\n\n', headers={"x-request-id": KEY})
    options: Any = {"api_key": KEY, "retries": NO_RETRIES, "timeouts": penstock.Timeouts(first_event=60)}

    async def ask_async(url: str) -> None:
        if library == "aiohttp":
            await penstock.Model("vllm:m", url, **options).acomplete("Hi")
            return
        async with import_module(library).AsyncClient() as client:
            await penstock.Model("vllm:m", url, client=client, **options).acomplete("Hi")

    with Loopback(lambda _: answer) as server:
        url = f"{server.base_url('openai-chat')}?api-key={KEY[::-1]}"
        asyncio.run(ask_async(url))
        if library != "aiohttp":
            with import_module(library).Client() as client:
                penstock.Model("vllm:m", url, client=client, **options).complete("Hi")
            assert "HTTP Request: POST" in caplog.text
            assert "x-request-id" in caplog.text
        penstock.Model("vllm:m", url, **options).complete("Hi")
    assert_hidden(caplog.text, KEY)
    assert_hidden(caplog.text, KEY[::-1])


def test_a_retry_and_an_error_after_the_start_are_hidden() -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
    error = f'data: {{"error":{{"message":"overloaded {KEY}","code":"{KEY}"}}}}\n\n'.encode()
    for retries in (NO_RETRIES, Retries(attempts=1, first_delay=0, after_start=True)):
        assert_hidden(output(Raw(chunk + error), KEY, retries=retries), KEY)


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "gemini", "ollama", "cohere", "openai-responses"])
def test_lone_surrogates_in_an_error_body_do_not_break_its_encoding(wire: Any, tmp_path: Path) -> None:
    body = b'{"error":{"message":"\\ud800 no","code":"\\udfff","\\ud801":["\\udc00",NaN,1e999]}}'
    model = penstock.Model(
        "openai-compatible:m", api_key=KEY, retries=NO_RETRIES, wire=wire,
        via=Scripted(lambda _: Raw(body, "application/json", 401)),
    )  # fmt: skip
    with pytest.raises(penstock.AuthenticationError) as raised:
        model.complete("Hi")
    raised.value.message.encode()
    event = Error(raised.value.message, raised.value.code, raw=raised.value.raw)
    assert penstock.events.decode(encode(event)) == event
    agent = penstock.Agent(model)
    with agent.stream("Hi") as run:
        for chunk in run:
            run_events.encode(chunk)
    run.dump()


def test_a_deeply_nested_error_body_is_an_error() -> None:
    for depth in (500, 900, 3_000, 30_000):
        body = b'{"error":{"message":"no","more":' + b"[" * depth + b"]" * depth + b"}}"
        model = penstock.Model("vllm:m", api_key=KEY, via=Scripted(Raw(body, "application/json", 401)))
        with pytest.raises(penstock.AuthenticationError, match="no"):
            model.complete("Hi")


@given(keys, dresses, st.integers(1, 9))
@few
def test_a_recording_holds_no_key_in_any_form(tmp_path_factory: Any, key: str, dress: Any, cut: int) -> None:
    form = dressed(key, dress)
    chunk = {
        "choices": [{"index": 0, "delta": {"content": f"Your key is {form}."}, "finish_reason": "stop"}],
        form: form,
    }
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    file = tmp_path_factory.mktemp("recordings") / "talk.jsonl"
    raw = Raw(body, headers={} if not form.isprintable() or not form.isascii() else {"x-request-id": form})
    output(raw, key, via=Scripted([raw], cuts=cut), record=file, headers={"x-gateway": key[::-1]})
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    text = "".join(line.get("text", "") for line in lines)
    for kept_text in (text, file.read_text(encoding="utf-8"), repr(lines)):
        assert_hidden(kept_text, key, form)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_recordings_histories_and_states_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("recording", "history", "state")]
    before = os.umask(0)
    try:
        output(Raw(b"data: [DONE]\n\n"), KEY, record=files[0])
        assert not HistoryFile(files[1]).write([penstock.messages.user("Hi")])
        assert not KeptFile(files[2], "run").write(b"{}")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    files[2].chmod(0o640)  # the owner's decision
    assert not KeptFile(files[2], "run").write(b"[]")
    assert stat.S_IMODE(files[2].stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == sorted(files)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_log_can_be_read_by_its_owner_only(umask: int, is_link: bool, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    if is_link:
        path.symlink_to(tmp_path / "moved.db")
    before = os.umask(umask)
    try:
        store = penstock.log.open(path)
        store.create(RunRow(id="a"), b"{}")
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    name = "moved.db" if is_link else "runs.db"
    assert {name, f"{name}-wal", f"{name}-shm"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_a_log_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    path.chmod(0o640)
    store = penstock.log.open(path)
    store.create(RunRow(id="a"), b"{}")
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o640}
    assert len([*tmp_path.iterdir()]) == 3
    store.close()


INVISIBLE = [*map(chr, (0, 0x1B, 0xA0, 0xAD, 0x34F, 0x115F, 0x180E, 0x200B, 0x200F, 0x202E, 0x2060, 0x2066, 0x2800,
                        0x3000, 0x3164, 0xD800, 0xFE0F, 0xFEFF, 0xFFA0, 0xE0041, 0xE0100))]  # fmt: skip


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda character: f"{ord(character):x}")
def test_invisible_characters_are_spelled_out_in_the_approval_prompt(character: str) -> None:
    text = f"a{character}b"
    prompt = call_text(text, {text: text, "list": [{text: text}]})
    assert character not in prompt
    assert prompt.count(character.encode("unicode_escape").decode()) == 5


def test_an_argument_key_cannot_look_like_other_arguments() -> None:
    assert call_text("pay", {"amount": 5, "to": "Bob"}) == "pay(amount=5, to='Bob')"
    assert call_text("pay", {"amount=5, to": "Eve"}) == "pay('amount=5, to'='Eve')"
    assert call_text("pay", {"to)": "\\u200b", "": 1}) == "pay('to)'='\\\\u200b', ''=1)"
    assert call_text("支付.v2", {"métrage": "ça"}) == "支付.v2(métrage='ça')"


@given(st.text(max_size=200), keys)
@few
def test_what_holds_no_secret_is_unchanged(text: str, key: str) -> None:
    mask = Mask({"authorization": f"Bearer {key}"})
    assume(not mask.occurs_in(text))
    assert mask.text(text) == text
    assert mask.data(text.encode("utf-8", "replace")) == text.encode("utf-8", "replace")


@given(st.text(max_size=30), st.text(max_size=30), keys, dresses)
@few
def test_only_the_secret_is_replaced(before: str, after: str, key: str, dress: Any) -> None:
    mask = Mask({"authorization": f"Bearer {key}"})
    assume(not mask.occurs_in(before) and not mask.occurs_in(after))
    masked = mask.text(f"{before} | {dressed(key, dress)} | {after}")
    assert masked.startswith(f"{before} |")
    assert masked.endswith(f"| {after}")


def test_names_of_counts_are_remembered_up_to_a_limit() -> None:
    redactor = Redactor(Mask({"authorization": KEY}))
    usage = Usage(raw={f"count_{number}": number for number in range(MAX_NAMES * 3)})
    assert redactor.chunk(usage) is usage
    assert len(redactor._names) == MAX_NAMES
