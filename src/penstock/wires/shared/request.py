"""A request to a model, independent of the provider, and its encoded form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

from msgspec import Struct

from penstock.declarations import OutputDeclaration, ToolDeclaration
from penstock.messages import Message

Effort = Literal["none", "off", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[str, ...] = tuple(effort for effort in get_args(Effort) if effort not in ("none", "off"))


class ModelOptions(TypedDict, total=False):
    """The options that `Model`, a request and `Agent` take; None leaves the choice to the provider.

    - `max_tokens`: the maximum number of output tokens.
    - `temperature`, `top_p`, `top_k`: sampling.
    - `stop`: one or more strings that end the response.
    - `seed`: the seed of the sampling, for providers with repeatable responses.
    - `presence_penalty`, `frequency_penalty`: penalties for repetition.
    - `reasoning`: an effort (`none` or `off` turns reasoning off); the number of tokens that the model may use for it;
      or True (medium) and False.
    - `cache`: asks for prompt caching where a provider must be asked: True, or for how long (`5m`, `1h`).
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


OPTIONS = tuple(ModelOptions.__annotations__)
"""The names of the settings that most providers have."""


class Request(Struct, frozen=True, kw_only=True):
    """One request to a model.

    `tool_choice` is "auto", "none", "required" or the name of a tool; empty leaves it to the provider. `options` are
    those of `ModelOptions`; `extra` is merged into the body, for fields that only one provider has. `output` is
    written as the provider's response format.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str = ""
    is_parallel: bool | None = None
    options: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}
    is_streaming: bool = True
    output: OutputDeclaration | None = None


class OutputFormat(Struct, frozen=True):
    """The form that the answer must have: any JSON object, or one of a schema."""

    schema: Mapping[str, Any] | None = None
    name: str = ""
    is_strict: bool | None = None
    description: str = ""


class EncodedRequest(Struct, frozen=True):
    """A request for a provider: its path below the base URL, and its JSON body."""

    path: str
    body: dict[str, Any]


Encode = Callable[[Request, frozenset[str]], EncodedRequest]
"""Encodes a request for a provider with these quirks."""
OutputFields = Callable[[OutputFormat], dict[str, Any]]
"""The fields of a request that ask for an answer in a format; none if the provider cannot be asked for it."""

LeftOut = Callable[[Request, frozenset[str]], list[str]]
"""Names the settings of a request that its encoding for a provider with these quirks leaves out."""

OutputForm = Literal["native", "grammar", "tool", "prompt"]
"""How a model is asked for structured output.

`native`: by a response format. `grammar`: by a response format that constrains the model and is not shown to it, so
that the prompt has the schema too. `tool`: by a tool that it calls last. `prompt`: by the prompt alone, which a caller
may choose, and no wire does.
"""
ChooseForm = Callable[[Request, frozenset[str]], OutputForm]
"""Chooses the form for a request that has an output, and a provider with these quirks."""
