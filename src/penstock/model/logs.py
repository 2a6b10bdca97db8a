"""Logging: nothing is printed unless the program configures logging, and no content is logged.

Each package has a logger of its name (`penstock.model`, `penstock.agent`). A record has the attributes `run_id`, which
is empty outside of a run, and `agent`, the name of the agent.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

from penstock.transport.commands import Sleep

RUN: ContextVar[tuple[str, str]] = ContextVar("penstock_run", default=("", ""))
"""The id of the run that the code belongs to, and the name of its agent."""

logging.getLogger("penstock").addHandler(logging.NullHandler())
_logger = logging.getLogger("penstock.model")


def log_wait(url: str, sleep: Sleep) -> None:
    """Log that a request failed and is sent again, or waits for a rate limit; the URL is without secrets."""
    run_id, agent = RUN.get()
    fields = {"run_id": run_id, "agent": agent}
    if sleep.is_retry:
        _logger.warning("the request to %s failed; next attempt in %.2f seconds", url, sleep.seconds, extra=fields)
    else:
        _logger.info("the request to %s waits %.2f seconds for a rate limit", url, sleep.seconds, extra=fields)
