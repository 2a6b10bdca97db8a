"""The documentation tells the truth: its code runs, and nothing public is missing from it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import penstock
from penstock import errors
from penstock.events import Fault, FinishReason, SealedBy
from penstock.wires import ALIASES, WIRES
from tests import quirks, streams
from tests.support import vectors

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def client() -> Any:
    """What the README calls `client`: something whose `create` gives parsed chunks."""
    chunks = [frame for frame in streams.openai_chat() if isinstance(frame, dict)]
    completions = SimpleNamespace(create=lambda **options: iter(chunks))
    return SimpleNamespace(chat=SimpleNamespace(completions=completions))


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_code_of_the_readme_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {
        "penstock": penstock,
        "data": [streams.body("openai-chat" if '"openai-chat"' in block else "anthropic")],
        "events": list(penstock.decode(streams.body("anthropic"), wire="anthropic")),
        "client": client(),
        "model": "m", "messages": [], "tools": [],
    }  # fmt: skip
    exec(block, names)
    said = capsys.readouterr().out
    if "PartialJSON" in block:
        assert said == "Dear reader"
    elif "print" in block:
        assert "weather" in said
    else:
        assert penstock.collect(names["events"]).tool_calls


def test_the_reference_names_everything_public() -> None:
    words = set(re.findall(r"[\w-]+", README + REFERENCE))
    public = set(penstock.__all__) | set(WIRES) | set(ALIASES)
    public |= {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    public |= {event.type for event in get_args(penstock.StreamChunk)}
    public |= {*get_args(FinishReason), *get_args(SealedBy), *get_args(Fault)}
    assert public - words == set()


# Of requests (148, 165), and of servers whose streams show nothing of what went wrong inside them (166-170).
UNDECIDABLE = {148, *range(165, 171)}


def test_every_quirk_that_a_decoder_can_decide_has_a_vector() -> None:
    covered = {number for vector in vectors() for number in vector.quirks}
    assert covered == set(range(1, 171)) - UNDECIDABLE


def test_the_page_of_quirks_is_up_to_date() -> None:
    assert (ROOT / "docs" / "quirks.md").read_text() == quirks.page(), "python -m tests.quirks > docs/quirks.md"
