"""Checks of the options that a caller passes: their names and their types."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from inspect import signature
from typing import Any, get_type_hints

from penstock.declarations import ToolDeclaration
from penstock.errors import UnknownOptionError, UsageError, type_name
from penstock.wires.shared.request import ModelOptions


def check_option_names(
    options: Iterable[str],
    known: Collection[str],
    function: Callable[..., Any],
    owner: str,
    suggested: Collection[str] = (),
) -> None:
    """Raise an `UnknownOptionError` for an unknown option; `function` has the other keywords.

    `suggested` options are unknown to the owner too, but are suggested.
    """
    for option in options:
        if option not in known:
            own = [*known, *suggested]
            raise UnknownOptionError(option, _keywords(function, own), owner, own)


def _keywords(function: Callable[..., Any], options: Iterable[str]) -> list[str]:
    parameters = signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return [name for name in dict.fromkeys([*names, *options]) if name != "self"]


_HINTS = get_type_hints(ModelOptions)
_NUMBERS = [name for name, hint in _HINTS.items() if hint == float | None]
_COUNTS = [name for name, hint in _HINTS.items() if hint == int | None]


def check_option_values(options: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for an option of the wrong type; the provider checks its range."""
    for name, value in options.items():
        if value is None:
            continue
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"{name} must be a number, not {value!r}")
        if name in _NUMBERS and not math.isfinite(value):
            raise UsageError(f"{name} must be a finite number, not {value!r}")
        if name in _COUNTS and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{name} must be a whole number, not {value!r}")
        if name == "stop" and not isinstance(value, str) and not _are_strings(value):
            raise UsageError(f"stop must be a string or a list of strings, not {value!r}")
        if name == "extra" and not isinstance(value, Mapping):
            raise UsageError(f"extra must be a dict of fields of the request, not {value!r}")
        if name == "cache" and value not in (True, False, "5m", "1h"):
            raise UsageError(f"cache must be True, False, '5m' or '1h', not {value!r}")


def _are_strings(value: Any) -> bool:
    return isinstance(value, Sequence | Set) and all(isinstance(item, str) for item in value)


def check_tool_names(declarations: Iterable[ToolDeclaration]) -> None:
    """Raise a `UsageError` if two tools have one name: a call of it could mean either."""
    names = Counter(declaration.name for declaration in declarations if declaration.hosted is None)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise UsageError(f"two tools have the name {repeated[0]!r}; rename one of them")


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


def is_connector(via: Any) -> bool:
    """Whether this is a connector that replaces HTTP, such as a script of `penstock.testing`."""
    return hasattr(via, "connect") and hasattr(via, "aconnect") and not isinstance(via, type)


def check_connector(via: Any) -> None:
    """Raise a `UsageError` unless `via` is None or a connector."""
    if via is not None and not is_connector(via):
        raise UsageError(f"via must be a connector such as penstock.testing.Scripted([...]), not {via!r}")


def check_transport(transport: str | None, *, is_played: bool) -> None:
    """Raise a `UsageError` if a model that is played has a transport other than HTTP."""
    if is_played and transport not in (None, "http"):
        raise UsageError(f"transport={transport!r} cannot be combined with `via` or a recording")


def check_headers(headers: Any) -> None:
    """Raise a `UsageError` unless headers are printable ASCII. The message names the header and not its value."""
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers must be a mapping of names to values, not {type(headers).__name__}")
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise UsageError(f"the names and values of headers must be strings; {name!r} has {type_name(value)}")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"the header {name!r} has characters that headers cannot have, such as a line end")
