"""`calls=`: several dialects at once, and the dialect that the name of a model gives."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.dialects.by_model import MODELS, find_dialect_of
from penstock.dialects.prompt import find_prompt
from penstock.testing import Scripted
from tests.dialect_page import NAMES
from tests.texts import calls_of

XML = '<function_calls><invoke name="ping"></invoke></function_calls>'
HERMES = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'


def ping() -> str:
    """Pings."""
    return "pong"


@pytest.mark.parametrize("text", [XML, HERMES])
def test_several_dialects_are_read_and_the_first_is_asked_for(text: str) -> None:
    script = Scripted([text])
    model = penstock.Model("vllm:some-model", via=script)
    turn = model.complete("Hi", tools=[ping], calls=["hermes", "xml"])
    assert [call.name for call in turn.tool_calls] == ["ping"]
    assert "<tool_call>" in str(script.requests[0].body)
    parser = penstock.TextParser(["hermes", "xml"])
    assert calls_of(parser.feed(text) + parser.close()) == [("ping", {})]


def test_auto_is_native_or_the_dialect_of_the_model() -> None:
    assert penstock.Model("openai:gpt-5").choose_calls("auto") == "native"
    assert penstock.Model("vllm:Qwen/Qwen3-Coder-30B").choose_calls("auto") == "qwen3_coder"
    with pytest.raises(penstock.UsageError, match="the dialect of the model 'unheard-of' is not known"):
        penstock.Agent("vllm:unheard-of", tools=[ping], calls="auto")


@pytest.mark.parametrize("calls", [[], ["native", "xml"], ["auto"], [1]])
def test_a_wrong_list_of_dialects_is_refused(calls: Any) -> None:
    with pytest.raises(penstock.UsageError, match="calls must be"):
        penstock.Model("openai:gpt-5").choose_calls(calls)


def test_every_dialect_of_the_table_has_a_prompt_and_every_example_its_row() -> None:
    for row in MODELS:
        find_prompt(row.dialect)
    rows = {row.models: row.dialect for row in MODELS}
    assert {models: find_dialect_of(name) for models, name in NAMES.items()} == {name: rows[name] for name in NAMES}
