"""What a request demands of its response, checked when the response has ended: a call, a schema, valid arguments.

Servers may ignore a tool choice or a schema, or enforce a simpler one, and models the sentences in a prompt. The
response is passed on as it is, and what does not fit is noted. Only responses with such demands are watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.declarations import ToolDeclaration
from penstock.errors import ArgumentsError, UsageError
from penstock.events import Finish, StreamChunk, Text, ToolCall
from penstock.healing.report import HealingReport
from penstock.history.client_request import ClientRequest
from penstock.tools.schema_arguments import SchemaArguments
from penstock.wires.shared.encode_request.tool_schema import for_grammar

MAX_CHECKED = 1024 * 1024
"""How many characters of a response are checked against a schema."""
_FREE = ("", "auto", "none")


class Expectations:
    """The demands of one request, and what has come so far."""

    def __init__(
        self,
        choice: str,
        schema: Mapping[str, Any] | None,
        tools: Sequence[ToolDeclaration],
        report: HealingReport,
        *,
        is_in_text: bool = False,
    ) -> None:
        self._choice = choice
        self._who = "the model" if is_in_text else "the server"  # which got the tool choice
        self._schema = schema
        self._tools = {tool.name: tool for tool in tools if tool.parameters}
        self._report = report
        self._texts: list[str] = []
        self._size = 0
        self._calls: list[ToolCall] = []
        self._finish = ""

    @property
    def reads_text(self) -> bool:
        """Whether the text of the response is checked."""
        return self._schema is not None

    def watch(self, chunk: ToolCall | Finish) -> None:
        """Add a call, or the end."""
        if isinstance(chunk, ToolCall):
            self._calls.append(chunk)
        else:
            self._finish = chunk.reason

    def add(self, chunks: Iterable[StreamChunk]) -> None:
        """Add the text of one network read."""
        for chunk in chunks:
            self.add_one(chunk)

    def add_one(self, chunk: StreamChunk) -> None:
        """Add a piece of text."""
        if isinstance(chunk, Text) and self._size <= MAX_CHECKED:
            self._texts.append(chunk.text)
            self._size += len(chunk.text)

    def end(self) -> None:
        """Note what does not fit; a response that was cut or failed is not judged."""
        if self._finish not in ("stop", "tool_calls"):
            return
        names = [call.name for call in self._calls]
        if self._choice == "required" and not names:
            self._report.note(f"{self._who} ignored the tool choice: a call was required, and the response has none")
        elif self._choice not in (*_FREE, "required") and self._choice not in names:
            self._report.note(f"{self._who} ignored the tool choice: {self._choice!r} was required, and was not called")
        if self._schema is not None and not names:
            self._check_text(self._schema)
        for call in self._calls:
            self._check_arguments(call)

    def _check_arguments(self, call: ToolCall) -> None:
        """Check arguments against the declared schema, if the server got a simpler one."""
        tool = self._tools.get(call.name)
        if tool is None or not is_simplified(tool) or fits(tool.parameters or {}, call.arguments):
            return
        self._report.note(
            f"the arguments of {call.name!r} do not match its schema, of which the server got a simpler form"
        )

    def _check_text(self, schema: Mapping[str, Any]) -> None:
        if self._size > MAX_CHECKED:
            return
        try:
            value = msgspec.json.decode("".join(self._texts))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._report.note("the server ignored the output format: the text is not JSON")
            return
        if schema and not fits(schema, value):
            self._report.note("the server ignored the output format: the text does not match its schema")


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value matches a schema; a schema that cannot be used accepts every value."""
    try:
        SchemaArguments({"type": "object", "properties": {"value": dict(schema)}, **_definitions(schema)}).check(
            {"value": value}
        )
    except ArgumentsError:
        return False
    except UsageError:
        return True
    return True


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions of a schema, which its references expect at the root."""
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}


def is_simplified(tool: ToolDeclaration) -> bool:
    """Whether servers that turn schemas into grammars get a simpler schema of a tool."""
    schema = dict(tool.parameters or {})
    return for_grammar(schema) != schema


def expectations_of(
    request: ClientRequest,
    tools: Sequence[ToolDeclaration],
    report: HealingReport,
    *,
    has_tools: bool,
    is_in_text: bool = False,
) -> Expectations | None:
    """The demands of a request; None if it has none. The server may have got simpler schemas of the `tools`.

    A request that `has_tools` was sent with some: those of the client may all be deferred, or run at its provider. If
    calls are asked for in the text (`is_in_text`), the tool choice is a sentence in the prompt.
    """
    settings = request.settings
    choice = settings.tool_choice if has_tools else ""
    if settings.tool_choice not in (*_FREE, choice) and settings.tools:
        report.note(f"the tool choice {settings.tool_choice!r} was not sent: none of the tools could be sent")
    schema = None if settings.output is None else settings.output.schema or {}
    if choice in _FREE and schema is None and not tools:
        return None
    return Expectations(choice, schema, tools, report, is_in_text=is_in_text)
