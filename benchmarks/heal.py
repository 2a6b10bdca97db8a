"""Healing in process: the CPU time per chunk of the OpenAI SDK, with and without a transport that heals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai

import penstock.heal
from benchmarks.clock import race
from benchmarks.report import Report, Table, say

CHUNKS = 2_000
ROUNDS = 7
TEXT = "text"
CALL = "one long call"
FIELDS = "one call with many fields"
MOST = 1.15
"""The target: the CPU time with healing, relative to that of the SDK alone."""
TOOLS: Any = [{"type": "function", "function": {"name": f"tool_{number}", "parameters": {"type": "object"}}} for number in range(5)]  # noqa: E501  # fmt: skip
WAYS = ("alone", "healed")


def _chunks(kind: str) -> list[bytes]:
    """A right response: a text, a call with one long string, or a call with many short values."""

    def frame(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return b"data: %b\n\n" % json.dumps(chunk).encode()

    if kind == TEXT:
        return [
            *(frame({"content": f"word {number} "}) for number in range(CHUNKS)),
            frame({}, "stop"),
            b"data: [DONE]\n\n",
        ]
    entry = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "tool_1", "arguments": '{"text": "'}}
    pieces = ["word "] * CHUNKS if kind == CALL else _cut(_many_fields())
    sent = [frame({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in (*pieces, '"}')]
    return [frame({"tool_calls": [entry]}), *sent, frame({}, "tool_calls"), b"data: [DONE]\n\n"]


def _many_fields() -> str:
    """The arguments after the beginning of a first string, up to the end of the last one."""
    rows = [{"id": number, "name": f"row {number}", "price": 1.5, "is_new": True} for number in range(CHUNKS // 13)]
    return f'", "rows": {json.dumps(rows)}, "note": "'


def _cut(text: str, size: int = 5) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


class _Played(httpx2.SyncByteStream):
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


def _runner(kind: str, *, heals: bool) -> Callable[[], object]:
    chunks = _chunks(kind)
    headers = {"content-type": "text/event-stream"}
    transport: Any = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, stream=_Played(chunks)))
    if heals:
        transport = penstock.heal.transport(transport)
    client = openai.OpenAI(api_key="-", http_client=httpx2.Client(transport=transport))
    messages: Any = [{"role": "user", "content": "Go."}]

    def run() -> int:
        stream: Any = client.chat.completions.create(model="m", messages=messages, tools=TOOLS, stream=True)
        return sum(1 for _ in stream)

    return run


def measure() -> Report:
    """Measure both kinds of responses in turns."""
    report, rows = Report(), []
    for kind in (TEXT, CALL, FIELDS):
        say(f"openai {openai.__version__}, {kind}: {CHUNKS} chunks, with and without healing")
        best = race({way: _runner(kind, heals=way == "healed") for way in WAYS}, rounds=ROUNDS)
        alone, healed = (best[way] / CHUNKS * 1e6 for way in WAYS)
        verdict = report.judge(f"{kind}, healed", healed / alone, MOST)
        rows.append((kind, f"{alone:.1f} µs", f"{healed:.1f} µs", verdict))
        report.rows.append({"kind": kind, "alone": alone, "healed": healed})
    columns = ("response", "SDK alone", "with healing", "ratio")
    report.tables.append(Table("OpenAI SDK: CPU time per chunk, in process", columns, rows))
    return report
