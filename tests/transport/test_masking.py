"""Redaction: secrets are masked in reprs, errors and recordings, also if a key is split across two reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock
from penstock.redaction import Mask, is_secret, without_secrets
from penstock.testing import Cutting, Loopback, Raw
from penstock.transport.commands import HTTPRequest
from tests.cases import each

KEY = "sk-hidden-0123456789"


@pytest.mark.parametrize(
    "name", ["Authorization", "x-api-key", "api-key", "cookie", "x-auth", "access_token", "X-Amz-Signature", "password"]
)
def test_secret_fields_are_recognised_by_name(name: str) -> None:
    assert is_secret(name)
    assert without_secrets(f"https://h.example/v1?{name}={KEY}&alt=sse") == "https://h.example/v1?alt=sse"
    assert KEY not in repr(HTTPRequest(f"https://h.example/v1?{name}={KEY}", {name: KEY}, b""))


@pytest.mark.parametrize("name", ["content-type", "anthropic-version", "api-version", "alt", "accept"])
def test_other_fields_are_shown(name: str) -> None:
    assert not is_secret(name)


def test_a_url_without_remaining_parameters_has_no_question_mark() -> None:
    assert without_secrets("https://h.example/v1") == "https://h.example/v1"
    assert without_secrets(f"https://h.example/v1?key={KEY}") == "https://h.example/v1"


@pytest.mark.parametrize("query", ["subscription-key", "access_token", "key"])
def test_an_invalid_base_url_is_reported_without_its_key(query: str) -> None:
    with pytest.raises(penstock.UsageError) as raised:
        penstock.Model("openai:m", base_url=f"ftp://h.example/v1?{query}={KEY}").base_url  # noqa: B018
    assert KEY not in str(raised.value)


def test_secrets_are_masked_with_and_without_their_scheme() -> None:
    mask = Mask({"Authorization": f"Bearer {KEY}", "x-title": "a title"}, f"https://h.example/v1?key={KEY[::-1]}")
    value = {"said": [f"no {KEY}", f"a title {KEY[::-1]}", 1, None]}
    assert mask.value(value) == {"said": ["no ***", "a title ***", 1, None]}
    assert mask.data(f"Bearer {KEY}.".encode()) == b"***."


def test_short_values_are_not_masked() -> None:
    assert Mask({"authorization": "Bearer none"}).data(b"there is none") == b"there is none"


@each("size", range(1, 30))
def test_a_key_that_is_split_in_two_is_masked(size: int) -> None:
    text = f"a {KEY} b {KEY}".encode()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    masked = list(Mask({"x-api-key": KEY}).pieces(pieces))
    assert list(map(len, masked)) == list(map(len, pieces))
    assert b"".join(masked) == f"a {'*' * len(KEY)} b {'*' * len(KEY)}".encode()


@pytest.mark.parametrize("cuts", [None, "bytes", 1, 2])
def test_a_recording_never_holds_the_key(cuts: Cutting, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    chunk = {"choices": [{"index": 0, "delta": {"content": f"Your key is {KEY}."}, "finish_reason": "stop"}]}
    with Loopback([Raw(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())], cuts=cuts) as server:
        model = penstock.Model("vllm:m", server.base_url("openai-chat"), KEY, record=file)
        turn = model.complete(f"Is {KEY} my key?")
    assert turn.text == f"Your key is {KEY}.", "what the model says is the caller's"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    text = "".join(line.get("text", "") for line in lines)
    assert "Your key is ***" in text
    assert KEY not in text + file.read_text()
