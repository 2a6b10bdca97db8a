"""The agent of a trial: three steps, with a tool of each kind that a crash treats in its own way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock import Agent, Context, Model, tool
from penstock.testing import ReceivedRequest, Reply, Scripted, call
from tests.chaos.ledger import Ledger, Note

STEPS = (("look", "mail", "pay"), ("shell", "put", "ask"))
"""The tools that the model calls, step by step."""

EFFECTS = ("mail", "pay", "shell", "ask")
"""The tools that must not be called twice."""


def answer(request: ReceivedRequest) -> Reply:
    """Call the tools that were not called before; an interrupted response may have called only some of a step."""
    called = {result.name for result in request.results}
    for names in STEPS:
        if left := [name for name in names if name not in called]:
            return Reply("Let me see what there is to do.", *map(call, left), "One moment, please.")
    return Reply("That is all, and everything has been done.")


def make_agent(ledger: Ledger) -> Agent[Any]:
    """An agent whose tools write down what they do."""

    def note(what: Any, context: Context[Any]) -> None:
        ledger.add(Note(what, context.key.split(":")[0], context.tool, context.key))

    async def work(context: Context[Any], seconds: float) -> str:
        note("start", context)
        await asyncio.sleep(seconds)
        note("end", context)
        return "done"

    @tool(read_only=True)
    async def look(context: Context[Any]) -> str:
        """Look."""
        return await work(context, 0.05)

    @tool(start="call")
    async def mail(context: Context[Any]) -> str:
        """Mail."""
        return await work(context, 0.1)

    @tool
    def pay(context: Context[Any]) -> str:
        """Pay."""
        note("start", context)
        time.sleep(0.1)
        note("end", context)
        return "paid"

    @tool(parallel=False)
    async def shell(context: Context[Any]) -> str:
        """Run a command."""
        return await work(context, 0.05)

    @tool(idempotent=True)
    async def put(context: Context[Any]) -> str:
        """Put."""
        return await work(context, 0.1)

    @tool(approval=True)
    async def ask(context: Context[Any]) -> str:
        """Ask."""
        return await work(context, 0.05)

    model = Model("openai-compatible:m", via=Scripted(answer, pace=0.005))
    tools = [look, mail, pay, shell, put, ask]
    return Agent(model, tools, name="agent")
