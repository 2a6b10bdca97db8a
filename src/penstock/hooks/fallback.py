"""Fallback models: other models for requests that fail."""

from __future__ import annotations

from collections.abc import Callable

from penstock.agent.step import Step
from penstock.errors import UsageError
from penstock.model.model import Model


def fallback(*models: Model | str) -> Callable[[Step], Step]:
    """A hook that adds fallback models, tried in order if the request fails after the model's own retries.

    The reader gets a `Retry` with the name of the next model. The part of the response before it is void. A response
    with a call that already had side effects is kept, and the run fails.
    """
    if not models:
        raise UsageError("fallback needs at least one other model")

    def add_fallbacks(step: Step) -> Step:
        return step.replace(fallbacks=[*step.fallbacks, *models])

    return add_fallbacks
