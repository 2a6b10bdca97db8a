"""The arguments of a typed function: their JSON Schema, and their conversion to the annotated types.

Each parameter has its own pydantic adapter, so that errors in its definition or in a call name the parameter. Arguments
are validated as JSON: a list is accepted for a tuple, a string for a date.
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
from penstock.jsontext.error_text import named_message
from penstock.schemas import InexpressibleError, SchemaRules, fit_schema, map_schemas
from penstock.tools.argument_errors import (
    ArgumentProblem,
    missing_argument,
    pydantic_problems,
    raise_problems,
    unknown_argument,
)
from penstock.tools.finite import count_infinite, infinite_candidates, infinite_numbers, with_finite
from penstock.tools.signature import NO_DEFAULT, Parameter, Signature

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

Json = dict[str, Any]

_UNIONS = (Union, types.UnionType)


class TypedArgument:
    """A parameter and the adapter that validates its values; without an adapter, any value is accepted."""

    def __init__(self, parameter: Parameter, place: str, namespace: Mapping[str, Any] = {}, *, else_use: str) -> None:
        annotation, default = _with_field(parameter)
        self.name = parameter.name
        self.default = default
        self.adapter = None if annotation is None else _adapter(annotation, namespace, place, else_use)
        self.description = _description(annotation) or parameter.description
        self._takes_infinite = self.adapter is not None and _allows_infinite(self.adapter.core_schema)
        self._has_field_default = (
            default is NO_DEFAULT and self.adapter is not None and bool(self.adapter.get_default_value())
        )

    @property
    def is_required(self) -> bool:
        """Whether a model must pass it."""
        return self.default is NO_DEFAULT and not self._has_field_default

    def add_field_default(self, values: Json) -> None:
        """Adds the default of a `Field(...)`, which the function itself does not have."""
        if self._has_field_default and self.adapter and (default := self.adapter.get_default_value()):
            values[self.name] = default.value

    def read(self, name: str, value: Any, values: Json) -> list[ArgumentProblem]:
        """Adds the converted value to `values`, or returns what is wrong with it."""
        if self.adapter is None:
            values[name] = value
            return list(infinite_numbers({name: value}))
        from pydantic import ValidationError

        try:
            converted = self.adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            if value is None and not self.is_required:  # models write null for what they omit
                return []
            return pydantic_problems(name, value, error.errors(include_url=False))
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"cannot be read: {named_message(error)}"
            return [ArgumentProblem((name,), message=problem, shows_value=False)]
        if not self._takes_infinite and (candidates := infinite_candidates(name, value)) and self._is_infinite(value):
            return candidates
        values[name] = converted
        return []

    def _is_infinite(self, value: Any) -> bool:
        """Whether the argument becomes a number that is not finite, and not only defaults of the program do."""
        from pydantic import ValidationError

        assert self.adapter is not None
        try:
            count = count_infinite(self.adapter.validate_json(json.dumps(value)))
            return count > 0 and count > count_infinite(self.adapter.validate_json(json.dumps(with_finite(value))))
        except (ValidationError, TypeError, ValueError):  # a zero does not fit
            return True

    def schema(self, type_schema: Mapping[str, Any]) -> Json:
        """The schema of its type, with the description and the default of the parameter."""
        schema = {**type_schema, "description": self.description} if self.description else dict(type_schema)
        return schema if self.default is NO_DEFAULT else schema | _default(self.adapter, self.default)


class TypedArguments:
    """The arguments of a function, by its signature."""

    def __init__(self, signature: Signature, *, strict: bool = False) -> None:
        label = signature.label
        arguments = [_argument(parameter, signature) for parameter in signature.parameters]
        self._arguments = {argument.name: argument for argument in arguments}
        self._rest = _argument(signature.rest, signature) if signature.rest else None
        self._hidden = signature.hidden
        self.parameters = self._schema()
        if strict:
            self.parameters = _strict_schema(self.parameters, label)

    def check(self, arguments: Json) -> Json:
        """Returns the keyword arguments, converted to the annotated types, or raises an `ArgumentsError`."""
        values: Json = {}
        problems: list[ArgumentProblem] = []
        for argument in self._arguments.values():
            if argument.name in arguments:
                problems += argument.read(argument.name, arguments[argument.name], values)
            elif argument.is_required:
                problems.append(missing_argument((argument.name,)))
            if argument.name not in values:
                argument.add_field_default(values)
        for name in (name for name in arguments if name not in self._arguments):
            if self._rest is None or name in self._hidden:
                problems.append(unknown_argument((name,), self._arguments))
            else:
                problems += self._rest.read(name, arguments[name], values)
        raise_problems(problems)
        return values

    def to_json(self, name: str, value: Any) -> Any:
        """The JSON form of a converted argument; raises if it has none."""
        argument = self._arguments.get(name, self._rest)
        if argument is None or argument.adapter is None:
            return value
        return argument.adapter.dump_python(value, mode="json", by_alias=True, warnings="error")

    def _schema(self) -> Json:
        rest = {"**": self._rest} if self._rest else {}
        schemas, definitions = type_schemas(self._arguments | rest)
        schema: Json = {
            "type": "object",
            "properties": {name: typed.schema(schemas.get(name, {})) for name, typed in self._arguments.items()},
        }
        if required := [name for name, argument in self._arguments.items() if argument.is_required]:
            schema["required"] = required
        schema["additionalProperties"] = schemas.get("**", True) if self._rest else False
        return schema | ({"$defs": definitions} if definitions else {})


def _argument(parameter: Parameter, signature: Signature) -> TypedArgument:
    place = f"{signature.label}: parameter `{parameter.name}`"
    return TypedArgument(parameter, place, signature.namespace, else_use="Tool.from_schema")


# Annotations and pydantic.


def _with_field(parameter: Parameter) -> tuple[Any, Any]:
    """The annotation and the default; a default of `Field(...)` becomes part of the annotation."""
    fields = sys.modules.get("pydantic.fields")
    if fields is None or not isinstance(parameter.default, fields.FieldInfo):
        return parameter.annotation, parameter.default
    return Annotated[Any if parameter.annotation is None else parameter.annotation, parameter.default], NO_DEFAULT


def _description(annotation: Any) -> str:
    """The description in an annotation: `Annotated[..., "text"]`, `Doc("text")`, `Field(description="text")`."""
    if get_origin(annotation) in _UNIONS:
        return next(filter(None, map(_description, get_args(annotation))), "")
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    for item in reversed(metadata):
        text = item if isinstance(item, str) else getattr(item, "description", getattr(item, "documentation", None))
        if isinstance(text, str) and text:
            return text
    return ""


def _adapter(annotation: Any, namespace: Mapping[str, Any], place: str, else_use: str) -> TypeAdapter[Any]:
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic_core import SchemaError

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_supported(annotation, namespace))
        if not adapter.pydantic_complete:  # a type that is local to a function, and refers to others there
            adapter.rebuild(_types_namespace=namespace)
        adapter.json_schema(schema_generator=_generator())
    except (PydanticUserError, SchemaError, TypeError, NameError) as error:
        lines = str(error).strip().split("\n")  # for an invalid pattern, the last line says why
        why = lines[-1 if isinstance(error, SchemaError) else 0].partition(". Set `")[
            0
        ]  # its advice does not help here
        raise UsageError(
            f"{place}: {_name(annotation)} has no JSON Schema ({why}); use a type that can be written as JSON, "
            f"or {else_use}"
        ) from error
    return adapter


def _allows_infinite(schema: Any) -> bool:
    """Whether a type says somewhere that NaN and infinity are allowed: `Field(allow_inf_nan=True)`, or in a config."""
    pending, seen = [schema], set[int]()
    while pending:
        node = pending.pop()
        if isinstance(node, dict | list | tuple) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, dict) and node.get("allow_inf_nan") is True:
                return True
            pending.extend(node.values() if isinstance(node, dict) else node)
    return False


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")


def _default(adapter: TypeAdapter[Any] | None, default: Any) -> Json:
    """The `default` of a schema; empty if the value cannot be written as JSON."""
    try:
        value = adapter.dump_python(default, mode="json", warnings="error") if adapter else default
    except Exception:  # noqa: BLE001  # serializers are user code
        return {}
    return {"default": value} if is_json(value) else {}


def is_json(value: Any) -> bool:
    """Whether the value can be written as strict JSON."""
    try:
        return bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False


@cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema

    class QuietGenerator(GenerateJsonSchema):
        """Does not warn about defaults that cannot be written as JSON: they are left out."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as in its parent

    return QuietGenerator


def type_schemas(arguments: Mapping[str, TypedArgument]) -> tuple[dict[str, Json], Json]:
    """The schemas of the arguments, and of the types that they refer to (`$defs`)."""
    adapters = {name: argument.adapter for name, argument in arguments.items() if argument.adapter}
    if not adapters:
        return {}, {}
    from pydantic import TypeAdapter

    inputs: list[tuple[str, Literal["validation"], TypeAdapter[Any]]]
    inputs = [(name, "validation", adapter) for name, adapter in adapters.items()]
    schemas, shared = TypeAdapter.json_schemas(inputs, schema_generator=_generator())
    definitions = {name: _clean(schema) for name, schema in shared.get("$defs", {}).items()}
    return {name: _clean(schema) for (name, _), schema in schemas.items()}, definitions


def _mapped(schema: Mapping[str, Any], change: Callable[[Json], Json]) -> Json:
    """A copy of the schema, with `change` applied to each schema directly in it."""
    return map_schemas(schema, lambda one: change(one) if isinstance(one, dict) else one)


def _clean(schema: Json) -> Json:
    """The schema without keywords that do not help a model, and without defaults that are not JSON."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "discriminator")}
    if "default" in kept and not is_json(kept["default"]):
        del kept["default"]
    items: list[str] = [one.get("title", "") for one in schema.get("prefixItems", ()) if isinstance(one, dict)]
    if items and all(items):  # the fields of a named tuple, which have no names in JSON
        kept["description"] = f"{kept.get('description', '')} (items: {', '.join(items)})".lstrip()
    return _mapped(kept, _clean)


_STRICT = SchemaRules(
    keywords=frozenset({
        "title", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "minProperties", "maxProperties",
    }),
    formats=None,
)  # fmt: skip
"""The schemas of strict tools, on all providers that have them; other keywords are checked when the tool is called."""


def _strict_schema(schema: Json, label: str) -> Json:
    """The schema in the form that providers require of strict tools: closed objects, all fields required."""
    try:
        return fit_schema(schema, _STRICT)
    except InexpressibleError as error:
        raise UsageError(f"{label}: a strict tool cannot have {error}; omit `strict`") from None


# TypedDicts on Python 3.11.


def _supported(annotation: Any, namespace: Mapping[str, Any], within: tuple[Any, ...] = ()) -> Any:
    """The annotation with TypedDicts that pydantic supports: before Python 3.12, those of `typing` are not."""
    if sys.version_info >= (3, 12) or annotation in within:
        return annotation
    if is_typeddict(annotation):
        return _supported_dict(annotation, namespace, (*within, annotation))
    old: tuple[Any, ...] = get_args(annotation)
    origin: Any = get_origin(annotation)
    new = tuple(_supported(member, namespace, within) for member in old)
    if origin is None or all(before is after for before, after in zip(old, new, strict=True)):
        return annotation
    if origin in _UNIONS:
        return functools.reduce(operator.or_, new)
    return Annotated[new] if origin is Annotated else origin[new[0] if len(new) == 1 else new]


def _supported_dict(kind: Any, namespace: Mapping[str, Any], within: tuple[Any, ...]) -> Any:
    from typing_extensions import TypedDict as SupportedDict

    fields: Json = {}
    for key, hint in get_type_hints(kind, localns=dict(namespace), include_extras=True).items():
        is_marked = get_origin(hint) in (Required, NotRequired)
        mark: Any = Required if key in kind.__required_keys__ else NotRequired
        fields[key] = _supported(hint, namespace, within) if is_marked else mark[_supported(hint, namespace, within)]
    create: Any = SupportedDict
    supported = create(kind.__name__, fields)
    supported.__doc__ = kind.__doc__
    supported.__pydantic_config__ = getattr(kind, "__pydantic_config__", {})
    return supported
