"""What a function takes, as its signature, its type hints and its docstring say it."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from penstock.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

NO_DEFAULT: Any = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _unheard(progress: Any) -> None:
    """Where progress goes that nobody listens to."""


class Context(Struct, Generic[Deps], frozen=True, eq=False):
    """What a tool may know of the run that it is called in; a parameter annotated so gets it, and no model sees it.

    `deps` is what the program handed to the run, `report` tells how far the tool is. If whoever reads the run is slow,
    `report` waits for them; called on the event loop of the run, where it cannot wait, it puts the new report in the
    place of the last unread one of the same call.
    """

    deps: Deps
    call_id: str = ""
    tool: str = ""
    step: int = 0
    report: Callable[[Any], None] = _unheard


class Parameter(Struct, frozen=True):
    """What one parameter takes. `annotation` is None if any value will do."""

    name: str
    annotation: Any = None
    default: Any = NO_DEFAULT
    description: str = ""


class Signature(Struct, frozen=True):
    """What a function takes from a model.

    `rest` stands for all other names, if the function has `**kwargs`. `contexts` get the context of the run,
    `hidden` are the names that a model may not use, `positional` those that only their position tells, `names` what the
    annotations may refer to. `is_method` says that an object is still wanted as the first argument.
    """

    label: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    rest: Parameter | None = None
    contexts: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    positional: tuple[Parameter, ...] = ()
    names: Mapping[str, Any] = {}
    is_method: bool = False

    def by_keyword(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, such that all its parameters can be given by name."""
        if not self.positional:
            return function

        def named(**values: Any) -> Any:
            first = [values.pop(parameter.name, parameter.default) for parameter in self.positional]
            return function(*first, **values)

        return named


def read_signature(function: Callable[..., Any]) -> Signature:
    """What the function takes; a `UsageError` names the parameter that no model could give."""
    inner, bound = _inner(function)
    label = label_of(function)
    try:
        found = list(_signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise UsageError(f"{label}: its signature cannot be read ({error}): give Tool.from_schema its schema") from None
    is_method = _is_method(function, found)
    found = [parameter for parameter in found[is_method:] if parameter.name not in bound]
    documented = parse_docstring(_doc(function, inner))
    names = dict(_names(function, inner))
    reader = functools.partial(_parameter, label=label, names=names, descriptions=documented.parameters)
    read = [(parameter, reader(parameter)) for parameter in found]
    contexts = tuple(one.name for _, one in read if _is_context(one.annotation))
    open_to_model = [(raw, one) for raw, one in read if one.name not in contexts]
    return Signature(
        label,
        documented.description,
        tuple(one for raw, one in open_to_model if raw.kind not in _VARIADIC),
        next((one for raw, one in open_to_model if raw.kind is raw.VAR_KEYWORD), None),
        contexts,
        frozenset({*contexts, *bound}),
        tuple(one for raw, one in read if raw.kind is raw.POSITIONAL_ONLY),
        names,
        is_method,
    )


def context_signature(function: Callable[..., Any]) -> Signature:
    """The signature of a function whose schema is given: the context of the run and its defaults are its own affair."""
    try:
        found = list(_signature(function).parameters.values())
    except (ValueError, TypeError):
        found = []
    names = dict(_names(function, _inner(function)[0]))
    hints = {parameter.name: _hint(parameter.annotation, names) for parameter in found}
    contexts = tuple(name for name, hint in hints.items() if _is_context(hint))
    own = [one for one in found if one.kind not in _VARIADIC and one.name not in contexts]
    parameters = tuple(Parameter(one.name, default=one.default) for one in own)
    return Signature(label_of(function), parameters=parameters, contexts=contexts)


def label_of(function: Callable[..., Any]) -> str:
    """Where a function is from, for a message about it."""
    named: Any = type(function) if _is_object(function) else _inner(function)[0]
    return ".".join(filter(None, [getattr(named, "__module__", ""), getattr(named, "__qualname__", repr(function))]))


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called; an object is called as its class."""
    named: Any = type(function) if _is_object(function) else _inner(function)[0]
    return str(getattr(function, "__name__", None) or named.__name__)


# The function behind what is called.


def _inner(function: Any) -> tuple[Any, frozenset[str]]:
    """The function that stands behind methods, partials, wrappers and objects, and the names that partials gave."""
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
    """Whether it is an object of a class of somebody's, with a `__call__`."""
    return not (inspect.isroutine(function) or isinstance(function, functools.partial | type | staticmethod))


def _doc(function: Any, inner: Any) -> str:
    """What is said of it; of an object by its `__call__`, and if that says nothing of its own, by its class."""
    said = inner.__doc__ if _is_object(function) else inspect.getdoc(inner)
    return said or (inspect.getdoc(type(function)) if _is_object(function) else "") or ""


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # there, annotations are evaluated when they are asked for
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _is_method(function: Any, parameters: list[inspect.Parameter]) -> bool:
    """Whether it stands in the body of a class, and no object has been given to it yet."""
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
    raw: inspect.Parameter, *, label: str, names: Mapping[str, Any], descriptions: Mapping[str, str]
) -> Parameter:
    if raw.kind is raw.VAR_POSITIONAL:
        raise UsageError(f"{label}: parameter `*{raw.name}`: a model gives every argument a name; take a list instead")
    try:
        annotation = _evaluated(raw.annotation, names)
    except Exception as error:  # an annotation is code of the user's
        raise UsageError(f"{label}: parameter `{raw.name}`: its annotation {_unresolved(raw, error)}") from error
    return Parameter(raw.name, annotation, raw.default, descriptions.get(raw.name, ""))


def _unresolved(raw: inspect.Parameter, error: Exception) -> str:
    advice = "; the name must be known where the tool is made, not only to a type checker"
    return f"{raw.annotation!r} cannot be read: {error}{advice if isinstance(error, NameError) else ''}"


def _hint(annotation: Any, names: Mapping[str, Any]) -> Any:
    try:
        return _evaluated(annotation, names)
    except Exception:  # noqa: BLE001  # an annotation is code of the user's
        return None


def _evaluated(annotation: Any, names: Mapping[str, Any]) -> Any:
    """The annotation with all that it names; None if there is none."""
    if annotation is NO_DEFAULT or annotation is Any or annotation is object:
        return None

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    return get_type_hints(holder, dict(names), include_extras=True)["it"]


def _names(function: Any, inner: Any) -> Iterator[tuple[str, Any]]:
    """What annotations may refer to: the module's names, then those of the scopes within, which hide them."""
    yield from getattr(inner, "__globals__", {}).items()
    for frame in reversed(list(_frames_around(inner))):
        yield from frame.f_locals.items()
    for base in reversed(_owner(function).__mro__[:-1]):
        yield from vars(base).items()
    for name, cell in zip(*_cells(inner), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    yield from ((parameter.__name__, parameter) for parameter in getattr(inner, "__type_params__", ()))


def _owner(function: Any) -> type:
    """The class whose names a method may use; that of nothing at all, if it is none."""
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


def _frames_around(inner: Any) -> Iterator[types.FrameType]:
    """The running scopes in which the function was defined, innermost first: their types have no other home."""
    around = _scopes(getattr(inner, "__qualname__", ""))
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while around and frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is getattr(inner, "__globals__", None):
            around.discard(frame.f_code.co_qualname)
            yield frame
        frame = frame.f_back


def _scopes(qualname: str) -> set[str]:
    steps = qualname.split(".")[:-1]
    return {".".join(steps[: at + 1]) for at, step in enumerate(steps) if step != "<locals>"}


def _is_context(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_is_context(member) for member in get_args(annotation))
    kind = origin or annotation
    return isinstance(kind, type) and issubclass(kind, Context)


# Docstrings.


class Docstring(Struct, frozen=True):
    """What a docstring says: of the whole, and of the parameters."""

    description: str = ""
    parameters: Mapping[str, str] = {}


def parse_docstring(docstring: str) -> Docstring:
    """What a docstring says, if it is in Google's, NumPy's, Sphinx's or Epydoc's style; all of it, if it is in none."""
    if "\n" not in docstring:  # there is nothing to take apart, and the parser costs its import
        return Docstring(docstring.strip())
    from docstring_parser import ParseError, parse

    try:
        found = parse(docstring)
    except ParseError:
        return Docstring(docstring.strip())
    parameters = {one.arg_name.lstrip("*"): (one.description or "").strip() for one in found.params}
    return Docstring((found.description or "").strip(), parameters)
