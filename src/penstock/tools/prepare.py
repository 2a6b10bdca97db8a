"""The first phase of a tool: its `prepare` function, which has no side effects and may run before the call starts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.tools.signature import NO_DEFAULT, Context, Signature, context_signature, is_unbound, label_of


class Prepared(Struct, frozen=True):
    """What a `prepare` function may return: a value for its tool (`context.prepared`), and a preview for a person.

    `preview` is text that stands in the `ApprovalRequest` if a person is asked, such as the difference that an edit
    makes.
    """

    value: Any = None
    preview: str = ""


class Preparation:
    """The `prepare` function of a tool: it takes arguments of the tool by their names, and a `Context`."""

    def __init__(self, function: Callable[..., Any], tool: str, parameters: Mapping[str, Any], own: Signature) -> None:
        if not callable(function):
            raise UsageError(f"tool {tool!r}: prepare must be a function, not {function!r}")
        self.function = function
        self.is_method = is_unbound(function)
        signature = context_signature(function)
        self._context_names, self._takes_all = signature.context_names, signature.rest is not None
        self._names = {parameter.name for parameter in signature.parameters[self.is_method :]}
        kind: Any = function if _is_function(function) else type(function).__call__
        self.is_async = inspect.iscoroutinefunction(kind)
        if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
            raise UsageError(f"tool {tool!r}: prepare must return a value; {label_of(function)} is a generator")
        required = [each.name for each in signature.parameters[self.is_method :] if each.default is NO_DEFAULT]
        known = _names(parameters, own)
        if known is not None and (unknown := [name for name in required if name not in known]):
            raise UsageError(f"tool {tool!r}: prepare takes {unknown[0]!r}, which is not a parameter of the tool")

    def call(self, arguments: dict[str, Any], context: Context[Any]) -> Any:
        """Call it with these checked arguments of the tool; the result of an async one is to be awaited."""
        values = {name: value for name, value in arguments.items() if self._takes_all or name in self._names}
        return self.function(**values, **dict.fromkeys(self._context_names, context))


def as_prepared(value: Any) -> Prepared:
    """What a `prepare` function returned."""
    if not isinstance(value, Prepared):
        return Prepared(value)
    preview: Any = value.preview
    if not isinstance(preview, str):
        raise UsageError(f"the preview of a Prepared must be a string, not {preview!r:.80}")
    return value


def _is_function(function: Any) -> bool:
    return inspect.isroutine(function) or isinstance(function, functools.partial)


def _names(parameters: Mapping[str, Any], own: Signature) -> set[str] | None:
    """The names of a tool's arguments, by its schema and its signature; None if it takes any."""
    properties: Any = parameters.get("properties")
    if own.rest is not None or not isinstance(properties, Mapping):
        return None
    return {*(parameter.name for parameter in own.parameters), *properties}
