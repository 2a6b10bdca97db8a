"""A warning about tools that a model has to guess about: without type hints, or without a description."""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

from penstock.tools.signature import Signature


def warn_if_unclear(function: Callable[..., Any], signature: Signature, name: str, description: str) -> None:
    """Warn once, at the line of the function, if the model gets no description of it, or no types of its parameters."""
    inner = inspect.unwrap(function)
    lacks: list[str] = []
    if signature.untyped:
        lacks.append(f"no type hint for {', '.join(f'`{parameter}`' for parameter in signature.untyped)}")
    if not (description or signature.description):
        lacks.append("no description (a docstring)")
    if lacks and isinstance(inner, types.FunctionType):
        message = f"the tool {name!r} has {' and '.join(lacks)}: the model has to guess"
        place = inner.__code__.co_filename, inner.__code__.co_firstlineno
        registry = inner.__globals__.setdefault("__warningregistry__", {})
        warnings.warn_explicit(message, UserWarning, *place, registry=registry)
