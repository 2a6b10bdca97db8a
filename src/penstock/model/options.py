"""The options of a request as typed dictionaries, so that a type checker finds a misspelt or a wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

Effort = Literal["none", "off", "minimal", "low", "medium", "high", "xhigh", "max"]


class ModelOptions(TypedDict, total=False):
    """The options that `Model`, a request and `Agent` take; None leaves the choice to the provider.

    `reasoning` is an effort, or the number of tokens that the model may use for it. `cache` asks for prompt caching
    where a provider must be asked: True, or for how long.
    """

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    stop: str | Sequence[str] | None
    seed: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    reasoning: Effort | int | bool | None
    cache: Literal["5m", "1h"] | bool | None


class StepOptions(ModelOptions, total=False):
    """The options that `Agent` passes on to each of its requests: see `Model.ask`."""

    tool_choice: str
    parallel: bool | None
    streaming: bool
    extra: Mapping[str, Any] | None


class RequestOptions(StepOptions, total=False):
    """The options of one request: `Model.stream`, `complete` and their async twins. `Model.ask` explains them."""

    system_prompt: str
    calls: str
    rescue: bool | Iterable[str]
    id_prefix: str
    partial_arguments: bool
