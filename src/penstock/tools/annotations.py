"""Annotations: the members of a union, whether None is one of them, and the `deps` that a context needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, TypeVar, Union, get_args, get_origin


def union_members(annotation: Any) -> list[Any]:
    """The types of a union, also in an alias or an `Annotated`; of any other annotation, itself."""
    annotation = getattr(annotation, "__value__", annotation)  # of an alias that was made by a `type` statement
    origin = get_origin(annotation)
    if origin is Annotated:
        return union_members(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in union_members(member)]
    return [annotation]


def accepts_none(annotation: Any) -> bool:
    """Whether None may have this type; True if that is unknown, as for a type variable."""
    return any(
        member in (Any, object, None, NoneType) or isinstance(member, TypeVar | str | ForwardRef)
        for member in union_members(annotation)
    )


def needed_deps(annotations: Iterable[Any], is_context: Callable[[Any], bool]) -> str:
    """The first annotation of a context whose `deps` must not be None, as text; empty if there is none."""
    contexts = (member for annotation in annotations for member in union_members(annotation) if is_context(member))
    needed = (get_args(each)[0] for each in contexts if not all(map(accepts_none, get_args(each))))
    return next((f"Context[{getattr(deps, '__name__', deps)}]" for deps in needed), "")
