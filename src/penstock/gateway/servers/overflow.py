"""Prompts that exceed the window of a server: refused by the server's own count, noted by an estimate.

An estimate is never a reason to refuse a request. It decides only whether the server is asked to count, because that
takes time: what the server counted for earlier requests corrects it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import ContextLengthError
from penstock.events import Usage
from penstock.loggers import get_logger
from penstock.servers.asking import ServerAddress, count_tokens
from penstock.servers.facts import ServerFacts
from penstock.transport.commands import HTTPRequest
from penstock.wires.shared.encode_response.response_errors import CONTEXT_LENGTH
from penstock.wires.shared.encode_response.response_format import ResponseFormat

logger = get_logger("penstock.gateway")

COUNT_SECONDS = 2.0
"""The longest time that a count delays a request."""
FIRST_RATIO = 2.0
"""How many tokens an estimated one may be, as long as the server has counted nothing."""
MARGIN = 1.1
"""The same for what an estimate is off once the server has counted."""
LEAST_RATIO = 0.5
"""The lowest ratio: some servers report only the tokens that were not in their cache."""
MAX_RATIOS = 256
"""How many models of upstreams have a ratio."""
CUT, LIKELY_CUT = 0.75, 0.5
"""A prompt was cut if the server counted less than these parts of the estimate: for a known window, and without one."""
MIN_CUT = 1_000
"""The smallest estimate of a prompt for which this is noted."""


class Overflow(Struct, frozen=True):
    """The tokens of a prompt and the window that it exceeds, as far as they are known."""

    tokens: int | None = None
    window: int | None = None


class TokenRatios:
    """How many tokens servers count per estimated token, by upstream and model."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[tuple[str, str], float] = OrderedDict()

    def learn(self, upstream: str, model: str, tokens: int, estimate: int) -> None:
        """A server has counted the tokens of a prompt."""
        self._ratios[upstream, model] = max(tokens / max(estimate, 1) * MARGIN, LEAST_RATIO)
        self._ratios.move_to_end((upstream, model))
        while len(self._ratios) > MAX_RATIOS:
            self._ratios.popitem(last=False)

    def of(self, upstream: str, model: str) -> float:
        return self._ratios.get((upstream, model), FIRST_RATIO)


async def check_window(
    facts: ServerFacts, address: ServerAddress, wire: str, request: HTTPRequest, estimate: int
) -> tuple[str, ...]:
    """Raises a `ContextLengthError` if the server counts more tokens than its window has.

    Returns a note if the server cannot count, and the estimate does not fit.
    """
    window = facts.window
    if window is None:
        return ()
    count = await count_tokens(address, facts.server, wire, request.body, COUNT_SECONDS)
    if count is not None and count >= window:  # the response needs at least one token
        raise overflow_error(count, window)
    if count is None and estimate > window:
        return (f"the prompt may not fit: it has about {estimate} tokens (an estimate), and the window has {window}",)
    return ()


def overflow_error(tokens: int, window: int) -> ContextLengthError:
    """The error for a prompt that the server counted."""
    return ContextLengthError(
        f"the prompt has {tokens} tokens, and the context window of the server {window}", status=400,
        code=CONTEXT_LENGTH, raw={"error": {"n_prompt_tokens": tokens, "n_ctx": window}},
    )  # fmt: skip


def cut_note(facts: ServerFacts, estimate: int, usage: Usage) -> str:
    """The note for a prompt that the server has probably cut without a word; empty if it has not."""
    tokens, window = usage.input_tokens, facts.window
    if facts.overflow == "refused" or estimate < MIN_CUT or not tokens:
        return ""
    if window is None:
        is_cut = tokens < LIKELY_CUT * estimate
    else:
        is_cut = estimate > window >= tokens and tokens < CUT * estimate
    if not is_cut:
        return ""
    of_window = "" if window is None else f" (its window has {window})"
    return (
        f"the server has probably cut the prompt: it counted {tokens} tokens{of_window}, and the request has about "
        f"{estimate} (an estimate)"
    )


# What clients read.

_TOKENS = re.compile(
    r"(?:request|input|prompt|resulted in|contains|messages|you requested)[^\d.]{0,30}?(\d+)\)? (?:input )?tokens",
    re.IGNORECASE,
)
_WINDOW = re.compile(
    r"(?:maximum context length|context length|context size|context window|maximum)[^\d.]{0,20}(\d+)"
    r"|> (\d+) maximum|maximum[^\d.]{0,40}\((\d+)\)",
    re.IGNORECASE,
)


def overflow_of(error: ContextLengthError) -> Overflow:
    """The numbers of an error, in its fields or in its message."""
    fields: Any = error.raw.get("error") if isinstance(error.raw, Mapping) else None
    if isinstance(fields, Mapping):
        tokens, window = fields.get("n_prompt_tokens"), fields.get("n_ctx")
        if isinstance(tokens, int) and isinstance(window, int):
            return Overflow(tokens, window)
    return Overflow(_number(_TOKENS, error.message), _number(_WINDOW, error.message))


def overflow_words(error: ContextLengthError, format: ResponseFormat) -> str:
    """The message of the error in the words of the client's protocol, which clients look for."""
    found = overflow_of(error)
    if not format.overflow:
        return error.message
    if found.tokens is None or found.window is None or found.tokens < found.window:
        return f"{format.overflow_start}{error.message}"
    return f"{format.overflow.format(tokens=found.tokens, window=found.window)} ({error.message})"


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return None if found is None else int(next(group for group in found.groups() if group))
