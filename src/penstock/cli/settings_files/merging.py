"""Merges settings into the settings of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Rows(Struct, frozen=True):
    """Tables of a list that the file may have more of; `key` is the field that identifies a table."""

    key: str
    tables: tuple[Mapping[str, Any], ...]

    def position(self, items: list[Any], table: Mapping[str, Any]) -> int | None:
        """The position of a table among the items of a file; None if it is not there."""
        name = table[self.key]
        return next((n for n, item in enumerate(items) if isinstance(item, dict) and item.get(self.key) == name), None)


class OtherKind(ValueError):
    """The file has a value of another kind in the place of a table or a list."""


def plain(content: Any) -> Any:
    """Settings as the values of a file that has nothing else."""
    match content:
        case Rows():
            return [plain(table) for table in content.tables]
        case Mapping():
            return {key: plain(value) for key, value in content.items()}
        case _:
            return content


def merged(old: Any, new: Any, place: str = "the file") -> Any:
    """Old settings with new ones in them; tables are merged, other values replaced."""
    if old is None:
        return plain(new)
    match new:
        case Mapping():
            if not isinstance(old, dict):
                raise OtherKind(f"{place} is not a table")
            return {**old, **{key: merged(old.get(key), value, key) for key, value in new.items()}}
        case Rows():
            if not isinstance(old, list):
                raise OtherKind(f"{place} is not a list")
            return _with_rows(old, new)
        case _ if isinstance(old, dict):
            raise OtherKind(f"{place} is a table")
        case _:
            return new


def _with_rows(old: list[Any], rows: Rows) -> list[Any]:
    items = [*old]
    for table in rows.tables:
        position = rows.position(items, table)
        if position is None:
            items.append(plain(table))
        else:
            items[position] = merged(items[position], table)
    return items


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of files are the same, also in their types: 1, 1.0 and true differ."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(is_same, one, other))
        case _:
            return type(one) is type(other) and repr(one) == repr(other)  # by text: NaN differs from itself
