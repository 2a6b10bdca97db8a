"""Options are declared once: what repeats a signature for a type checker says the same."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import penstock
from penstock import ModelOptions, RequestOptions, Step
from penstock.agent.config import AgentConfig
from penstock.agent.options import AgentOptions
from penstock.agent.run_options import RunSettings
from penstock.model.options import StepOptions
from penstock.tools.options import ToolOptions
from tests import declared_options, reference_tables
from tests.cases import each
from tests.declared_options import COPIES, Copy


def declared(function: Callable[..., Any]) -> dict[str, str]:
    """The options in a signature, with their types as they are written."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.annotation for each in parameters if each.kind is not each.VAR_KEYWORD}


def fields(options: type) -> dict[str, str]:
    """The options of a typed dictionary, with their types as they are written."""
    return {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in options.__annotations__.items()}


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.name)
def test_a_class_that_repeats_a_signature_is_written_from_it(copy: Copy) -> None:
    text = (declared_options.SOURCES / copy.target).read_text(encoding="utf-8")
    assert declared_options.written(copy, text) == text, "make format"


def test_a_new_keyword_of_a_signature_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("agent", "tools"):
        (tmp_path / name).mkdir()
    for path in ("agent/agent.py", "agent/options.py"):
        text = (declared_options.SOURCES / path).read_text(encoding="utf-8")
        (tmp_path / path).write_text(
            text.replace('        name: str = "",\n', '        name: str = "",\n        x: int = 1,\n')
        )
    monkeypatch.setattr(declared_options, "SOURCES", tmp_path)
    text = (tmp_path / "agent/options.py").read_text(encoding="utf-8")
    assert "    name: str\n    x: int\n" in declared_options.written(COPIES[0], text)


def test_the_settings_of_a_run_have_the_types_of_the_agent() -> None:
    settings = {name: hint for name, hint in fields(RunSettings).items() if name not in fields(StepOptions)}
    assert settings.pop("deps")
    assert settings == {name: hint for name, hint in declared(penstock.Agent).items() if name in settings}


def test_the_options_of_a_request_have_the_types_of_ask() -> None:
    own = declared(penstock.Model.ask)
    for name in ("self", "messages", "tools", "output"):
        del own[name]
    request = {name: hint for name, hint in fields(RequestOptions).items() if name not in fields(ModelOptions)}
    assert request.pop("partial_arguments") == declared(penstock.Agent)["partial_arguments"]
    assert request == own
    assert fields(StepOptions).items() <= fields(RequestOptions).items()


@each("options", [ModelOptions, StepOptions, RequestOptions, AgentOptions, ToolOptions])
def test_the_types_of_options_can_be_read(options: type) -> None:
    assert [*get_type_hints(options)] == [*fields(options)]


BULLET = re.compile(r"^ *- ((?:`\w+`(?:, )?)+): ", re.MULTILINE)


@each(("function", "options"), [
    (penstock.Agent, {*declared(penstock.Agent)} - {"model", "tools"}),
    (penstock.Model, {*declared(penstock.Model)} - {"name"}),
    (penstock.tool, {*fields(ToolOptions)}),
    (ModelOptions, {*fields(ModelOptions)}),
])  # fmt: skip
def test_help_explains_each_option(function: Any, options: set[str]) -> None:
    explained = [name for names in BULLET.findall(inspect.getdoc(function) or "") for name in names.split(", ")]
    assert sorted(explained) == sorted(f"`{name}`" for name in options)


def test_the_configuration_of_an_agent_has_every_option() -> None:
    others = {"sources", "options", "callbacks", "is_read"}
    assert {*AgentConfig.__struct_fields__} - others == {*declared(penstock.Agent)}
    agent = penstock.Agent("sim:fast", name="x", separate_text=True, timeouts=penstock.Timeouts(idle=3))
    assert (agent.config.name, agent.config.separate_text, agent.config.partial_arguments) == ("x", True, False)
    assert agent.config.patience == (penstock.Timeouts(idle=3), None)
    assert {*fields(StepOptions)} & {*inspect.signature(Step.replace).parameters} == set()


# -- the reference -----------------------------------------------------------------------------------------------------


def test_the_tables_of_the_reference_are_made_from_the_code() -> None:
    pages = [page.read_text(encoding="utf-8") for page in reference_tables.PAGES]
    assert {name for page in pages for name in reference_tables.PLACE.findall(page)} == {*reference_tables.TABLES}
    assert [*map(reference_tables.written, pages)] == pages, "make format"


def test_a_table_has_types_and_defaults() -> None:
    table = reference_tables.TABLES["agent"]()
    assert '| [`approvals`](#agentapprovals) | `"pause"` or `"wait"` | `"pause"` | a run that waits only' in table
    assert "| [`models`](#agentbefore_step-agentmodels) | `Mapping[str, Model or str]` or" in table
    assert "| [`retries`](#toolretries) | `int` or `None` | `3` | how often" in reference_tables.TABLES["tool"]()
    assert "| `MAX_FRAME_BYTES` | 32 Mi | `penstock.framing` | How many bytes" in reference_tables.TABLES["buffers"]()
