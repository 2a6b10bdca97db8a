"""The habits of model servers through the gateway, as a user starts it: loops of the vendors' SDKs get every call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.testing import Loopback, ReceivedRequest
from tests.clients import loops
from tests.gateway_process import gateway_process
from tests.habits import ALL_HABITS, RIGHT, reply

HARD = 'penstock-42 "double" \'single\' \\ backslash\n\ttwo lines, é 日本 </b> <tool_call> {"a": [1, null]} `code`'
"""What a call prints, byte for byte."""
LOOPS = (loops.openai_chat, loops.openai_responses, loops.anthropic_messages)


def answer(request: ReceivedRequest) -> Any:
    """Two texts are expected of habits that need two calls."""
    habit = request.path.strip("/").partition("/")[0]
    texts = [HARD, f"{HARD} again"] if habit in ("one_index", "same_id") else [HARD]
    seen = [result.text for result in request.results]
    if len(seen) == len(texts):
        return RIGHT if seen == texts else f"wrong results: {seen}"
    calls = [("look", {"command": f"echo {text}"}) for text in texts]
    return reply(habit, calls[len(seen) :])


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    with (
        Loopback(answer) as server,
        gateway_process({habit: f"{server.url}/{habit}/v1" for habit in ALL_HABITS}) as address,
    ):
        yield address


def test_there_are_the_habits_that_agents_were_tried_with() -> None:
    assert len(ALL_HABITS) >= 43


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_every_client_gets_every_call_with_every_byte(gateway: str, loop: loops.Loop) -> None:
    answers = {habit: _last_text(loop, gateway, habit) for habit in ALL_HABITS}
    assert {habit: text for habit, text in answers.items() if text != RIGHT} == {}


def _last_text(loop: loops.Loop, gateway: str, habit: str) -> str:
    try:
        return loop(gateway, f"{habit}/local-model")
    except Exception as error:  # noqa: BLE001  # whatever the SDK raises is the answer of this habit
        return f"{type(error).__name__}: {error}"
