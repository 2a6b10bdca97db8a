"""The parser of msgflux: calls in XML tags as dicts, and the state of the parser."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, get_args

from penstock.adapters import xml_parser
from penstock.events import ToolCall


class ParserState(Enum):
    """Where the parser is."""

    TEXT = auto()
    MAYBE_TAG = auto()
    IN_TAG_NAME = auto()
    IN_TOOL_BLOCK = auto()


_STATES: dict[str, ParserState] = dict(zip(get_args(xml_parser.ParserState), ParserState, strict=True))


class StreamingXMLParser:
    """Penstock's parser, with calls as dicts: `id`, `name`, `params`."""

    TOOL_BLOCK_START = "antml:function_calls"
    TOOL_BLOCK_END = "/antml:function_calls"

    def __init__(self, tools: Iterable[Any] | None = None) -> None:
        self._parser = xml_parser.StreamingXMLParser(tools)

    @property
    def state(self) -> ParserState:
        """Where the parser is: a call is being written from its opening tag on."""
        return _STATES[self._parser.state]

    def feed(self, token: str) -> tuple[str, list[dict[str, Any]]]:
        """Parses a token, and returns the text to show and the calls that it completes."""
        return _with_dicts(*self._parser.feed(token))

    def close(self) -> tuple[str, list[dict[str, Any]]]:
        """Ends the text, and returns what was held back."""
        return _with_dicts(*self._parser.close())


def _with_dicts(text: str, calls: list[ToolCall]) -> tuple[str, list[dict[str, Any]]]:
    return text, [{"id": call.id, "name": call.name, "params": call.arguments} for call in calls]
