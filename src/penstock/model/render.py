"""`penstock.render`: a history in any shape as the plain text that a model without tool calls gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dialects import prompt
from penstock.history.read import as_messages
from penstock.messages import History


def render(messages: Any, tools: Iterable[Any] | None, dialect: str | prompt.Prompt) -> History:
    """Returns the history as text: the tools in the system message, calls and results as the dialect writes them.

    `messages` may have any shape that `as_messages` reads. Reasoning and vendor state are omitted. You can pass your
    own `Prompt` instead of the name of a dialect.
    """
    return prompt.render(as_messages(messages), tools, dialect)
