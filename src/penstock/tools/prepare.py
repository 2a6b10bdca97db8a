"""The first phase of a tool: its `prepare` function, which has no side effects and may run before the call starts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.tools.growing import Growing
from penstock.tools.signature import NO_DEFAULT, Context, Signature, context_signature, is_unbound, label_of


class Prepared(Struct, frozen=True):
    """What a `prepare` function may return: a value for its tool (`context.prepared`), and a preview for a person.

    `preview` is text that stands in the `ApprovalRequest` if a person is asked, such as the difference that an edit
    makes.
    """

    value: Any = None
    preview: str = ""


class Preparation:
    """The `prepare` function of a tool: it takes arguments of the tool by their names, and a `Context`.

    One that `grows` takes them as `Growing`, before they are complete. `needed_deps` is the annotation of a context
    whose `deps` must not be None, as text.
    """

    def __init__(self, function: Callable[..., Any], tool: str, parameters: Mapping[str, Any], own: Signature) -> None:
        if not callable(function):
            raise UsageError(f"tool {tool!r}: prepare must be a function, not {function!r}")
        self.function = function
        self.is_method = is_unbound(function)
        signature = context_signature(function)
        self._context_names, self._takes_all = signature.context_names, signature.rest is not None
        self.needed_deps = signature.deps
        own_parameters = signature.parameters[self.is_method :]
        self._growing_names = [each.name for each in own_parameters if each.annotation is Growing]
        self.grows = bool(self._growing_names)
        self._names = {each.name for each in own_parameters if each.name not in self._growing_names}
        kind: Any = function if _is_function(function) else type(function).__call__
        self.is_async = inspect.iscoroutinefunction(kind)
        if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
            raise UsageError(f"tool {tool!r}: prepare must return a value; {label_of(function)} is a generator")
        required = [each.name for each in own_parameters if each.name in self._names and each.default is NO_DEFAULT]
        if self.grows and not self.is_async:
            raise UsageError(f"tool {tool!r}: prepare takes Growing, so it must be async")
        if self.grows and (self._names or self._takes_all):
            names = ", ".join(map(repr, sorted(self._names))) or "any argument"
            raise UsageError(
                f"tool {tool!r}: prepare takes Growing, so it cannot take {names}: it starts before that is known"
            )
        known = _names(parameters, own)
        if known is not None and (unknown := [name for name in required if name not in known]):
            raise UsageError(f"tool {tool!r}: prepare takes {unknown[0]!r}, which is not a parameter of the tool")

    def call(self, arguments: dict[str, Any], context: Context[Any]) -> Any:
        """Call it with these checked arguments of the tool; the result of an async one is to be awaited."""
        assert not self.grows
        values = {name: value for name, value in arguments.items() if self._takes_all or name in self._names}
        return self.function(**values, **dict.fromkeys(self._context_names, context))

    def call_growing(self, growing: Growing, context: Context[Any]) -> Any:
        """A coroutine of a function that `grows`, with arguments that may still be written."""
        names = {**dict.fromkeys(self._growing_names, growing), **dict.fromkeys(self._context_names, context)}
        return self.function(**names)


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
