"""The agent: a model, its tools for a folder, and its limits."""

from __future__ import annotations

from collections.abc import Collection

import penstock
from penstock.hooks import LargeResults

from .tools import coding_tools, protect_secrets
from .workspace import Workspace

INSTRUCTIONS = """\
You are a coding agent. You work on the project in the working folder; all paths are relative to it.
Read the files that matter before you change them. Prefer small edits to rewriting files.
Run the tests after a change, and read their output. If a call is declined, follow the reason or ask.
When you are done, say in a few sentences what you changed and how it was tested.
"""


MAX_RESULT = 30_000
"""The characters of a result that the model gets at once; it can page through the rest."""


def coding_agent(
    model: penstock.Model | str, workspace: Workspace, allowed: Collection[str] = ()
) -> penstock.Agent[None, str]:
    """The agent for a folder. It waits for approvals while it runs; the commands in `allowed` need none."""
    large = LargeResults(limit=MAX_RESULT)
    return penstock.Agent(
        model,
        tools=[*coding_tools(workspace, allowed), *large.tools],
        instructions=INSTRUCTIONS,
        name="coder",
        approvals="wait",
        before_call=protect_secrets,
        after_call=large,
        limits=penstock.Limits(steps=100, tokens=2_000_000, seconds=3600),
    )
