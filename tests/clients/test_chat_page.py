"""The page in the box in headless Chromium: what a person sees, with the keyboard, and in a narrow window."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import FOLDER, ROOT, run_node

TOKEN = "a-long-secret-token"
HELD = "One moment."


@contextmanager
def serving(*arguments: str) -> Generator[str]:
    """The address of a server."""
    command = [sys.executable, "-m", "tests.clients.chat_server", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="module")
def seen(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a person has seen in every scenario; the browser is opened once."""
    chromium, folder = FOLDER / "chromium", tmp_path_factory.mktemp("chat")
    if not (chromium / "fonts.conf").exists():  # the last file that is written
        run_node("chromium.mjs", str(chromium))
    with ExitStack() as stack:
        url = stack.enter_context(serving(str(folder / "runs.db")))
        with_token = stack.enter_context(serving(str(folder / "others.db"), TOKEN))
        return run_node("chat_page.mjs", url, str(chromium), with_token, TOKEN)


@pytest.fixture
def of(seen: Any, request: pytest.FixtureRequest) -> Any:
    """What was seen in the scenario that a test names."""
    scenario = seen[request.param]
    assert "error" not in scenario, scenario
    return scenario


def scenario(name: str) -> Any:
    return pytest.mark.parametrize("of", [name], indirect=True, ids=[""])


def test_the_page_has_no_errors_and_asks_nobody_else(seen: Any) -> None:
    assert (seen["problems"], seen["elsewhere"]) == ([], [])


@scenario("send")
def test_a_message_is_answered_with_tools_and_a_timeline(of: Any) -> None:
    assert of["tools"] == [["done", True], ["done", True]]
    assert of["shown"][-1] == "Rome and Oslo are both clear, at 21 °C. The wind is light and comes from the south-west."
    assert of["rows"] == ["Request 1", "Thinking", "Text", "weather", "weather", "Request 2", "Text"]
    assert of["saved"].startswith("early start saved ")
    assert re.search(r" tokens · \$0\.00\d+", of["summary"])
    assert of["announced"].startswith("Answer: Rome and Oslo")
    assert of["hash"] == 33


@scenario("earlyTool")
def test_a_tool_that_starts_early_is_drawn_until_its_end(of: Any) -> None:
    assert of["spans"] == [["arguments", 1, 2], ["tool", 2, 7]], "the call is confirmed at 3"


@scenario("toolTimes")
def test_a_tool_is_drawn_while_its_function_ran(of: Any) -> None:
    assert of["spans"][0] == [["tool", 2.25, 5.25]], "its end is reported at 6, when its call is confirmed"
    assert of["spans"][1] == [["tool", 6.5, 7.5]], "the clock of the tool differs from that of the log"
    assert of["time"] == "12 ms"
    assert of["saved"] == 2.5, "the effect follows the read: 6 + 3 + 1 instead of 7.5"


@scenario("growing")
def test_arguments_grow_field_by_field(of: Any) -> None:
    assert of["prefixes"]
    assert of["half"] == 'cityRo"'
    assert of["final"] == [
        ["city", 'Ro"me\n€😀'], ["list", '[1,{"a":"x,y}\\""}]'], ["flag", "true"], ["empty", "{}"],
        ["number", "-1500"], ["text", "\x07end"],
    ]  # fmt: skip


@scenario("approve")
def test_a_person_approves_after_a_reload_and_declines(of: Any) -> None:
    assert "A-1042" in of["request"]
    assert of["states"] == ["done", "declined"]
    assert "refunded 25.5 for A-1042" in of["shown"]


@scenario("preview")
def test_a_difference_has_colored_lines_until_the_call_runs(of: Any) -> None:
    assert of["lines"] == [
        ["", "--- basket.py"],
        ["", "+++ basket.py"],
        ["hunk", "@@ -1,2 +1,2 @@"],
        ["", " def total(prices, discount):"],
        ["removed", "-    return sum(prices) - discount"],
        ["added", "+    return sum(prices)"],
    ]
    assert "basket.py changed" in of["shown"]
    assert not any("@@" in each for each in of["shown"])


@scenario("answerQuestions")
def test_a_person_answers_questions_and_gives_results(of: Any) -> None:
    assert "booked number=4 window=True" in of["shown"]
    assert "Bergen" in of["shown"]


@scenario("stop")
def test_a_message_is_added_and_the_escape_key_ends_the_run(of: Any) -> None:
    assert of["states"] == ["over", "over"]
    assert {"and hurry", "Stopped.", "You said: still there?"} <= {*of["shown"]}


@scenario("reload")
def test_a_reload_in_mid_answer_loses_nothing(of: Any) -> None:
    assert of["during"] == of["after"] == ["hold reload", HELD, "hold", "running", "name reload"]
    assert of["end"] == ["hold reload", HELD, "hold", "done", "name reload", "reload is open", "The gate is open."]
    assert of["runs"] == 1


@scenario("reconnect")
def test_a_page_reconnects_by_itself(of: Any) -> None:
    assert of["shown"] == ["hold cut", HELD, "hold", "done", "name cut", "cut is open", "The gate is open."]


@scenario("twoTabs")
def test_two_tabs_show_the_same_conversation(of: Any) -> None:
    assert of["first"] == of["second"]
    assert of["first"][-2:] == ["hello", "You said: hello"]


@scenario("nested")
def test_an_agent_that_runs_as_a_tool_is_shown_inside_of_its_call(of: Any) -> None:
    assert of["inside"] == ["weather"]
    assert of["shown"][-1] == "The research is done."
    assert of["shown"].count("The sky is clear.") == 1


@scenario("errors")
def test_errors_are_explained(of: Any) -> None:
    assert "failed" in of["shown"]
    assert "This is lost." not in " ".join(of["shown"])
    assert "The response broke off. The model was asked again." in of["shown"]
    assert "secret words" not in " ".join(of["shown"])
    assert of["shown"][-1].startswith("The run failed.")


@scenario("html")
def test_markup_of_a_model_stays_text(of: Any) -> None:
    assert (of["title"], of["images"]) == ("Penstock", 0)
    assert of["shown"][-1].startswith("<img src=x onerror=")


@scenario("agents")
def test_an_agent_is_picked_and_an_earlier_conversation_opened(of: Any) -> None:
    assert (of["who"], of["shown"]) == ("echo", ["hi", "You said: hi"])


@scenario("long")
def test_thousands_of_events_do_not_stop_the_page(of: Any) -> None:
    assert (of["characters"], of["last"]) == (138890, "Line 4999 of a long answer.")
    assert of["slowest"] < 2000


@scenario("signIn")
def test_a_token_is_exchanged_for_a_cookie_that_the_page_cannot_read(of: Any) -> None:
    assert of["refused"] == "This is not the token of the server."
    assert of["shown"] == ["hi", "You said: hi"]
    assert "penstock_session" not in of["kept"]
    assert TOKEN not in of["kept"]


@scenario("keyboard")
def test_everything_can_be_reached_with_the_keyboard(of: Any) -> None:
    order = of["order"]
    reached = [order.index(name) for name in ("agents", "new", "Approve", "Decline", "prompt", "stop", "send")]
    assert reached == sorted(reached)
    assert of["states"] == ["declined"]
    assert of["announced"].startswith("Answer: ")


@scenario("names")
def test_every_control_has_a_name_and_headings_have_an_order(of: Any) -> None:
    assert (of["unnamed"], of["doubleIds"], of["language"]) == ([], [], "en")
    assert all(level <= before + 1 for before, level in zip(of["levels"], of["levels"][1:], strict=False))


@scenario("contrast")
def test_text_has_enough_contrast(of: Any) -> None:
    assert of == {"light": [], "dark": []}


@scenario("narrow")
def test_nothing_is_wider_than_the_window(of: Any) -> None:
    assert of["wide"] == []
