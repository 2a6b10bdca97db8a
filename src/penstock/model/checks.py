"""Checks of the options that a caller passes: their names and their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import signature
from typing import Any

from penstock.errors import UnknownOptionError, UsageError


def check_option_names(
    options: Iterable[str],
    known: Collection[str],
    function: Callable[..., Any],
    owner: str,
    suggested: Collection[str] = (),
) -> None:
    """Raise an `UnknownOptionError` for an option that is not known; `function` has the other keywords.

    `suggested` options are not known to the owner, but are suggested for unknown ones.
    """
    for option in options:
        if option not in known:
            raise UnknownOptionError(option, _keywords(function, [*known, *suggested]), owner)


def _keywords(function: Callable[..., Any], options: Iterable[str]) -> list[str]:
    parameters = signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return [name for name in dict.fromkeys([*names, *options]) if name != "self"]


def check_types(**values: tuple[Any, type]) -> None:
    """Raise a `UsageError` for a value that is neither None nor of its type."""
    for name, (value, kind) in values.items():
        if value is not None and not isinstance(value, kind):
            fields = "=…, ".join(getattr(kind, "__struct_fields__", ()))
            expected = f"{kind.__name__}({fields}=…)" if fields else kind.__name__
            raise UsageError(f"{name} must be a {expected}, not {value!r}")


def check_model_name(name: Any) -> None:
    """Raise a `UsageError` unless the name of a model is a string."""
    if not isinstance(name, str):
        raise UsageError(f"the name of a model must be a string such as 'openai:gpt-5', not {name!r}")


def check_connector(via: Any) -> None:
    """Raise a `UsageError` unless `via` is None or a connector."""
    if via is not None and not (hasattr(via, "connect") and hasattr(via, "aconnect")):
        raise UsageError(f"via must be a connector such as penstock.testing.Scripted, not {via!r}")


def check_headers(headers: Any) -> None:
    """Raise a `UsageError` unless headers are printable ASCII. The message names the header and not its value."""
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers must be a mapping of names to values, not {type(headers).__name__}")
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise UsageError(f"the names and values of headers must be strings; {name!r} has a {type(value).__name__}")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"the header {name!r} has characters that headers cannot have, such as a line end")
