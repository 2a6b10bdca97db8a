"""Tool search: the model sees a search tool instead of hundreds of tools, and then the tools it found."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.agent.step import Step
from penstock.errors import UsageError
from penstock.messages import Message
from penstock.tools.source import split_sources
from penstock.tools.tool import Tool
from penstock.tools.tool_table import as_tools

MAX_QUERY = 1000
"""The characters of a query of `ToolSearch` that are read."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_NAME = re.compile(r'"name":\s*"([^"\\]+)"')  # in the JSON of a result, which may have been shortened
_DESCRIPTION = (
    "Search for tools by what they do. Only the tools that you find can be called, from your next response on. "
    "Search again with other words if none fits."
)


class ToolSearch:
    """Tool search over many tools: `Agent(model, tools=search.tools, before_step=search)`.

    The model gets the search tool and those of `always`; the tools that a search finds join the next step and stay for
    the run, also if its history is made shorter. A run that continues from a history has those that were found or
    called in it. `limit` is how many tools a search finds at most. Of an MCP server among the tools, those are searched
    that it has now.
    """

    def __init__(
        self, tools: Iterable[Any], *, always: Iterable[Any] = (), limit: int = 5, name: str = "search_tools"
    ) -> None:
        if limit < 1:
            raise UsageError(f"limit must be 1 or more, not {limit!r}")
        self._searched, self._always = as_tools(_listed(tools)), as_tools(_listed(always))
        self._index = _Index(self._searched)
        self._search: Tool[..., Any] = Tool.from_schema(
            name, _DESCRIPTION, _QUERY, lambda query: self._index.find(query, limit), read_only=True
        )

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """All tools, for the agent: the search tool, those that the model always has, and those to be found."""
        return [self._search, *self._always, *self._searched]

    def __call__(self, step: Step) -> Step:
        """The step with the search tool and the tools found so far."""
        own = {tool.name for tool in self.tools}
        is_own = step.messages is step.history
        names = {*self._names_in(step.history if is_own else step.history + step.messages), *step.last_tools}
        other = [tool for tool in step.tools if tool.name not in own]
        tools = [tool for tool in self._searched if tool.name in names]
        return step.replace(tools=[self._search, *self._always, *other, *tools])

    def _names_in(self, messages: Sequence[Message]) -> Iterator[str]:
        """The names of found or called tools."""
        for message in messages:
            yield from (call.name for call in message.tool_calls)
            for result in message.results:
                if result.name == self._search.name and not result.is_error:
                    yield from _NAME.findall(result.text)


def _listed(tools: Iterable[Any]) -> Iterable[Any]:
    """The tools, including the current tools of sources such as MCP servers."""
    own, sources = split_sources(tools)
    return [*own, *(tool for source in sources for tool in source)] if sources else tools


_QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


class _Index:
    """Ranks tools by the words of a query in their names, descriptions and parameters; rare words count more."""

    def __init__(self, tools: Sequence[Tool[..., Any]]) -> None:
        self._tools = tools
        self._words = [_weights(tool) for tool in tools]
        self._counts = Counter(word for words in self._words for word in words)

    def find(self, query: str, limit: int) -> list[dict[str, str]]:
        query_words = set(_words_in(query[:MAX_QUERY]))
        scores = [(self._score(words, query_words), -index) for index, words in enumerate(self._words)]
        best = sorted((score for score in scores if score[0] > 0), reverse=True)[:limit]
        tools = [self._tools[-index] for _, index in best]
        return [{"name": tool.name, "description": tool.description} for tool in tools]

    def _score(self, words: dict[str, float], query_words: set[str]) -> float:
        rarity = {word: math.log(1 + len(self._tools) / self._counts[word]) for word in query_words & words.keys()}
        return sum(words[word] * rarity[word] for word in rarity)


def _weights(tool: Tool[..., Any]) -> dict[str, float]:
    """The weight of each word of a tool: highest in its name."""
    fields: Any = tool.parameters.get("properties")
    weights = dict.fromkeys(_words_in(" ".join(fields) if isinstance(fields, dict) else ""), 0.5)
    weights |= dict.fromkeys(_words_in(tool.description), 1.0)
    return weights | dict.fromkeys(_words_in(tool.name), 3.0)


def _words_in(text: str) -> list[str]:
    """The words of a text or a name, in lower case and without a plural `s`."""
    words = [word.lower() for word in _WORD.findall(text)]
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]
