"""The arguments of a typed function: the JSON Schema that a model is shown, and the values that its hints ask for.

Every parameter has a pydantic adapter of its own, so that whatever is wrong, in its definition or in a call, is known
by the parameter's name. Arguments are JSON, and are read by the rules of JSON: a list fits a tuple, a string a date.
"""

from __future__ import annotations

import functools
import json
import operator
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from penstock.errors import UsageError
from penstock.tools.argument_errors import (
    ArgumentProblem,
    missing_argument,
    pydantic_problems,
    raise_problems,
    unknown_argument,
)
from penstock.tools.signature import NO_DEFAULT, Parameter, Signature

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

Json = dict[str, Any]

# Where schemas stand within a schema: under names, in a list, or by themselves.
_NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")

_UNIONS = (Union, types.UnionType)


class TypedArgument:
    """A parameter with the adapter that reads its values; without one, any value will do."""

    def __init__(self, parameter: Parameter, label: str, names: Mapping[str, Any]) -> None:
        annotation, default = _with_field(parameter)
        self.name = parameter.name
        self.default = default
        place = f"{label}: parameter `{self.name}`"
        self.adapter = None if annotation is None else _adapter(annotation, names, place)
        self.description = _described(annotation) or parameter.description
        self._fills = default is NO_DEFAULT and self.adapter is not None and bool(self.adapter.get_default_value())

    @property
    def is_required(self) -> bool:
        """Whether a model has to give it."""
        return self.default is NO_DEFAULT and not self._fills

    def fill(self, values: Json) -> None:
        """Put in a default that the annotation has and the function does not know of."""
        if self._fills and self.adapter and (found := self.adapter.get_default_value()):
            values[self.name] = found.value

    def read(self, name: str, value: Any, values: Json) -> list[ArgumentProblem]:
        """Put the value in, as the annotation wants it, or say what is wrong with it."""
        if self.adapter is None:
            values[name] = value
            return []
        from pydantic import ValidationError

        try:
            values[name] = self.adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            if value is None and not self.is_required:  # models write null for what they leave out
                return []
            return pydantic_problems(name, value, error.errors(include_url=False))
        except (TypeError, ValueError, RecursionError) as error:
            return [ArgumentProblem((name,), words=f"cannot be read: {error}", is_shown=False)]
        return []

    def schema(self, found: Mapping[str, Any]) -> Json:
        """What the model is told, on top of what its type says."""
        schema = {**found, "description": self.description} if self.description else dict(found)
        return schema if self.default is NO_DEFAULT else schema | _default(self.adapter, self.default)


class TypedArguments:
    """The arguments of a function, as its signature has them."""

    def __init__(self, signature: Signature, *, strict: bool = False) -> None:
        made = [TypedArgument(parameter, signature.label, signature.names) for parameter in signature.parameters]
        self._arguments = {argument.name: argument for argument in made}
        self._rest = TypedArgument(signature.rest, signature.label, signature.names) if signature.rest else None
        self._hidden = signature.hidden
        self.parameters = self._schema()
        if strict:
            self.parameters = _Strict(self.parameters, signature.label).whole()

    def check(self, arguments: Json) -> Json:
        """The keyword arguments, of the annotated types; otherwise an `ArgumentsError` names the fields."""
        values: Json = {}
        problems: list[ArgumentProblem] = []
        for argument in self._arguments.values():
            if argument.name in arguments:
                problems += argument.read(argument.name, arguments[argument.name], values)
            elif argument.is_required:
                problems.append(missing_argument((argument.name,)))
            if argument.name not in values:
                argument.fill(values)
        for name in (name for name in arguments if name not in self._arguments):
            if self._rest is None or name in self._hidden:
                problems.append(unknown_argument((name,), self._arguments))
            else:
                problems += self._rest.read(name, arguments[name], values)
        raise_problems(problems)
        return values

    def _schema(self) -> Json:
        rest = {"**": self._rest} if self._rest else {}
        found, definitions = _schemas(self._arguments | rest)
        schema: Json = {
            "type": "object",
            "properties": {name: one.schema(found.get(name, {})) for name, one in self._arguments.items()},
        }
        if required := [name for name, argument in self._arguments.items() if argument.is_required]:
            schema["required"] = required
        schema["additionalProperties"] = found.get("**", True) if self._rest else False
        return schema | ({"$defs": definitions} if definitions else {})


# What pydantic makes of the annotations.


def _with_field(parameter: Parameter) -> tuple[Any, Any]:
    """The annotation and the default, where the default may be a `Field(...)` that says more."""
    fields = sys.modules.get("pydantic.fields")
    if fields is None or not isinstance(parameter.default, fields.FieldInfo):
        return parameter.annotation, parameter.default
    return Annotated[Any if parameter.annotation is None else parameter.annotation, parameter.default], NO_DEFAULT


def _described(annotation: Any) -> str:
    """What the annotation itself says: `Annotated[..., "words"]`, `Doc("words")`, `Field(description="words")`."""
    if get_origin(annotation) in _UNIONS:
        return next(filter(None, map(_described, get_args(annotation))), "")
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    for said in reversed(metadata):
        words = said if isinstance(said, str) else getattr(said, "description", getattr(said, "documentation", None))
        if isinstance(words, str) and words:
            return words
    return ""


def _adapter(annotation: Any, names: Mapping[str, Any], label: str) -> TypeAdapter[Any]:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_supported(annotation, names))
        if not adapter.pydantic_complete:  # a type that is local to a function, and speaks of others there
            adapter.rebuild(_types_namespace=names)
        adapter.json_schema(schema_generator=_generator())
    except (PydanticUserError, TypeError, NameError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(
            f"{label}: {_name(annotation)} has no JSON Schema: take a type that JSON can carry, "
            f"or give Tool.from_schema a schema ({why})"
        ) from error
    return adapter


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")


def _default(adapter: TypeAdapter[Any] | None, default: Any) -> Json:
    """What the schema says of a default; nothing, if JSON cannot carry it."""
    try:
        value = adapter.dump_python(default, mode="json", warnings="error") if adapter else default
    except Exception:  # noqa: BLE001  # a serializer is code of the user's
        return {}
    return {"default": value} if _is_json(value) else {}


def _is_json(value: Any) -> bool:
    try:
        return bool(json.dumps(value, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError):
        return False


@cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        """Says nothing of defaults that JSON cannot carry: they are left out."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as in its parent

    return Quiet


def _schemas(arguments: Mapping[str, TypedArgument]) -> tuple[dict[str, Json], Json]:
    """The schemas of the arguments, and of the types that they refer to."""
    adapters = {name: argument.adapter for name, argument in arguments.items() if argument.adapter}
    if not adapters:
        return {}, {}
    from pydantic import TypeAdapter

    asked: list[tuple[str, Literal["validation"], TypeAdapter[Any]]]
    asked = [(name, "validation", adapter) for name, adapter in adapters.items()]
    found, shared = TypeAdapter.json_schemas(asked, schema_generator=_generator())
    definitions = {name: _clean(schema) for name, schema in shared.get("$defs", {}).items()}
    return {name: _clean(schema) for (name, _), schema in found.items()}, definitions


def _mapped(schema: Mapping[str, Any], change: Callable[[Json], Json]) -> Json:
    """The schema with every schema in it changed."""
    made = dict(schema)
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _changed(one, change) for name, one in value.items()}
        elif key in _LISTED and isinstance(value, list):
            made[key] = [_changed(one, change) for one in value]
        elif key in _SINGLE:
            made[key] = _changed(value, change)
    return made


def _changed(schema: Any, change: Callable[[Json], Json]) -> Any:
    return change(schema) if isinstance(schema, dict) else schema


def _clean(schema: Json) -> Json:
    """The schema without what tells a model nothing, and without defaults that are not JSON."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "discriminator")}
    if "default" in kept and not _is_json(kept["default"]):
        del kept["default"]
    return _mapped(kept, _clean)


def _strict_words(schema: Json) -> Json:
    """The words of a schema that strict tools may have; what they cannot say is checked when the tool is called."""
    made = {key: value for key, value in schema.items() if key not in ("default", "discriminator", "uniqueItems")}
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if "prefixItems" in made:
        kinds = made.pop("prefixItems")
        made["items"] = kinds[0] if all(kind == kinds[0] for kind in kinds) else {"anyOf": kinds}
    return made


class _Strict:
    """A schema in the form that providers want of strict tools: objects are closed, and all their fields required."""

    def __init__(self, schema: Json, label: str) -> None:
        self._schema = schema
        self._label = label
        self._inlined: set[str] = set()

    def whole(self) -> Json:
        return self._made(self._schema)

    def _made(self, schema: Json) -> Json:
        reference = schema.get("$ref")
        if isinstance(reference, str) and len(schema) > 1:
            return self._inline(reference, schema)
        made = _strict_words(_mapped(schema, self._made))
        if made.get("type") != "object":
            return made
        if made.get("additionalProperties") or "properties" not in made:
            raise UsageError(f"{self._label}: strict tools take no objects with fields of any name: leave out `strict`")
        closed = {**made, "required": list(made["properties"]), "additionalProperties": False}
        return closed if closed["required"] else {key: value for key, value in closed.items() if key != "required"}

    def _inline(self, reference: str, schema: Json) -> Json:
        """A reference stands alone in a strict schema: where more is said beside it, what it points at is put there."""
        name = reference.rpartition("/")[2]
        if name in self._inlined:
            return {"$ref": reference}
        self._inlined.add(name)
        said = {key: value for key, value in schema.items() if key != "$ref"}
        made = self._made({**self._schema["$defs"][name], **said})
        self._inlined.discard(name)
        return made


# TypedDicts of Python 3.11.


def _supported(annotation: Any, names: Mapping[str, Any], within: tuple[Any, ...] = ()) -> Any:
    """The annotation with TypedDicts that pydantic can read: before Python 3.12, typing's are not among them."""
    if sys.version_info >= (3, 12) or annotation in within:
        return annotation
    if is_typeddict(annotation):
        return _readable(annotation, names, (*within, annotation))
    old: tuple[Any, ...] = get_args(annotation)
    origin: Any = get_origin(annotation)
    new = tuple(_supported(member, names, within) for member in old)
    if origin is None or all(one is other for one, other in zip(old, new, strict=True)):
        return annotation
    if origin in _UNIONS:
        return functools.reduce(operator.or_, new)
    return Annotated[new] if origin is Annotated else origin[new[0] if len(new) == 1 else new]


def _readable(kind: Any, names: Mapping[str, Any], within: tuple[Any, ...]) -> Any:
    from typing_extensions import TypedDict as Readable

    fields: Json = {}
    for key, hint in get_type_hints(kind, localns=dict(names), include_extras=True).items():
        is_marked = get_origin(hint) in (Required, NotRequired)
        mark: Any = Required if key in kind.__required_keys__ else NotRequired
        fields[key] = _supported(hint, names, within) if is_marked else mark[_supported(hint, names, within)]
    make: Any = Readable
    made = make(kind.__name__, fields)
    made.__doc__ = kind.__doc__
    made.__pydantic_config__ = getattr(kind, "__pydantic_config__", {})
    return made
