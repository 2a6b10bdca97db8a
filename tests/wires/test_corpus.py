"""The recorded corpus, if it is available: every recording decodes to its metadata, for any cuts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Finish, Opaque
from penstock.cli.wire_detection import detect_wire
from penstock.wires import find_wire, wire_name
from penstock.wires.shared.token_counts import count_tokens
from tests.budget import places
from tests.cases import each
from tests.support import NO_CORPUS, SHARED, decode_pieces, joined, pieces_of, random_pieces

WIRES = {
    "mistral": "openai-chat",
    "bedrock-converse": "bedrock",
    "bedrock-invoke-anthropic": "anthropic",
    "openai-completions": "openai-chat",
}
BLOCK = re.compile(rb".*?(?:\r\n\r\n|\n\n|\Z)", re.DOTALL)
NOT_SPOKEN = {"cohere-v1"}

CASES = sorted((SHARED / "corpus" / "cases").glob("*/meta.json")) if (SHARED / "corpus").is_dir() else []
pytestmark = pytest.mark.skipif(not CASES, reason=NO_CORPUS)


class Case:
    def __init__(self, path: Path) -> None:
        self.meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.expected = self.meta["expected"]
        self.wire: str = WIRES.get(self.meta["wire"], self.meta["wire"])
        self.path = path.parent
        self.is_object_wire = self.wire in ("gemini", "ollama")

    def body(self) -> bytes:
        return (self.path / "body").read_bytes()

    def tools(self) -> list[Any]:
        request = self.meta.get("request")
        tools = request.get("tools") if isinstance(request, dict) else None
        return tools if isinstance(tools, list) else []


ALL = [Case(path) for path in CASES]
SPOKEN = [case for case in ALL if case.meta["wire"] not in NOT_SPOKEN]
every_case = each("case", SPOKEN, ids=lambda case: case.meta["id"])
some_cases = each("case", SPOKEN, ids=lambda case: case.meta["id"], parts=8, few=150)


def expected_calls(case: Case) -> list[dict[str, Any]]:
    return [
        call for call in case.expected["tool_calls"] if call["arguments"] is not None or call.get("kind") == "custom"
    ]


@every_case
def test_a_recording_decodes_to_its_metadata(case: Case) -> None:
    turn = penstock.collect(decode_pieces(case.wire, [case.body()]))
    expected = case.expected
    assert turn.text == expected["text"]
    assert turn.reasoning == expected["reasoning"]
    assert turn.refusal == expected.get("refusal", "")
    calls = expected_calls(case)
    assert [(call.name, call.kind) for call in turn.tool_calls] == [
        (c["name"], c.get("kind", "function")) for c in calls
    ]
    for call, wanted in zip(turn.tool_calls, calls, strict=True):
        assert wanted["id"] in (call.id, None, "")
        if wanted["arguments"] is not None:
            assert call.arguments == wanted["arguments"]
        if wanted["arguments_raw"] is not None:
            assert call.arguments_raw == wanted["arguments_raw"]
    cut = [call for call in expected["tool_calls"] if call not in calls]
    assert [(call.name, call.arguments_raw) for call in turn.invalid_calls] == [
        (c["name"], c["arguments_raw"]) for c in cut
    ]
    accepted = expected.get("finish_reason_accept") or [expected["finish_reason"] or "cut"]
    assert turn.finish_reason in accepted
    assert turn.raw_finish_reason == expected["finish_reason_raw"]
    assert_usage(turn, case.wire, expected["usage"])
    assert (turn.error.message if turn.error else None) == expected["error"]


@every_case
def test_hosted_tools_and_plans_are_kept_as_vendor_state(case: Case) -> None:
    turn = penstock.collect(decode_pieces(case.wire, [case.body()]))
    state = [part for part in turn.parts if isinstance(part, Opaque)]
    ran = [tool["type"] for tool in case.expected.get("server_tools", [])]
    assert [part.kind for part in state if part.kind in ran] == ran
    assert [part.data for part in state if part.kind == "tool_plan"] == [
        plan for plan in [case.expected.get("tool_plan")] if plan
    ]


def assert_usage(turn: penstock.Turn, wire: str, usage: dict[str, int] | None) -> None:
    """Compares the provider's own counts, which a recording's expectation has, with `raw`."""
    table = find_wire(wire_name(wire)).USAGE
    own = msgspec.structs.replace(
        table, more_input=(), total=(), cache_extent="included", reasoning_extent="included", parts={}
    )
    counts = count_tokens(own, turn.usage.raw if turn.usage else {})
    parts = count_tokens(table, turn.usage.raw if turn.usage else {})
    for key, count in (usage or {}).items():
        assert (counts if key in ("input_tokens", "output_tokens") else parts)[key] == (count or 0)


@some_cases
def test_cuts_do_not_show_in_a_recording(case: Case) -> None:
    body = case.body()
    whole = joined(decode_pieces(case.wire, [body]))
    cuttings = [pieces_of(body, 1), pieces_of(body, 4096), *(random_pieces(body, seed) for seed in range(3))]
    cuttings.append(BLOCK.findall(body))  # one frame per read, as models stream
    for cutting in cuttings:
        assert joined(decode_pieces(case.wire, cutting)) == whole


@some_cases
def test_every_prefix_of_a_recording_is_a_stream(case: Case) -> None:
    body = case.body()
    for end in places(len(body), few=25):
        events = decode_pieces(case.wire, [body[:end]])
        assert sum(isinstance(event, Finish) and event.choice == 0 for event in events) == 1


def test_the_wire_of_every_recording_is_detected() -> None:
    for case in SPOKEN:
        wire, _ = detect_wire([case.body()])
        is_whole_error = wire is None and case.expected["error"]
        assert wire == case.wire or is_whole_error, case.path.name
