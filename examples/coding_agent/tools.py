"""The tools of the agent. Reading is free; changes and commands run alone, in order, and a person approves them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import islice
from typing import Any

import penstock
from penstock import ToolError

from .shell import run_command
from .workspace import Change, Workspace, may_be_secret

MAX_LINES = 400
MAX_FOUND = 200
MAX_WIDTH = 300
COMMAND_SECONDS = 120.0

SAFE_COMMANDS = frozenset({"ls", "ls -la", "pwd", "git status", "git diff", "git diff --stat", "git log --oneline"})
"""Commands that run without approval, exactly as they are written here."""


def coding_tools(workspace: Workspace, allowed: Collection[str] = ()) -> list[penstock.Tool[..., Any]]:
    """The tools for a folder; the commands in `allowed` run without approval too."""

    @penstock.tool(read_only=True)
    def read(path: str, first_line: int = 1, lines: int = MAX_LINES) -> str:
        """Read a text file.

        Args:
            path: The path of the file, relative to the working folder.
            first_line: The line to start with, counted from 1.
            lines: How many lines to read.
        """
        whole = workspace.text(path).splitlines(keepends=True)
        start = max(first_line, 1) - 1
        part = whole[start : start + min(lines, MAX_LINES)]
        rest = len(whole) - start - len(part)
        return "".join(part) + (
            f"[{rest} more lines; continue with first_line={start + len(part) + 1}]" if rest > 0 else ""
        )

    @penstock.tool(read_only=True)
    def glob(pattern: str) -> str:
        """List the files whose paths match a pattern, such as `**/*.py`."""
        return _limited(list(islice(workspace.files(pattern), MAX_FOUND + 1)))

    @penstock.tool(read_only=True, timeout=30)
    def grep(context: penstock.Context, expression: str, files: str = "**/*") -> str:
        """Search the lines of files for a regular expression.

        Args:
            expression: A regular expression of Python.
            files: A pattern for the paths of the files, such as `src/**/*.py`.
        """
        try:
            search = re.compile(expression).search
        except re.error as error:
            raise ToolError(f"the expression is not valid: {error}") from None
        found: list[str] = []
        for name in workspace.files(files):
            if context.is_cancelled or len(found) > MAX_FOUND:
                break
            if may_be_secret(name):
                continue
            try:
                lines = workspace.text(name).splitlines()
            except ToolError:  # a binary or large file
                continue
            found += [f"{name}:{at}: {line[:MAX_WIDTH]}" for at, line in enumerate(lines, 1) if search(line)]
        return _limited(found)

    def plan_write(path: str, content: str) -> penstock.Prepared:
        return _planned(workspace.plan_write(path, content))

    @penstock.tool(parallel=False, approval=True, prepare=plan_write)
    def write(context: penstock.Context, path: str, content: str) -> str:
        """Create a file, or replace its whole content. Use edit for changes of an existing file."""
        return _apply(workspace, context.prepared)

    def plan_edit(path: str, old: str, new: str) -> penstock.Prepared:
        return _planned(workspace.plan_edit(path, old, new))

    @penstock.tool(parallel=False, approval=True, prepare=plan_edit)
    def edit(context: penstock.Context, path: str, old: str, new: str) -> str:
        """Replace a piece of text in a file.

        Args:
            path: The path of the file.
            old: The text to replace, exactly as it stands in the file; it must occur once.
            new: The text to put there.
        """
        return _apply(workspace, context.prepared)

    def needs_approval(arguments: dict[str, Any]) -> bool:
        return str(arguments["command"]).strip() not in {*SAFE_COMMANDS, *allowed}

    @penstock.tool(parallel=False, approval=needs_approval)
    async def bash(command: str) -> str:
        """Run a shell command in the working folder, and return its output and exit code."""
        return await run_command(command, workspace.root, COMMAND_SECONDS)

    return [read, glob, grep, write, edit, bash]


def protect_secrets(call: penstock.PendingCall) -> penstock.PendingCall | None:
    """A hook: asks before a file is read that may hold secrets."""
    is_secret = may_be_secret(str(call.arguments.get("path", "")))
    return call.ask("this file may hold secrets, which the model would see") if is_secret else None


def planned_change(workspace: Workspace, name: str, arguments: dict[str, Any]) -> Change | None:
    """The change that a call would make; None for calls of other tools. A `ToolError` if the call would fail."""
    plans: dict[str, Callable[..., Change]] = {"write": workspace.plan_write, "edit": workspace.plan_edit}
    return plans[name](**arguments) if name in plans else None


def _planned(change: Change) -> penstock.Prepared:
    """A change for the tool, and its difference for the person who is asked."""
    return penstock.Prepared(change, preview=change.difference)


def _apply(workspace: Workspace, change: Change) -> str:
    workspace.apply(change)
    return f"{change.name}: {'created' if change.before is None else 'changed'}"


def _limited(lines: list[str]) -> str:
    shown = lines[:MAX_FOUND]
    return (
        "\n".join(shown if len(lines) <= MAX_FOUND else [*shown, "[more; use a narrower pattern]"]) or "nothing found"
    )
