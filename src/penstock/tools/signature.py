"""Reads what a function takes: its signature, its type hints and its docstring."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, get_origin, get_type_hints

from msgspec import Struct

from penstock.errors import UsageError
from penstock.messages import Message
from penstock.tools.annotations import needed_deps, union_members

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

NO_DEFAULT: Any = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def count_required(function: Callable[..., Any]) -> int:
    """How many positional arguments a callback must get; 0 if that is unknown, as for some builtin functions."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is NO_DEFAULT for each in parameters)


def takes_any(function: Callable[..., Any], *counts: int) -> bool:
    """Whether a callback can be called with one of these numbers of arguments; True if that is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    return any(_binds(signature, count) for count in counts)


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _ignore(progress: Any) -> None:
    """The default of `Context.report`."""


def _never() -> bool:
    """The default of `Context.cancelled`."""
    return False


def _no_answer(question: dict[str, Any], seconds: float) -> Any:
    """The default of `Context.ask`."""
    raise UsageError("Context.ask needs a run with a reader: this tool was called outside of a run")


class Context(Struct, Generic[Deps], frozen=True, eq=False):
    """The run that a tool is called in. A parameter with this annotation gets it; the model does not see it.

    `deps` is what the program passed to the run. `report` emits progress. If the reader of the run is slow, `report`
    waits; called on the event loop of the run, where it cannot wait, it replaces the last unread report of the same
    call. `key` identifies the execution: it is the same if the tool runs again after its process ended, so that a
    service can recognize a request that it has had. A plain function cannot be stopped from outside: one that takes
    long asks `is_cancelled` now and then.

    `ask` asks whoever reads the run, in an `approval_request` of the kind `input`, and returns a
    `concurrent.futures.Future` of the answer (`run.provide`), an `Outcome`. It raises if no answer comes within the
    seconds, or nobody reads the run. A call asks one question at a time.

    `prepared` is what the `prepare` function of the tool returned. `messages` is the history before the response with
    this call.
    """

    deps: Deps
    call_id: str = ""
    tool: str = ""
    step: int = 0
    report: Callable[[Any], None] = _ignore
    cancelled: Callable[[], bool] = _never
    key: str = ""
    ask: Callable[[dict[str, Any], float], Any] = _no_answer
    prepared: Any = None
    _history: Callable[[], Sequence[Message]] = tuple

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history before the response with this call."""
        return tuple(self._history())

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled, or its timeout expired: its result is not used."""
        return self.cancelled()


class Parameter(Struct, frozen=True):
    """A parameter of a function. `annotation` is None if it accepts any value."""

    name: str
    annotation: Any = None
    default: Any = NO_DEFAULT
    description: str = ""


class Signature(Struct, frozen=True):
    """The parameters of a function that a model can pass.

    `rest` stands for `**kwargs`. `context_names` are the parameters that get the context of the run, `hidden` the names
    that a model may not use, `positional` the positional-only parameters, `namespace` the names that annotations may
    refer to. `is_method` says that the function is an unbound method. `deps` is the annotation of a context whose
    `deps` must not be None, as text; `untyped` are the parameters without a type hint.
    """

    label: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    rest: Parameter | None = None
    context_names: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    positional: tuple[Parameter, ...] = ()
    namespace: Mapping[str, Any] = {}
    is_method: bool = False
    deps: str = ""
    untyped: tuple[str, ...] = ()

    def by_keyword(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with all its parameters callable by keyword."""
        if not self.positional:
            return function

        def named(**values: Any) -> Any:
            first = [values.pop(parameter.name, parameter.default) for parameter in self.positional]
            return function(*first, **values)

        return named


def read_signature(function: Callable[..., Any]) -> Signature:
    """Reads the signature; raises a `UsageError` for a parameter that a model cannot pass."""
    inner, bound = unwrap(function)
    label = label_of(function)
    try:
        raw_parameters = list(_signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise UsageError(f"{label}: its signature cannot be read ({error}); use Tool.from_schema") from None
    is_method = _is_method(function, raw_parameters)
    docstring = parse_docstring(_doc(function, inner))
    namespace = dict(_namespace(function, inner))
    read = functools.partial(_parameter, label=label, namespace=namespace, descriptions=docstring.parameters)
    parameters = [(raw, read(raw)) for raw in raw_parameters[is_method:] if raw.name not in bound]
    context_names = tuple(parameter.name for _, parameter in parameters if _is_context(parameter.annotation))
    visible = [(raw, parameter) for raw, parameter in parameters if parameter.name not in context_names]
    return Signature(
        label,
        docstring.description,
        tuple(parameter for raw, parameter in visible if raw.kind not in _VARIADIC),
        next((parameter for raw, parameter in visible if raw.kind is raw.VAR_KEYWORD), None),
        context_names,
        frozenset({*context_names, *bound}),
        tuple(parameter for raw, parameter in parameters if raw.kind is raw.POSITIONAL_ONLY),
        namespace,
        is_method,
        needed_deps([parameter.annotation for _, parameter in parameters], _is_context),
        tuple(raw.name for raw, _ in parameters if raw.annotation is NO_DEFAULT),
    )


def context_signature(function: Callable[..., Any]) -> Signature:
    """The signature of a function that is declared with a schema: its defaults, and its context parameters."""
    try:
        raw_parameters = list(_signature(function).parameters.values())
    except (ValueError, TypeError):
        raw_parameters = []
    namespace = dict(_namespace(function, unwrap(function)[0]))
    hints = {raw.name: _hint(raw.annotation, namespace) for raw in raw_parameters}
    context_names = tuple(name for name, hint in hints.items() if _is_context(hint))
    visible = [raw for raw in raw_parameters if raw.kind not in _VARIADIC and raw.name not in context_names]
    parameters = tuple(Parameter(raw.name, hints[raw.name], default=raw.default) for raw in visible)
    rest = next((Parameter(raw.name) for raw in raw_parameters if raw.kind is raw.VAR_KEYWORD), None)
    deps = needed_deps(hints.values(), _is_context)
    return Signature(label_of(function), parameters=parameters, rest=rest, context_names=context_names, deps=deps)


def declared_signature(name: str, schema: Mapping[str, Any]) -> Signature:
    """The signature of a tool without a function, with the defaults of its schema."""
    properties: Any = schema.get("properties")
    fields: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    defaults = {
        key: field["default"] for key, field in fields.items() if isinstance(field, Mapping) and "default" in field
    }
    return Signature(name, parameters=tuple(Parameter(key, default=value) for key, value in defaults.items()))


def label_of(function: Callable[..., Any]) -> str:
    """The module and the qualified name of a function, for messages."""
    named: Any = type(function) if _is_object(function) else unwrap(function)[0]
    return ".".join(filter(None, [getattr(named, "__module__", ""), getattr(named, "__qualname__", repr(function))]))


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function; for an object, that of its class."""
    named: Any = type(function) if _is_object(function) else unwrap(function)[0]
    return str(getattr(function, "__name__", None) or named.__name__)


# The function behind a callable.


def unwrap(function: Any) -> tuple[Any, frozenset[str]]:
    """The function behind methods, partials, wrappers and callable objects, and the names bound by partials."""
    bound: set[str] = set()
    while True:
        match function:
            case functools.partial():
                bound |= set(function.keywords)
                function = function.func
            case types.MethodType():
                function = function.__func__
            case object(__wrapped__=wrapped):
                function = wrapped
            case types.FunctionType() | types.BuiltinFunctionType() | type():
                return function, frozenset(bound)
            case _:
                call = type(function).__call__
                if not isinstance(call, types.FunctionType):
                    return function, frozenset(bound)
                function = call


def _is_object(function: Any) -> bool:
    """Whether this is an object with a `__call__`."""
    return not (inspect.isroutine(function) or isinstance(function, functools.partial | type | staticmethod))


def _doc(function: Any, inner: Any) -> str:
    """The docstring; for an object, that of its `__call__`, or else of its class."""
    docstring = inner.__doc__ if _is_object(function) else inspect.getdoc(inner)
    return docstring or (inspect.getdoc(type(function)) if _is_object(function) else "") or ""


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # annotations are evaluated lazily
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def is_unbound(function: Any) -> bool:
    """Whether this is a method that is not bound to an object, as in the body of its class."""
    try:
        return _is_method(function, list(_signature(function).parameters.values()))
    except (ValueError, TypeError):
        return False


def _is_method(function: Any, parameters: list[inspect.Parameter]) -> bool:
    """Whether the function is defined in a class and is not bound to an object."""
    scope = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(
        inspect.isfunction(function)
        and scope
        and not scope.endswith("<locals>")
        and parameters
        and parameters[0].name in ("self", "cls")
        and parameters[0].annotation is NO_DEFAULT
    )


# Type hints.


def _parameter(
    raw: inspect.Parameter, *, label: str, namespace: Mapping[str, Any], descriptions: Mapping[str, str]
) -> Parameter:
    if raw.kind is raw.VAR_POSITIONAL:
        raise UsageError(f"{label}: parameter `*{raw.name}`: a model passes arguments by name; use a list instead")
    try:
        annotation = _evaluate(raw.annotation, namespace)
    except Exception as error:  # annotations are user code
        raise UsageError(f"{label}: parameter `{raw.name}`: {_annotation_problem(raw, error)}") from error
    return Parameter(raw.name, annotation, raw.default, descriptions.get(raw.name, ""))


def _annotation_problem(raw: inspect.Parameter, error: Exception) -> str:
    advice = "; import the name at run time, not only under TYPE_CHECKING" if isinstance(error, NameError) else ""
    return f"its annotation {raw.annotation!r} cannot be evaluated: {error}{advice}"


def _hint(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    try:
        return _evaluate(annotation, namespace)
    except Exception:  # noqa: BLE001  # annotations are user code
        return None


def _evaluate(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    """Resolves the names in an annotation; None if there is no annotation or it accepts anything."""
    if annotation is NO_DEFAULT or annotation is Any or annotation is object:
        return None

    def holder() -> None: ...

    holder.__annotations__ = {"value": annotation}
    return get_type_hints(holder, dict(namespace), include_extras=True)["value"]


def _namespace(function: Any, inner: Any) -> Iterator[tuple[str, Any]]:
    """The names that annotations may refer to: of the module, then of inner scopes, which shadow them."""
    yield from getattr(inner, "__globals__", {}).items()
    for frame in reversed(list(_enclosing_frames(inner))):
        yield from frame.f_locals.items()
    for base in reversed(_owner(function).__mro__[:-1]):
        yield from vars(base).items()
    for name, cell in zip(*_cells(inner), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from ((parameter.__name__, parameter) for parameter in getattr(inner, "__type_params__", ()))


def _owner(function: Any) -> type:
    """The class of a method, whose names annotations may use; `object` for other functions."""
    match function:
        case types.MethodType(__self__=type() as owner):
            return owner
        case types.MethodType():
            return type(function.__self__)
        case _:
            return type(function) if _is_object(function) else object


def _cells(inner: Any) -> tuple[Iterable[str], Iterable[Any]]:
    match inner:
        case types.FunctionType(__closure__=tuple(cells)):
            return inner.__code__.co_freevars, cells
        case _:
            return (), ()


def _enclosing_frames(inner: Any) -> Iterator[types.FrameType]:
    """The running functions in which the function is defined, innermost first: types may be local to them."""
    scopes = _scopes(getattr(inner, "__qualname__", ""))
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while scopes and frame is not None:
        if frame.f_code.co_qualname in scopes and frame.f_globals is getattr(inner, "__globals__", None):
            scopes.discard(frame.f_code.co_qualname)
            yield frame
        frame = frame.f_back


def _scopes(qualname: str) -> set[str]:
    steps = qualname.split(".")[:-1]
    return {".".join(steps[: index + 1]) for index, step in enumerate(steps) if step != "<locals>"}


def _is_context(annotation: Any) -> bool:
    kinds = [get_origin(member) or member for member in union_members(annotation)]
    return any(isinstance(kind, type) and issubclass(kind, Context) for kind in kinds)


# Docstrings.


class Docstring(Struct, frozen=True):
    """The description in a docstring, and those of the parameters."""

    description: str = ""
    parameters: Mapping[str, str] = {}


def parse_docstring(docstring: str) -> Docstring:
    """Parses a docstring in Google, NumPy, Sphinx or Epydoc style; in other styles, all of it is the description."""
    if "\n" not in docstring:  # the parser is imported only where it is needed
        return Docstring(docstring.strip())
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(docstring)
    except ParseError:
        return Docstring(docstring.strip())
    parameters = {parameter.arg_name.lstrip("*"): (parameter.description or "").strip() for parameter in parsed.params}
    return Docstring((parsed.description or "").strip(), parameters)
