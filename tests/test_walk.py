"""The path of a text chunk through the code is short."""

from __future__ import annotations

from benchmarks.walk import MAX_FUNCTIONS, READ, walk
from penstock import Done, ToolEnd


def test_a_text_chunk_of_an_agent_passes_few_functions() -> None:
    walked = walk()
    assert isinstance(walked.events[-1], Done)
    assert {event.result.text for event in walked.events if isinstance(event, ToolEnd)} == {
        "Sunny in Rome.",
        "Sunny in Oslo.",
    }
    assert walked.of_a_text[0] == READ
    assert len(walked.of_a_text) <= MAX_FUNCTIONS, walked.of_a_text
