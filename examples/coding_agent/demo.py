"""The demo: a small project with a bug, and a scripted model that finds and fixes it. It needs no key."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import penstock
from penstock.testing import ReceivedRequest, Reply, Scripted, call, say, wait

PROMPT = "The test of the basket fails. Please fix it."
FILES = {
    "basket.py": '''\
"""A basket of a shop."""


def total(prices: list[int], discount: int = 0) -> int:
    """The sum of the prices in cents, less a discount in percent."""
    return sum(prices) - discount
''',
    "test_basket.py": """\
import unittest

from basket import total


class TotalTest(unittest.TestCase):
    def test_a_discount_is_a_percentage(self) -> None:
        self.assertEqual(total([1000, 1000], discount=10), 1800)
""",
}
OLD, NEW = "return sum(prices) - discount\n", "return sum(prices) * (100 - discount) // 100\n"
TEST = f'"{sys.executable}" -m unittest -q'
CHANGED = "basket.py: changed"
END = "That is all I did"
LOOKING = Reply(
    say("I look at the project first."),
    call("glob", {"pattern": "**/*.py"}),
    call("read", {"path": "basket.py"}),
    call("grep", {"expression": "discount", "files": "test_*.py"}),
)
CHANGING = Reply(
    say("The discount is a percentage, but the code subtracts it as cents."),
    wait(1),
    call("edit", {"path": "basket.py", "old": OLD, "new": NEW}),
    call("bash", {"command": TEST}),
)


def create_project(folder: Path) -> None:
    """Write the files of the project, unless the folder exists."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")


def demo_model() -> penstock.Model:
    """A model that plays the script at the pace of a real one."""
    return penstock.Model("openai:scripted", via=Scripted(_reply, pace=0.02))


def _reply(request: ReceivedRequest) -> Reply:
    """The next reply: it depends on what is in the history."""
    history = json.dumps(dict(request.body), ensure_ascii=False)
    heard = "" if request.prompt == PROMPT else f"You said “{request.prompt}”; a real model would follow that. "
    if PROMPT not in history or END in history:
        return Reply("This is a scripted demo. Start me with a model: -m anthropic:claude-sonnet-5")
    if LOOKING.text not in history:
        return LOOKING
    if CHANGING.text not in history:
        return Reply(say(heard), *CHANGING.parts)
    if "[exit code 0]" in history:
        return Reply(f"{heard}{END}: `total` takes the discount as a percentage, and the test passes.")
    if CHANGED in history:
        return Reply(f"{heard}{END}: the change is not tested, as you wished.")
    return Reply(f"{heard}{END}: nothing was changed, as you wished.")
