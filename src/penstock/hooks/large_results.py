"""Large results: the model gets the head of a long result, and a tool that reads the rest.

The whole text stays in the history, as state on the result that no provider gets. So it is there after a crash, in a
stored run, and in another run that continues with the history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec.structs import replace

from penstock.agent.pending_call import PendingCall
from penstock.errors import ToolError, UsageError
from penstock.events import Opaque, Text
from penstock.messages import Message, ToolResult
from penstock.tools.tool import Context, Tool, tool

WIRE = "penstock"
KIND = "whole_text"
"""The wire and the kind of the state that holds the whole text of a result."""
MIN_LIMIT = 200
"""The smallest limit: the note about the rest is about as long."""


class LargeResults:
    """Shortens long results, for `Agent(model, tools=[*tools, *large.tools], after_call=large)`.

    Of a result with more than `limit` characters, the model gets the first ones and a note how to read on with the tool
    `name`, which returns pages of `limit` characters. Images and files stay.
    """

    def __init__(self, limit: int = 20_000, *, name: str = "read_result") -> None:
        if limit < MIN_LIMIT:
            raise UsageError(f"limit must be {MIN_LIMIT} characters or more, not {limit!r}")
        self._limit = limit
        self._tool: Tool[..., Any] = tool(self._read, name=name, read_only=True)

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """The tool that reads the rest of a result, for the agent."""
        return [self._tool]

    @property
    def required_tools(self) -> list[Tool[..., Any]]:
        """The tools that an agent with this hook must have."""
        return self.tools

    def __call__(self, call: PendingCall, result: ToolResult) -> ToolResult | None:
        """The head of a long result, with the whole as its state."""
        text = result.text
        if len(text) <= self._limit or call.name == self._tool.name:
            return None
        media = [part for part in result.content if not isinstance(part, Text)]
        shown = self._page(text, 0, call.id)
        return replace(result, content=(Text(0, shown), *media), state=(*result.state, Opaque(0, WIRE, KIND, text)))

    def _read(
        self,
        context: Context[Any],
        id: Annotated[str, "The id of the result, from the note in it."],
        start: Annotated[int, "The number of the first character to read."] = 0,
    ) -> str:
        """Read on in a long tool result of which you have only got a part."""
        text = whole_text(context.messages, id)
        if text is None:
            raise ToolError(f"There is no shortened result with the id {id!r}.")
        if not 0 <= start < len(text):
            raise ToolError(f"start must be between 0 and {len(text) - 1}: the result has {len(text)} characters.")
        return self._page(text, start, id)

    def _page(self, text: str, start: int, id: str) -> str:
        end = start + self._limit
        where = f"characters {start} to {min(end, len(text))} of {len(text)}"
        if end >= len(text):
            return f"{text[start:]}\n[{where}: this is the end]"
        return f'{text[start:end]}\n[{where}; to read on, call {self._tool.name} with id "{id}" and start {end}]'


def whole_text(messages: Iterable[Message], call_id: str) -> str | None:
    """The whole text of a shortened result in a history; None if there is no such result."""
    results = [result for message in messages for result in message.results if result.call_id == call_id]
    texts = [text for result in results if isinstance(text := result.state_of(WIRE).get(KIND), str)]
    return texts[-1] if texts else None
