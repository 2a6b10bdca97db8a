"""Tools: typed functions that a model can call.

`@tool` turns a function into a tool; where a tool is expected, a plain function is accepted too. The declaration that
the model gets comes from the type hints and the docstring; its arguments are validated and converted by the same hints.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError
from penstock.jsontext.values import canonical_json, deep_copy
from penstock.results import ToolOutput
from penstock.tools.options import (
    Approval,
    Arguments,
    ExecutionOptions,
    Prepare,
    ToolOptions,
    check_names,
    check_options,
)
from penstock.tools.policy import DEFAULT_RETRIES, StartPolicy
from penstock.tools.prepare import Preparation
from penstock.tools.schema_arguments import SchemaArguments
from penstock.tools.signature import (
    NO_DEFAULT,
    Context,
    Signature,
    context_signature,
    declared_signature,
    label_of,
    name_of,
    read_signature,
)
from penstock.tools.typed_arguments import TypedArguments, is_json
from penstock.tools.unclear_tools import warn_if_unclear

__all__ = ["Context", "Tool", "ToolOptions", "ToolOutput", "as_tool", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}\Z")


class Tool(Generic[P, R]):
    """A function that a model can call. Calling the tool calls the function.

    `declaration` is sent to the model. A run calls `function` with the result of `bind`. A tool without
    a function, or with the option `deferred`, `is_deferred`: a model may call it, and the program provides the result.
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
        idempotent: bool = False,
        start: StartPolicy | None = None,
        approval: Approval = None,
        expires: float | None = None,
        timeout: float | None = None,
        retries: int | None = DEFAULT_RETRIES,
        parallel: bool | None = None,
        deferred: bool = False,
        prepare: Prepare = None,
    ) -> None:
        called: Any = functools.partial(_no_function, declaration.name) if function is None else function
        if inspect.isroutine(called):
            functools.update_wrapper(self, called)
        else:  # an object has no name, and its attributes must not be copied
            self.__name__ = declaration.name
            self.__doc__ = declaration.description
        self.declaration = declaration
        self.name = declaration.name
        self.description = declaration.description
        self.parameters = arguments.parameters
        self.is_deferred = deferred or function is None
        self._arguments = arguments
        self._signature = signature
        self._set_function(called)
        self.read_only = read_only
        self.idempotent = idempotent
        self.start: StartPolicy | None = start
        self.approval = approval
        self.expires = expires
        self.timeout = timeout
        self.retries = retries
        self.parallel = parallel
        self.preparation = None if prepare is None else Preparation(prepare, self.name, self.parameters, signature)
        if problem := self._find_problem():
            raise UsageError(f"tool {self.name!r}: {problem}")

    def _set_function(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self.function = self._signature.by_keyword(function)
        is_function = inspect.isroutine(function) or isinstance(function, functools.partial)
        kind: Any = function if is_function else type(function).__call__
        self.is_generator = inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind)
        self.is_async = inspect.iscoroutinefunction(kind) or inspect.isasyncgenfunction(kind)

    def _find_problem(self) -> str:
        """The first contradiction between the options, the name and the schema; empty if there is none."""
        if not self.is_hosted and not _NAME.match(self.name):
            return "this is not a valid name; use letters, digits, `_` and `-`: tool(name='…')"
        if self.start == "closed" and not self.read_only:
            return "start='closed' runs a call that may still change, and needs read_only=True"
        if self.start == "closed" and self.is_deferred:
            return "a deferred tool cannot have start='closed'; use 'call' or 'turn'"
        if self.timeout is not None and self.is_deferred:
            return "a deferred tool cannot have a timeout; use expires=…, the seconds that its result may take"
        if self.preparation is not None and self.is_deferred:
            return "a deferred tool cannot have prepare=…: it runs elsewhere"
        if self.expires is not None and not self.approval and not self.is_deferred:
            return "expires is for calls that wait: add approval=…, or deferred=True"
        return "" if is_json(self.parameters) else "its schema cannot be written as JSON"

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[..., Any] | None = None,
        *,
        strict: bool | None = None,
        **options: Unpack[ExecutionOptions],
    ) -> Tool[..., Any]:
        """A tool with a given JSON Schema; its arguments are validated by it and passed unchanged."""
        all_options: Any = {**options, "strict": strict}
        return _from_declaration(ToolDeclaration(name, description, parameters), function, all_options)

    @property
    def strict(self) -> bool | None:
        """Whether the provider is asked to enforce the schema; None leaves it to the provider."""
        return self.declaration.extra.get("strict")

    @property
    def is_hosted(self) -> bool:
        """Whether the provider defines it. The provider runs it too, unless its protocol says that the client must."""
        return self.declaration.hosted is not None

    @property
    def needed_deps(self) -> str:
        """The annotation of its context, such as `Context[Deps]`, if that needs the `deps` of a run; else empty."""
        return self._signature.deps

    @property
    def is_method(self) -> bool:
        """Whether this is an unbound method: `shop.price` can be called by a model, `Shop.price` cannot."""
        return self._signature.is_method

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the keyword arguments, converted to the annotated types, or raises an `ArgumentsError`."""
        return self._arguments.check(arguments)

    def complete_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The checked arguments, with copies of the defaults of those that are missing."""
        checked = self.check(arguments)
        optional = [parameter for parameter in self._signature.parameters if parameter.default is not NO_DEFAULT]
        missing = [parameter for parameter in optional if parameter.name not in checked]
        return {**{parameter.name: _copied(parameter.default) for parameter in missing}, **checked}

    def json_form(self, name: str, value: Any) -> Any:
        """The JSON form of a converted argument; raises if it has none."""
        try:
            return json.loads(canonical_json(value))
        except (TypeError, ValueError, RecursionError):
            return json.loads(canonical_json(self._arguments.to_json(name, value)))

    def bind(self, arguments: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        """The keyword arguments for a call of the function in a run; raises an `ArgumentsError`.

        The function gets a copy, because the history holds the arguments too, and a tool may change them.
        """
        checked = self.check(deep_copy(arguments))
        return {**checked, **dict.fromkeys(self._signature.context_names, context)}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function."""
        result: R = self.__wrapped__(*args, **kwargs)
        return result

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Tool[P, R]: ...
    @overload
    def __get__(self: Tool[Concatenate[Any, Q], R], instance: object, owner: type | None = None) -> Tool[Q, R]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Tool[..., Any]:
        """Binds a method to its object; any other tool is returned unchanged."""
        if instance is None or not self.is_method:
            return self
        bound: Tool[..., Any] = copy.copy(self)
        bound._signature = msgspec.structs.replace(self._signature, is_method=False)
        bound._set_function(self.__wrapped__.__get__(instance, owner))
        if self.preparation is not None and self.preparation.is_method:
            prepare = self.preparation.function.__get__(instance, owner)
            bound.preparation = Preparation(prepare, self.name, self.parameters, bound._signature)
        return bound

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def _no_function(name: str, /, **arguments: Any) -> Any:
    raise UsageError(f"tool {name!r} has no function to call: it is deferred")


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Turns a function into a tool: `@tool`, or `@tool(read_only=True)` with any of these options.

    - `name`: the name for the model, instead of that of the function.
    - `description`: the description for the model, instead of the docstring.
    - `read_only`: the tool has no side effects, so it may start before its call is confirmed.
    - `idempotent`: running the tool twice for one call has the effect of running it once. It runs again if its process
      ended while it ran.
    - `start`: when a call starts: when its arguments are `closed`, when the `call` is confirmed, or after the `turn`.
    - `approval`: asks a person first: always (True), or if a function returns True for the arguments. The function gets
      a copy of the converted arguments with their defaults and, if it takes two, their sources (see `PendingCall`). It
      may be async. By default (None), a person is asked only
      about calls with side effects that `rescue` found in the text; False never asks.
    - `expires`: how many seconds a call waits for the person, or a deferred call for its result. Then it counts as
      declined, or as failed.
    - `timeout`: how many seconds a call may take.
    - `retries`: how often the model may retry after consecutive failures; None means no limit.
    - `parallel`: the order of its calls in a response. None: a `read_only` call sees the effects of all calls before
      it; calls with side effects run beside each other. False: it runs alone, after all calls before it and before all
      after it. True: it neither waits for other calls nor do they wait for it.
    - `deferred`: the tool runs elsewhere. Its function only declares it, and the run waits for a result (`provide`).
    - `prepare`: a function without side effects that runs before the tool, as early as the arguments are known: it
      connects, looks up, computes. It takes arguments of the tool by their names and a `Context`, and may be async. The
      tool gets what it returns as `context.prepared`; a person who is asked sees its preview (see `Prepared`).
    - `strict`: asks the provider to enforce the schema.
    - `vendor`: the provider's own declaration of a tool that it defines and the function runs, such as
      `{"type": "bash_20250124", "name": "bash"}`. Name, description and schema are then the provider's.
    """
    if function is None:
        check_names(options)
        return functools.partial(_from_function, options=options)
    return _from_function(function, options)


def _from_function(function: Callable[P, R], options: ToolOptions) -> Tool[P, R]:
    if isinstance(function, Tool):
        raise UsageError(f"{function.name!r} is already a tool: set the options where it is defined")
    if isinstance(function, type) or not callable(function):
        is_agent = hasattr(function, "as_tool")
        use = "agent.as_tool(name, description)" if is_agent else "a function, a method or a callable object"
        raise UsageError(f"{function!r} cannot be a tool: use {use}")
    check_options(options, name_of(function))
    signature = read_signature(function)
    arguments = TypedArguments(signature, strict=bool(options.get("strict")))
    if "vendor" in options:
        declaration = _vendor_declaration(options["vendor"], options)
    else:
        declaration = ToolDeclaration(name_of(function), signature.description, arguments.parameters)
        warn_if_unclear(function, signature, options.get("name") or declaration.name, options.get("description", ""))
    # The namespace is dropped: everything in the enclosing scopes would live as long as the tool.
    kept = msgspec.structs.replace(signature, namespace={})
    return Tool(_with_options(declaration, options), arguments, function, kept, **_execution_options(options))


def _vendor_declaration(vendor: Mapping[str, Any], options: ToolOptions) -> ToolDeclaration:
    """The declaration of a tool that the provider defines, and whose calls a function runs."""
    declaration = _single_declaration(vendor)
    if declaration.hosted is None:
        raise UsageError(f"{dict(vendor)!r} declares a function: leave out vendor=…, or pass a type of the provider's")
    if taken := [name for name in ("name", "description", "strict") if name in options]:
        raise UsageError(f"the provider defines the tool {declaration.name!r}: leave out {taken[0]}=…")
    return declaration


def _from_declaration(
    declaration: ToolDeclaration, function: Callable[..., Any] | None, options: ToolOptions
) -> Tool[..., Any]:
    check_options(options, declaration.name)
    schema: Any = declaration.parameters
    if not isinstance(schema, Mapping) or schema.get("type", "object") not in ("object", "OBJECT"):
        raise UsageError(f"tool {declaration.name!r}: parameters must be the JSON Schema of an object, not {schema!r}")
    if not is_json(schema):
        raise UsageError(f"tool {declaration.name!r}: its schema cannot be written as JSON")
    signature = (
        declared_signature(declaration.name, declaration.parameters)
        if function is None
        else context_signature(function)
    )
    complete = _with_options(declaration, {"strict": declaration.extra.get("strict"), **options})
    try:
        arguments = SchemaArguments(schema)
    except UsageError as error:
        raise UsageError(f"tool {declaration.name!r}: {error}") from None
    return Tool(complete, arguments, function, signature, **_execution_options(options))


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  # copying an object runs user code
        return value


def _with_options(declaration: ToolDeclaration, options: ToolOptions) -> ToolDeclaration:
    """The declaration with the name, the description and `strict` of the options."""
    strict = options.get("strict")
    return msgspec.structs.replace(
        declaration,
        name=options.get("name", declaration.name),
        description=options.get("description", declaration.description),
        extra=declaration.extra if strict is None else {**declaration.extra, "strict": strict},
    )


def _execution_options(options: ToolOptions) -> ExecutionOptions:
    declared = ("name", "description", "strict", "vendor")
    rest: Any = {key: value for key, value in options.items() if key not in declared}
    return cast("ExecutionOptions", rest)


def as_tool(
    source: Any, function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[..., Any]:
    """Converts a tool, a callable, or a declaration in any provider's format to a `Tool`.

    `function` is called for a declaration; without one, its calls are deferred.
    """
    match source:
        case Tool() if not options and function is None:
            return _bound_method(source)
        case types.MethodType(__func__=Tool() as method) if not options and function is None:
            return method.__get__(source.__self__)
        case type() if any("__call__" in vars(base) for base in source.__mro__):
            return as_tool(_instance(source), function, **options)
        case Mapping() | ToolDeclaration():
            declaration = _single_declaration(source)
            if declaration.hosted is not None and function is not None:
                return _from_function(function, {**options, "vendor": declaration.hosted})
            return _from_declaration(declaration, function, options)
        case _ if _declares_itself(source):
            itself = source if callable(source) else None
            return _from_declaration(_single_declaration(source), itself if function is None else function, options)
        case _ if function is None:
            return _from_function(source, options)
        case _:
            raise UsageError(f"{source!r} is not a declaration: pass a declaration first, then its function")


def _single_declaration(source: Any) -> ToolDeclaration:
    declarations = read_declarations([source])
    if len(declarations) != 1:
        raise UsageError(f"{source!r} declares {len(declarations)} tools: pass them one by one, or use as_tools")
    return declarations[0]


def _declares_itself(source: Any) -> bool:
    """Whether an object has a name and a schema, as the tools of SDKs do."""
    if inspect.isroutine(source) or isinstance(source, str | type | Tool) or not getattr(source, "name", ""):
        return False
    return any(declaration.parameters for declaration in read_declarations([source]))


def _bound_method(method: Tool[..., Any]) -> Tool[..., Any]:
    if method.is_method:
        raise UsageError(f"{origin_of(method)} is an unbound method: pass the method of an object")
    return method


def _instance(kind: type) -> Any:
    try:
        return kind()
    except TypeError as error:
        raise UsageError(f"{kind.__qualname__} cannot be created without arguments: pass an instance") from error


def origin_of(tool: Tool[..., Any]) -> str:
    """Where a tool comes from, for a message."""
    return f"the declaration of {tool.name!r}" if tool.is_deferred else label_of(tool.__wrapped__)
