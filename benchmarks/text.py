"""Calls in text: the CPU time of a long value in four-character pieces, compared to one `str.find` per piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import penstock
from benchmarks.clock import race
from benchmarks.partial import exponent
from benchmarks.report import Report, Table, say

SIZES = (10_000, 100_000, 1_000_000)
PIECE = 4
LOOKS = 25.0
EXPONENT = 1.1
"""The targets: the multiple of one `str.find` per piece, and the exponent of the time."""
ROUNDS = 4
PROSE = "The quick brown fox jumps over the lazy dog, then sleeps: 1, 2, 3. "

CALLS = {
    "hermes": '<tool_call>{"name": "write", "arguments": {"text": "%s"}}</tool_call>',
    "anthropic_xml": '<function_calls><invoke name="write"><parameter name="text">%s</parameter></invoke>'
    "</function_calls>",
    "qwen3_coder": "<tool_call><function=write><parameter=text>%s</parameter></function></tool_call>",
    "glm45": "<tool_call>write<arg_key>text</arg_key><arg_value>%s</arg_value></tool_call>",
    "mistral_v11": '[TOOL_CALLS]write[ARGS]{"text": "%s"}',
    "harmony": '<|channel|>commentary to=functions.write<|message|>{"text": "%s"}<|call|>',
    "gemma4": '<|tool_call>call:write{text:<|"|>%s<|"|>}<tool_call|>',
    "pythonic": "[write(text='%s')]",
}


def measure() -> Report:
    report = Report()
    lines = [_line(dialect, report) for dialect in CALLS]
    columns = ["dialect", *(f"{size // 1000} KB" for size in SIZES), "exponent", "÷ str.find"]
    title = f"CPU µs for a {PIECE}-character piece of one long argument, and against `str.find` in each piece"
    report.tables.append(Table(f"Calls in text: {title}", columns, lines))
    return report


def _line(dialect: str, report: Report) -> list[str]:
    say(f"text, {dialect}")
    pieces = {size: _pieces(dialect, size) for size in SIZES}
    runs: dict[int, Callable[[], object]] = {size: partial(_read, dialect, pieces[size], size) for size in SIZES}
    runs[0] = partial(_look, pieces[SIZES[-1]])
    seconds = race(runs, rounds=ROUNDS)
    look = seconds.pop(0)
    slope, looks = exponent(seconds), seconds[SIZES[-1]] / look
    report.rows.append({"dialect": dialect, "cpu_seconds": seconds, "exponent": slope, "looks": looks})
    return [
        dialect,
        *(f"{time / len(pieces[size]) * 1e6:.2f}" for size, time in seconds.items()),
        report.judge(f"{dialect}, exponent", slope, EXPONENT),
        report.judge(f"{dialect}, against str.find", looks, LOOKS),
    ]


def _pieces(dialect: str, size: int) -> list[str]:
    text = CALLS[dialect] % _value(size)
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _value(size: int) -> str:
    return (PROSE * (size // len(PROSE) + 1))[:size]


def _read(dialect: str, pieces: Sequence[str], size: int) -> None:
    parser = penstock.TextParser(dialect)
    calls: list[penstock.StreamChunk] = []
    for piece in pieces:
        events = parser.feed(piece)
        if events and type(events[-1]) is penstock.ToolCall:
            calls.append(events[-1])
    calls += [event for event in parser.close() if type(event) is penstock.ToolCall]
    if [call.arguments for call in calls if isinstance(call, penstock.ToolCall)] != [{"text": _value(size)}]:
        raise AssertionError(f"{dialect} did not give back the call that was written")


def _look(pieces: Sequence[str]) -> None:
    for piece in pieces:
        piece.find("</parameter>")
