"""Arguments that come as values at paths (`$.recipe.steps[2]`), written as JSON text while they come.

The values mostly come in the order of the text that they make, and then each is written at once: brackets are closed and
opened as the path moves, and a string stays open until the path moves away. What comes out of order (a path that was left
and is named again, an item before its predecessor) cannot be written any more: from there on all is kept, and the whole is
written at the end. Every value is put into a tree as well, so that nothing is merged by chance; the work is linear.
"""

from __future__ import annotations

import json
import re
from io import StringIO

from penstock.wires.call import MAX_ARGUMENTS

MAX_PATH_KEYS = 64
"""How deep a path may lead; Google's own messages nest less deeply."""

Key = str | int
Keys = tuple[Key, ...]

_KEY = re.compile(
    r"\.(?P<name>[^.\[\]]++)|\[(?P<index>[0-9]{1,9})\]|\['(?P<single>(?:[^'\\]|\\.)*+)'\]|\[\"(?P<double>(?:[^\"\\]|\\.)*+)\"\]",
    re.S,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_quoted = json.JSONEncoder(ensure_ascii=False).encode  # halves of characters pass: they are healed where pieces are joined


class Leaf:
    """A value that is not taken apart: a string that may grow, or JSON as it came."""

    __slots__ = ("_text", "is_string")

    def __init__(self, text: str, is_string: bool) -> None:
        self._text = StringIO()
        self._text.write(text)
        self.is_string = is_string

    def grow(self, text: str) -> None:
        self._text.write(text)

    def json(self) -> str:
        return _quoted(self._text.getvalue()) if self.is_string else self._text.getvalue()


Node = Leaf | dict[Key, "Node"]  # a list is kept as a dict too: then an index is only a key, however large it is


class PartialArgs:
    """The arguments of one call. `put` gives the text that can be written so far, `end` the text that completes it.

    If a value has no place, `put` gives None, and `fault` says why from then on: such a call must not run.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.is_written = True  # whether all of it has been given out as text
        self._root: dict[Key, Node] = {}
        self._path = ""
        self._leaf: Leaf | None = None  # the last value, which is at `_path`
        self._keys: Keys = ()  # where the text is: the place of the last value written
        self._size = 0

    def put(self, path: str, text: str, is_string: bool) -> str | None:
        """A value: a string, which continues the one at its path, or JSON, which replaces what is there."""
        self._size += len(path) + len(text)
        if self._size > MAX_ARGUMENTS:
            return self._fail(f"the arguments are longer than MAX_ARGUMENTS ({MAX_ARGUMENTS} characters)")
        leaf = self._leaf
        if leaf is not None and is_string and leaf.is_string and path == self._path:
            leaf.grow(text)
            return _quoted(text)[1:-1] if self.is_written else ""
        keys = keys_of(path)
        if not keys or isinstance(keys[0], int):
            return self._fail(f"a path that leads to no argument: {path[:100]!r}")
        return self._put_at(keys, path, Leaf(text, is_string))

    def end(self) -> str | None:
        """The text that completes what was written, or, if not all was written, the whole; None if there is a fault."""
        if self.fault:
            return None
        if self.is_written:
            return _last_quote(self._leaf) + _closing(self._keys)
        return self._json(self._root)

    def _put_at(self, keys: Keys, path: str, leaf: Leaf) -> str | None:
        container, known = self._root, 0  # `known` is how much of the path was there before
        for key in keys[:-1]:
            if not _takes(container, key):
                return self._fail(f"a path into a value of another kind: {path[:100]!r}")
            child = container.get(key)
            known += child is not None
            if child is None:
                child = container[key] = {}
            if isinstance(child, Leaf):
                return self._fail(f"a path into a value that is complete: {path[:100]!r}")
            container = child
        return self._put_in(container, keys, known, path, leaf)

    def _put_in(self, container: dict[Key, Node], keys: Keys, known: int, path: str, leaf: Leaf) -> str | None:
        key = keys[-1]
        there = container.get(key)
        if isinstance(there, dict) or not _takes(container, key):
            return self._fail(f"a value in place of others: {path[:100]!r}")
        if there is not None:
            self._repeat(container, key, there, path, leaf)
            return ""
        is_next = isinstance(key, str) or key == len(container)
        last, self._leaf, self._path = self._leaf, leaf, path
        container[key] = leaf
        if not self.is_written or not is_next or not self._is_here(keys, known):
            self.is_written = False
            return ""
        return self._write(keys, known, last, leaf)

    def _repeat(self, container: dict[Key, Node], key: Key, there: Leaf, path: str, leaf: Leaf) -> None:
        """A path that was left is named again: what changes there cannot be unwritten."""
        if leaf.is_string and there.is_string:
            if leaf.json() == '""':  # a string that is only said to have ended
                return
            there.grow(leaf.json() and _text(leaf))
            leaf = there
        elif leaf.is_string == there.is_string and leaf.json() == there.json():
            return
        self.is_written = False
        container[key] = leaf
        self._leaf, self._path = leaf, path
