"""The tools of each step: those of the agent, and those that its sources list before the request."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.agent.config import AgentConfig
from penstock.errors import UsageError
from penstock.loggers import get_logger
from penstock.tools.source import Listing, merge

_logger = get_logger("penstock.agent")


class StepTools:
    """The configuration of an agent with the tools that its sources have now."""

    def __init__(self, config: AgentConfig) -> None:
        self._own = config
        self._config = config
        self._listings: Sequence[Listing] = ()

    @property
    def config(self) -> AgentConfig:
        """The configuration with the tools that were listed last."""
        return self._config

    @property
    def are_listed(self) -> bool:
        """Whether `listed` returns at once."""
        return all(source.is_listed for source in self._own.sources)

    def listed(self) -> AgentConfig:
        """The configuration for the next step. This may block."""
        return self._take([source.listing() for source in self._own.sources])

    async def alisted(self) -> AgentConfig:
        """The configuration for the next step."""
        return self._take([await source.alisting() for source in self._own.sources])

    def _take(self, listings: list[Listing]) -> AgentConfig:
        """Merge the listings, unless they are those of the last step. Names may clash only after the first step."""
        if len(listings) == len(self._listings) and all(map(_is_same, listings, self._listings)):
            return self._config
        tools, problems = merge(self._own.tools, listings)
        if problems and not self._listings:
            raise UsageError(f"{problems[0]}; give the tools of a server a prefix, or rename one of them")
        for problem in problems:
            _logger.warning("%s; the second is left out", problem)
        self._listings = listings
        self._config = replace(self._own, tools=tools)
        return self._config


def _is_same(listing: Listing, other: Listing) -> bool:
    return listing is other
