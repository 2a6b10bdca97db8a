"""JSON files, also with comments and trailing commas (JSONC).

No well-kept library changes such a file and keeps its comments. So a scanner finds the places of the values, and new
text is put there; everything else stays as it is. `read` does not use the scanner, so that it can check the change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from penstock.cli.settings_files.merging import Rows, plain

_STRING = r'"(?:[^"\\\x00-\x1f]|\\.)*+"'
_COMMENT = r"//[^\r\n]*+|(?>/\*.*?\*/)"  # without backtracking: a comment ends at its first end
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>{_COMMENT})|,(?=(?:\s++|{_COMMENT})*+[\]}}])", re.DOTALL
)  # the last one is a trailing comma
_GAP = re.compile(rf"(?:[ \t\r\n]++|{_COMMENT})*+", re.DOTALL)
_SCALAR = re.compile(rf"{_STRING}|[-+.\w]+")
INDENT = "  "
"""The indentation of a new file."""


# Reading.


def read(text: str) -> Any:
    """The settings in a text; raises a `ValueError` if it is not JSON, or a key is there twice."""
    try:
        return json.loads(_TOKEN.sub(_kept, text), object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _kept(token: re.Match[str]) -> str:
    """A token of plain JSON: comments and trailing commas become spaces."""
    return token["string"] or re.sub(r"[^\r\n]", " ", token[0])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return table


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


# Changing.


class Node(Struct, frozen=True):
    """A value in the text, from `start` to `end`; `members` has the values of a table, `items` those of a list."""

    start: int
    end: int
    value: Any
    members: Mapping[str, Node] = {}
    items: tuple[Node, ...] = ()

    @property
    def last(self) -> Node | None:
        """The last value inside a table or a list."""
        inner = [*self.members.values(), *self.items]
        return inner[-1] if inner else None


class Change(Struct, frozen=True, order=True):
    """A part of the text that is replaced."""

    start: int
    end: int
    text: str


def edit(text: str, content: Any) -> str:
    """The text with settings merged into it. A file of one line is written in several."""
    if "\n" not in text.strip() and "/" not in text:  # no comments
        text = json.dumps(read(text), indent=INDENT, ensure_ascii=False) + "\n"
    root = _scan(text, _after_gap(text, 0))
    for change in sorted(_changes(text, root, content), reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def show(content: Any) -> str:
    """Settings as the text of a new file."""
    return json.dumps(plain(content), indent=INDENT, ensure_ascii=False) + "\n"


def _scan(text: str, start: int) -> Node:
    """The value that begins here."""
    if text[start] not in "{[":
        scalar = _SCALAR.match(text, start)
        assert scalar is not None, "the text was read before"
        return Node(start, scalar.end(), json.loads(scalar[0]))
    members: dict[str, Node] = {}
    items: list[Node] = []
    at = _after_gap(text, start + 1)
    while text[at] not in "}]":
        value = _scan(text, at)
        if text[start] == "{":
            value_start = _after_gap(text, _after_gap(text, value.end) + 1)  # after the colon
            name, value = value.value, _scan(text, value_start)
            members[name] = value
        else:
            items.append(value)
        at = _after_gap(text, value.end)
        if text[at] == ",":
            at = _after_gap(text, at + 1)
    values = (
        {key: node.value for key, node in members.items()} if text[start] == "{" else [node.value for node in items]
    )
    return Node(start, at + 1, values, members, tuple(items))


def _after_gap(text: str, start: int) -> int:
    """The position after spaces and comments."""
    gap = _GAP.match(text, start)
    assert gap is not None, "it may be empty"
    return gap.end()


def _changes(text: str, node: Node, content: Any) -> Iterator[Change]:
    match content:
        case Mapping() if isinstance(node.value, dict):
            new: dict[str, Any] = {}
            for key, value in content.items():
                if key in node.members:
                    yield from _changes(text, node.members[key], value)
                else:
                    new[key] = value
            yield from _added(text, node, [(f"{json.dumps(key, ensure_ascii=False)}: ", new[key]) for key in new])
        case Rows() if isinstance(node.value, list):
            rows: list[Any] = []
            for table in content.tables:
                position = content.position(node.value, table)
                if position is None:
                    rows.append(table)
                else:
                    yield from _changes(text, node.items[position], table)
            yield from _added(text, node, [("", row) for row in rows])
        case _ if node.value != plain(content) or type(node.value) is not type(plain(content)):
            yield Change(node.start, node.end, _value(text, content, _indent_of(text, node.start)))


def _added(text: str, node: Node, values: list[tuple[str, Any]]) -> Iterator[Change]:
    """Values, each after its name, at the end of a table or a list, after the comments there."""
    if not values:
        return
    last = node.last
    outer = _indent_of(text, node.start)
    inner = _indent_of(text, last.start) if last is not None and _begins_line(text, last, node) else outer + _unit(text)
    lines = ",\n".join(f"{inner}{name}{_value(text, value, inner)}" for name, value in values)
    start = node.start + 1 if last is None else last.end
    has_comma = last is not None and text[_after_gap(text, start)] == ","
    gap = text[start : node.end - 1]
    before = gap.rstrip()
    after = gap[len(before) :]
    new = [
        "," if last is not None and not has_comma else "", before, f"\n{lines}", "," if has_comma else "",
        after if "\n" in after else f"\n{outer}",
    ]  # fmt: skip
    yield Change(start, node.end - 1, "".join(new))


def _begins_line(text: str, last: Node, node: Node) -> bool:
    """Whether the last value inside a table or a list is not on the line of the opening bracket."""
    return "\n" in text[node.start : last.start]


def _indent_of(text: str, at: int) -> str:
    """The indentation of the line of a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """The indentation of one level."""
    indented = re.search(r"\n([ \t]+)\S", text)
    return indented[1] if indented else INDENT


def _value(text: str, content: Any, indent: str) -> str:
    """A value for a text, whose lines have this indentation."""
    return json.dumps(plain(content), indent=_unit(text), ensure_ascii=False).replace("\n", f"\n{indent}")
