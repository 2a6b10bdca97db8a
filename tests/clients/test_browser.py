"""`useChat` of @ai-sdk/react, versions 6 and 7, in headless Chromium: the page of examples/react_chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clients.conftest import FOLDER, ROOT, run_node

DONE = "One moment. hold {GATE}GATE is open The gate is open."


@pytest.fixture(scope="module", params=["6", "7"])
def page(request: pytest.FixtureRequest, chromium: Path, server: str) -> Any:
    """What a person has seen on the page, in every scenario; the browser is opened once."""
    version = request.param
    run_node("page.mjs", str(ROOT / "examples" / "react_chat"), version, str(FOLDER / f"page{version}.html"))
    seen = run_node("browser.mjs", server, version, str(chromium))
    assert seen["problems"] == []
    return seen


def answer(scenario: Any, name: str = "shown") -> str:
    """The answer to a message that waits at a gate, without the name of the gate."""
    assert "error" not in scenario, scenario
    [question, text] = scenario[name]
    gate = question.removeprefix("hold ")
    return str(text).replace(f'{{"name":"{gate}"}}', "{GATE}").replace(f'"{gate} is open"', "GATE is open")


def test_a_message_is_answered_with_tools_and_answered_again(page: Any) -> None:
    seen = page["send"]
    assert seen["states"] == [["look", "output-available"], ["look", "output-available"], ["broken", "output-error"]]
    assert seen["shown"][1].endswith("Rome and Oslo are clear.")
    assert (seen["again"], seen["runs"]) == (seen["shown"], 2)


def test_a_person_approves_and_declines(page: Any) -> None:
    seen = page["approve"]
    assert seen["approved"] == [["pay", "output-available"]]
    assert seen["states"] == [["pay", "output-available"], ["pay", "output-denied"]]


def test_a_person_approves_after_a_reload(page: Any) -> None:
    assert page["approveAfterReload"]["shown"][1] == 'I will pay. pay {"amount":7}"paid 7" It is done.'


def test_a_tool_runs_in_the_browser(page: Any) -> None:
    assert page["clientTool"]["shown"][1].startswith("time_zone {}")
    assert "You are in " in page["clientTool"]["shown"][1]


def test_the_stop_button_ends_the_run(page: Any) -> None:
    seen = page["stop"]
    assert (seen["states"], seen["tools"]) == (["over", "over"], [["hold", "output-error"]])
    assert seen["shown"][3] == "You said: still there?"


def test_a_reload_in_mid_answer_loses_nothing(page: Any) -> None:
    seen = page["reload"]
    assert answer(seen, "during") == "One moment. hold {GATE}"
    assert answer(seen, "after") == answer(seen, "later") == DONE
    assert seen["runs"] == 1


def test_two_tabs_show_the_same_answer(page: Any) -> None:
    assert answer(page["twoTabs"], "first") == answer(page["twoTabs"], "second") == DONE


def test_a_page_reconnects_after_a_lost_connection(page: Any) -> None:
    assert answer(page["cut"]) == answer(page["cutAtTheEnd"]) == DONE


def test_the_page_installs_the_versions_that_are_tested() -> None:
    page = msgspec.json.decode((ROOT / "examples" / "react_chat" / "package.json").read_bytes())["dependencies"]
    tested = msgspec.json.decode((Path(__file__).parent / "package.json").read_bytes())["dependencies"]
    assert tested["ai7"] == f"npm:ai@{page['ai']}"
    assert tested["react-ai7"] == f"npm:@ai-sdk/react@{page['@ai-sdk/react']}"
    assert tested["react"] == page["react"]
