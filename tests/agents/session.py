"""A model that goes through habits in one session of an agent: each step asks for a file, with the call in one habit.

    start ─▶ call in the habit ─▶ the agent comes back with a result ─▶ the file has the right bytes ─▶ next habit
                    │                                                          │ no
                    └─▶ the agent ends, or asks again without a result ─▶ wrong, and the session ends

A session ends at its first wrong habit, so that no habit suffers from the history of another one. The agent is then
started again with the habits that are left.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.declarations import ToolDeclaration
from penstock.testing import ReceivedRequest
from tests.agents.agents import PROMPT, CodingAgent
from tests.habits import Calls, reply

LAST = "FINAL: all steps are done."
STOPPED = "FINAL: a step went wrong."
_SHELL_EVERY = 4
"""Each fourth file is written by a command."""


class File(Struct, frozen=True):
    """A file that the agent has to write."""

    name: str
    content: str

    def problem(self, work: Path) -> str:
        """What is wrong with the file in the agent's repository; empty if its bytes are right."""
        path = work / self.name
        if not path.is_file():
            return "no file: the agent came back without it"
        found = path.read_bytes()
        return "" if found == self.content.encode() else f"other bytes: {found!r}"


class Step(Struct, frozen=True):
    """A response of the model: one call per file."""

    habit: str
    files: tuple[File, ...]
    by_shell: bool
    id: str


class Session:
    """The model of one agent, over all its starts. `on_result` gets each habit with its problem, "" for a right one."""

    def __init__(self, agent: CodingAgent, habits: Sequence[str], on_result: Callable[[str, str], None]) -> None:
        self._on_result = on_result
        self.active_at = time.monotonic()
        self._agent = agent
        self._steps = [step for number, habit in enumerate(habits) for step in _steps(habit, number, agent)]
        self._work = Path()
        self._open: Step | None = None
        self._results = 0
        self._has_ended = False
        self._tools: set[str] = set()

    @property
    def is_done(self) -> bool:
        """Whether every habit was played."""
        return not self._steps and self._open is None

    def start(self, work: Path) -> None:
        """Begin a session in a repository."""
        self._work, self._open, self._results, self._has_ended = work, None, 0, False
        self._tools = set()

    def stop(self, why: str) -> None:
        """The agent has ended: an open step never got its result."""
        if self._open is not None:
            self._fail(why)
        elif not self._has_ended:
            raise RuntimeError(f"{self._agent.name} ended before its first step: {why}")

    def answer(self, request: ReceivedRequest) -> Any:
        """The answer to a request of the agent."""
        self.active_at = time.monotonic()
        messages = request.body.get("messages") or []
        tools = {tool.name: tool for tool in request.tools}
        if self._agent.shell[0] not in tools or PROMPT not in json.dumps(messages):
            return "A title"
        self._tools = self._tools or set(tools)
        if self._tools != set(tools):  # an agent inside the agent
            return "Nothing to do."
        if self._has_ended:
            return STOPPED
        return self._next(tools, sum(message.get("role") == "tool" for message in messages))

    def _next(self, tools: dict[str, ToolDeclaration], results: int) -> Any:
        if step := self._open:
            problem = _problem(step, results - self._results, self._work)
            if problem:
                self._fail(problem)
                return STOPPED
            self._open = None
            if not self._steps or self._steps[0].habit != step.habit:
                self._on_result(step.habit, "")
        if not self._steps:
            self._has_ended = True
            return LAST
        self._open, self._results = self._steps.pop(0), results
        return reply(self._open.habit, calls_of(self._agent, tools, self._open, self._work), self._open.id)

    def _fail(self, problem: str) -> None:
        """The habit is wrong, with all its steps."""
        assert self._open is not None
        habit = self._open.habit
        self._steps = [step for step in self._steps if step.habit != habit]
        self._open, self._has_ended = None, True
        self._on_result(habit, problem)


def _steps(habit: str, number: int, agent: CodingAgent) -> list[Step]:
    """The steps of a habit: two with the same id, one with two calls, or one with one call."""
    by_shell = agent.write is None or number % _SHELL_EVERY == _SHELL_EVERY - 1
    files = [File(f"{habit}-{place}.txt", content(f"{habit} {place}")) for place in (1, 2)]
    match habit:
        case "one_index":
            return [Step(habit, tuple(files), by_shell, f"call_{number}")]
        case "same_id":
            return [Step(habit, (file,), by_shell, f"call_{number}") for file in files]
    return [Step(habit, (files[0],), by_shell, f"call_{number}")]


def content(title: str) -> str:
    """The content of a file: characters that are lost or changed where text is handled carelessly."""
    return (
        f"{title}: \"double\", 'single', é, 日本, 🙂, <b>&amp;</b>\n"
        '{"key": [1, "two", {"three": null}], "path": "C:\\\\temp\\\\new"}\n'
        "\tif a < b && $HOME != \"\" { print 'back\\slash' }  # 100%, two  spaces\n"
        "\n"
        "the last line\n"
    )


def _problem(step: Step, results: int, work: Path) -> str:
    if results < 1:
        return "no result: the agent asked again without one"
    problems = [problem for file in step.files if (problem := file.problem(work))]
    if problems:
        return problems[0]
    return "" if results == len(step.files) else f"{results} results: there should be {len(step.files)}"


def calls_of(agent: CodingAgent, tools: dict[str, ToolDeclaration], step: Step, work: Path) -> Calls:
    """The calls of a step, by the schemas of the agent's tools."""
    return [_call(agent, tools, file, step.by_shell, work) for file in step.files]


def _call(
    agent: CodingAgent, tools: dict[str, ToolDeclaration], file: File, by_shell: bool, work: Path
) -> tuple[str, dict[str, Any]]:
    if agent.write is None or by_shell:
        tool, parameter = agent.shell
        command = f"cat > {file.name} <<'PENSTOCK'\n{file.content}PENSTOCK\n"
        values: dict[str, Any] = {parameter: command}
    else:
        tool, path, text = agent.write
        values = {path: str(work / file.name), text: file.content}
    return tool, _filled(tools[tool], values)


def _filled(tool: ToolDeclaration, values: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the schema of a tool, with some value for each further parameter that is required."""
    properties: dict[str, Any] = tool.parameters["properties"]
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        if name in values:
            filled[name] = [values[name]] if schema.get("type") == "array" else values[name]
        elif name in tool.parameters.get("required", ()):
            filled[name] = {"string": "writes a file", "boolean": False, "array": []}.get(schema.get("type"), 10_000)
    return filled
