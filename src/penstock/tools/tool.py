"""Tools: typed functions that a model can call.

`@tool` makes one of a function, and a plain function is taken wherever a tool is. What the model is told comes from the
type hints and the docstring; what it then says is checked and converted by the same hints.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError
from penstock.tools.options import Approval, RunOptions, ToolOptions, check_names, check_options
from penstock.tools.outcome import ToolOutput
from penstock.tools.policy import DEFAULT_RETRIES, StartPolicy
from penstock.tools.schema_arguments import SchemaArguments
from penstock.tools.signature import (
    NO_DEFAULT,
    Context,
    Parameter,
    Signature,
    context_signature,
    label_of,
    name_of,
    read_signature,
)
from penstock.tools.typed_arguments import TypedArguments

__all__ = [
    "Context",
    "Tool",
    "ToolOptions",
    "ToolOutput",
    "as_tool",
    "as_tools",
    "tool",
    "tool_table",
]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}\Z")


class Arguments(Protocol):
    """What a tool takes: the schema that a model is shown, and the check of what it gives."""

    parameters: dict[str, Any]

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function; an `ArgumentsError` if they do not fit."""
        ...


class Tool(Generic[P, R]):
    """A function that a model can call; to everyone else it is the function as before.

    `declaration` is what a model is told. `function` is called with what `check` and then `bound` give. A tool without
    a function `is_deferred`, and so is one that says so: a model may call it, and somebody else has to say what came of
    it.
    """

    __name__: str

    def __init__(
        self,
        declaration: ToolDeclaration,
        arguments: Arguments,
        function: Callable[P, R] | None,
        signature: Signature,
        *,
        read_only: bool = False,
        start: StartPolicy | None = None,
        approval: Approval = False,
        timeout: float | None = None,
        retries: int | None = DEFAULT_RETRIES,
        parallel: bool = True,
        deferred: bool = False,
    ) -> None:
        called: Any = functools.partial(_refuse, declaration.name) if function is None else function
        if inspect.isroutine(called):
            functools.update_wrapper(self, called)
        else:  # an object has no name of its own, and its attributes are its own affair
            self.__name__ = declaration.name
            self.__doc__ = declaration.description
        self.declaration = declaration
        self.name = declaration.name
        self.description = declaration.description
        self.parameters = arguments.parameters
        self.is_deferred = deferred or function is None
        self._arguments = arguments
        self._signature = signature
        self._take(called)
        self.read_only = read_only
        self.start: StartPolicy | None = start
        self.approval = approval
        self.timeout = timeout
        self.retries = retries
        self.parallel = parallel
        if fault := self._fault():
            raise UsageError(f"the tool {self.name!r}: {fault}")

    def _take(self, function: Callable[..., Any]) -> None:
        """Make this the function that is called."""
        self.__wrapped__ = function
        self.function = self._signature.by_keyword(function)
        is_function = inspect.isroutine(function) or isinstance(function, functools.partial)
        kind: Any = function if is_function else type(function).__call__
        self.is_generator = inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind)
        self.is_async = inspect.iscoroutinefunction(kind) or inspect.isasyncgenfunction(kind)

    def _fault(self) -> str:
        """What cannot be, of what was said of it."""
        if not self.is_hosted and not _NAME.match(self.name):
            return "this is no name for a tool; give it one of letters, digits, `_` and `-`: tool(name='…')"
        if self.start == "closed" and not self.read_only:
            return "start='closed' runs a call that may still change: it is for tools with read_only=True"
        if self.start == "closed" and self.is_deferred:
            return "start='closed' is for tools that run here: one that is deferred starts with its 'call' or 'turn'"
        if self.timeout is not None and self.is_deferred:
            return "it is deferred, and where it runs there is no timeout of ours: see Limits(seconds=…)"
        return "" if _is_strict_json(self.parameters) else "its schema is not JSON"

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[..., Any] | None = None,
        *,
        strict: bool | None = None,
        **options: Unpack[RunOptions],
    ) -> Tool[..., Any]:
        """A tool with a JSON Schema of its own; its arguments are checked by it, and given as they are."""
        told: Any = {**options, "strict": strict}
        return _from_declaration(ToolDeclaration(name, description, parameters), function, told)

    @property
    def strict(self) -> bool | None:
        """Whether the provider is asked to hold the model to the schema; None leaves it to the provider."""
        return self.declaration.extra.get("strict")

    @property
    def is_hosted(self) -> bool:
        """Whether the provider runs it."""
        return self.declaration.hosted is not None

    @property
    def is_method(self) -> bool:
        """Whether it wants an object first: `shop.price` is a tool, `Shop.price` is not yet."""
        return self._signature.is_method

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments, of the annotated types; an `ArgumentsError` names the fields that do not fit."""
        return self._arguments.check(arguments)

    def complete_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the function will get of the arguments: as `check` gives them, and copies of the other defaults."""
        checked = self.check(arguments)
        left = [one for one in self._signature.parameters if one.name not in checked and one.default is not NO_DEFAULT]
        return {**{one.name: _copied(one.default) for one in left}, **checked}

    def with_context(self, arguments: Mapping[str, Any], context: Context[Any]) -> dict[str, Any]:
        """The keyword arguments with the context of the run, for a function that wants it."""
        return {**arguments, **dict.fromkeys(self._signature.contexts, context)}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as if it were no tool."""
        result: R = self.__wrapped__(*args, **kwargs)
        return result

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Tool[P, R]: ...
    @overload
    def __get__(self: Tool[Concatenate[Any, Q], R], instance: object, owner: type | None = None) -> Tool[Q, R]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Tool[..., Any]:
        """A method becomes the tool of its object; any other tool stays what it is."""
        if instance is None or not self.is_method:
            return self
        bound: Tool[..., Any] = copy.copy(self)
        bound._signature = msgspec.structs.replace(self._signature, is_method=False)
        bound._take(self.__wrapped__.__get__(instance, owner))
        return bound

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def _refuse(name: str, /, **arguments: Any) -> Any:
    raise UsageError(f"the tool {name!r} has no function: its calls are deferred")


def _is_strict_json(value: Any) -> bool:
    try:
        return bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """A function as a tool: `@tool`, or `@tool(read_only=True)` with any of `ToolOptions`."""
    if function is None:
        check_names(options)
        return functools.partial(_from_function, options=options)
    return _from_function(function, options)


def _from_function(function: Callable[P, R], options: ToolOptions) -> Tool[P, R]:
    if isinstance(function, Tool):
        raise UsageError(f"{function.name!r} is a tool already: give the options where it is made")
    if isinstance(function, type) or not callable(function):
        raise UsageError(f"{function!r} is no tool: give a function, a method or an object that can be called")
    check_options(options, name_of(function))
    signature = read_signature(function)
    arguments = TypedArguments(signature, strict=bool(options.get("strict")))
    named = ToolDeclaration(name_of(function), signature.description, arguments.parameters)
    # The names of the scopes around are not kept: all that lives there would live as long as the tool.
    kept = msgspec.structs.replace(signature, names={})
    return Tool(_told(named, options), arguments, function, kept, **_run_options(options))


def _from_declaration(
    named: ToolDeclaration, function: Callable[..., Any] | None, options: ToolOptions
) -> Tool[..., Any]:
    check_options(options, named.name)
    schema: Any = named.parameters
    if not isinstance(schema, Mapping) or schema.get("type", "object") not in ("object", "OBJECT"):
        raise UsageError(f"the tool {named.name!r}: its parameters are {schema!r}: give the JSON Schema of an object")
    signature = _declared_signature(named) if function is None else context_signature(function)
    told = _told(named, {"strict": named.extra.get("strict"), **options})
    return Tool(told, SchemaArguments(schema), function, signature, **_run_options(options))


def _declared_signature(named: ToolDeclaration) -> Signature:
    """The signature of a tool without a function: where it runs, the defaults of its schema hold."""
    properties: Any = named.parameters.get("properties")
    fields: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    defaults = {name: one["default"] for name, one in fields.items() if isinstance(one, Mapping) and "default" in one}
    return Signature(named.name, parameters=tuple(Parameter(name, default=value) for name, value in defaults.items()))


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  # how an object is copied is a user's code
        return value


def _told(named: ToolDeclaration, options: ToolOptions) -> ToolDeclaration:
    """The declaration, with what the options say of it."""
    strict = options.get("strict")
    return msgspec.structs.replace(
        named,
        name=options.get("name", named.name),
        description=options.get("description", named.description),
        extra=named.extra if strict is None else {**named.extra, "strict": strict},
    )


def _run_options(options: ToolOptions) -> RunOptions:
    rest: Any = {key: value for key, value in options.items() if key not in ("name", "description", "strict")}
    return cast("RunOptions", rest)


def as_tool(what: Any, function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Tool[..., Any]:
    """The tool that this is: a tool, whatever can be called, or a declaration in any provider's shape.

    A declaration may come with the `function` that does it; without one, its calls are deferred.
    """
    match what:
        case Tool() if not options and function is None:
            return _of_object(what)
        case types.MethodType(__func__=Tool() as method) if not options and function is None:
            return method.__get__(what.__self__)
        case type() if any("__call__" in vars(base) for base in what.__mro__):
            return as_tool(_instance(what), function, **options)
        case Mapping() | ToolDeclaration():
            return _from_declaration(_only(what), function, options)
        case _ if _declares(what):
            itself = what if callable(what) else None
            return _from_declaration(_only(what), itself if function is None else function, options)
        case _ if function is None:
            return _from_function(what, options)
        case _:
            raise UsageError(f"{what!r} is no declaration: give one, and then the function that does it")


def _only(what: Any) -> ToolDeclaration:
    found = read_declarations([what])
    if len(found) != 1:
        raise UsageError(f"{what!r} declares {len(found)} tools: give them one by one, or take as_tools")
    return found[0]


def _declares(what: Any) -> bool:
    """Whether an object says itself what a model is to be told of it, as the tools of SDKs do."""
    if inspect.isroutine(what) or isinstance(what, str | type | Tool) or not getattr(what, "name", ""):
        return False
    return any(one.parameters for one in read_declarations([what]))


def as_tools(tools: Iterable[Any] | None) -> list[Tool[..., Any]]:
    """The tools that these are; one declaration may hold several."""
    given: Any = tools or ()
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"tools is one {type(given).__name__}: give a list of tools")
    each = (read_declarations([what]) if isinstance(what, Mapping) else [what] for what in given)
    return [as_tool(what) for some in each for what in some]


def tool_table(tools: Iterable[Any] | None) -> dict[str, Tool[..., Any]]:
    """The tools by their names, which differ; those that a provider runs, and that nobody looks up, by a number."""
    table: dict[str, Tool[..., Any]] = {}
    for one in as_tools(tools):
        name = f"hosted:{len(table)}" if one.is_hosted else one.name
        if name in table:
            raise UsageError(
                f"two tools are called {name!r}: {_origin(table[name])} and {_origin(one)}; give one another name"
            )
        table[name] = one
    return table


def _of_object(method: Tool[..., Any]) -> Tool[..., Any]:
    if method.is_method:
        raise UsageError(f"{_origin(method)} is a method: give that of an object")
    return method


def _instance(kind: type) -> Any:
    try:
        return kind()
    except TypeError as error:
        raise UsageError(f"{kind.__qualname__} cannot be made without arguments: give an object of it") from error


def _origin(one: Tool[..., Any]) -> str:
    return f"the declaration of {one.name!r}" if one.is_deferred else label_of(one.__wrapped__)
