"""Elicitation: a server asks the reader of the run, while one of its tools runs."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import mcp_types

from penstock.agent.calls.questions import NoAnswerError
from penstock.errors import ArgumentsError, UsageError
from penstock.tools.schema_arguments import SchemaArguments
from penstock.tools.signature import Context

MAX_ANSWERS = 3
"""How many answers that do not fit its schema a question may get; then it is cancelled."""


class RunningCall:
    """A call in progress at a server, with its connection to the run."""

    def __init__(self, context: Context[Any]) -> None:
        self._context = context
        self._turn = asyncio.Lock()  # a call asks one question at a time

    async def ask(self, params: mcp_types.ElicitRequestParams, seconds: float) -> mcp_types.ElicitResult:
        """Ask the reader of the run."""
        async with self._turn:
            try:
                return await self._answer(params, seconds)
            except (NoAnswerError, UsageError):
                return mcp_types.ElicitResult(action="cancel")

    async def _answer(self, params: mcp_types.ElicitRequestParams, seconds: float) -> mcp_types.ElicitResult:
        question = _question(params)
        for _ in range(MAX_ANSWERS):
            answer = await asyncio.wrap_future(self._context.ask(question, seconds))
            if answer.is_error:
                return mcp_types.ElicitResult(action="decline")
            if "url" in question:
                return mcp_types.ElicitResult(action="accept")
            problem = _problem(question["schema"], answer.data)
            if not problem:
                return mcp_types.ElicitResult(action="accept", content=answer.data)
            question = {**question, "problem": problem}
        return mcp_types.ElicitResult(action="cancel")


def _question(params: mcp_types.ElicitRequestParams) -> dict[str, Any]:
    """The question as the reader gets it."""
    match params:
        case mcp_types.ElicitRequestURLParams():
            return {"message": params.message, "url": params.url}
        case mcp_types.ElicitRequestFormParams():
            return {"message": params.message, "schema": params.requested_schema}


def _problem(schema: Any, answer: Any) -> str:
    """Why an answer is invalid; empty if it is valid."""
    if not isinstance(answer, dict):
        return "the answer must be an object with the fields of the schema"
    try:
        SchemaArguments(schema).check(answer)
    except ArgumentsError as error:
        return str(error)
    return ""


CALL: ContextVar[RunningCall | None] = ContextVar("penstock_mcp_call", default=None)
"""The current call, where the SDK keeps the context: not for questions over standard input and output."""
