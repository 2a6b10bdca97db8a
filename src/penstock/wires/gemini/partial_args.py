"""Converts arguments that come as values at paths (`$.recipe.steps[2]`) to JSON text as they arrive.

The values mostly come in the order of the JSON text, and then each is written at once: brackets are closed and opened
as the path moves, and a string stays open until the path moves away. After a value out of order (a path that was left
and comes again, an item before its predecessor) nothing more can be written: all is kept, and the whole text is written
at the end. Every value is also put into a tree, which shows whether its path is free. The work is linear.
"""

from __future__ import annotations

import re
from io import StringIO
from json.encoder import (
    encode_basestring as _quote,
)  # it accepts lone surrogates, which are joined later

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.events import Fault

MAX_PATH_KEYS = 64
"""How many keys a path may have; Google's own messages are not nested deeper."""

Key = str | int
Keys = tuple[Key, ...]

_PLAIN = re.compile(r"\$?(?:\.[^.\[\]]++|\[[0-9]{1,9}\])++")  # nearly all paths
_PLAIN_KEY = re.compile(r"\.([^.\[\]]++)|\[([0-9]++)\]")
_KEY = re.compile(
    r"\.(?P<name>[^.\[\]]++)"
    r"|\[(?P<index>[0-9]{1,9})\]"
    r"|\['(?P<single>(?:[^'\\]|\\.)*+)'\]"
    r"|\[\"(?P<double>(?:[^\"\\]|\\.)*+)\"\]",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Leaf:
    """A value: a string, which may grow, or JSON as it came."""

    __slots__ = ("_text", "grow", "is_string")

    def __init__(self, text: str, is_string: bool) -> None:
        self._text = StringIO()
        self.grow = self._text.write
        self.grow(text)
        self.is_string = is_string

    def json(self) -> str:
        text = self._text.getvalue()
        return _quote(text) if self.is_string else text


Container = dict[Key, "Leaf | Container"]  # lists are dicts too, so that a large index is only a key


class PartialArgs:
    """The arguments of one call. `put` returns the text that can be written, `end` the text that completes it.

    If a value has no place, `put` returns None and sets `error`: the call must not run.
    """

    __slots__ = ("_keys", "_leaf", "_path", "_root", "_size", "error", "is_written", "why")

    def __init__(self) -> None:
        self.error = ""
        self.why: Fault = "malformed"
        self.is_written = True  # all values so far were written
        self._root: Container = {}
        self._path = ""
        self._leaf: Leaf | None = None  # the last value, which is at `_path`
        self._keys: Keys = ()  # the keys of the last value that was written
        self._size = 0

    def put(self, path: str, text: str, is_string: bool) -> str | None:
        """Adds a value: a string, which continues the one at its path, or JSON, which replaces what is there."""
        leaf = self._leaf
        self._size = size = self._size + len(path) + len(text)
        if size > MAX_ARGUMENTS:
            self.why = "too_large"
            return self.fail(f"the arguments are longer than MAX_ARGUMENTS ({MAX_ARGUMENTS} characters)")
        if is_string and path == self._path and leaf is not None and leaf.is_string:
            leaf.grow(text)
            return _quote(text)[1:-1] if self.is_written else ""
        keys = keys_of(path)
        if not keys or isinstance(keys[0], int):
            return self.fail(f"a path that is not the path of an argument: {path[:100]!r}")
        return self._put_at(keys, path, text, is_string)

    def end(self) -> str | None:
        """The text that completes what was written, or the whole text if not all was written; None after an error."""
        text = _end_of(self._leaf) + _closing(self._keys) if self.is_written else self._json(self._root)
        return None if self.error else text

    def _put_at(self, keys: Keys, path: str, text: str, is_string: bool) -> str | None:
        key = keys[-1]
        container, fresh, is_next = self._container(keys)
        there = container.get(key) if container is not None else None
        if container is None or isinstance(there, dict) or not _takes(container, key):
            return self.fail(f"a path through a value of another kind: {path[:100]!r}")
        if there is not None:
            return self._change(container, key, there, path, text, is_string)
        before, last = self._keys, self._leaf
        is_here = not before or (
            fresh < len(before) and before[:fresh] == keys[:fresh]
        )  # the container is open in the text
        self.is_written = self.is_written and is_here and is_next and _comes_next(container, key)
        self._path = path
        self._leaf = container[key] = Leaf(text, is_string)
        if not self.is_written:
            return ""
        self._keys = keys
        begin = _quote(text)[:-1] if is_string else text
        return f"{_end_of(last)}{_closing(before[fresh + 1 :])}{',' if before else '{'}{_opening(keys[fresh:])}{begin}"

    def _container(self, keys: Keys) -> tuple[Container | None, int, bool]:
        """The container of the last key, the position of the first new key, and whether that is next in its list."""
        container, fresh, is_next = self._root, len(keys) - 1, True
        for position, key in enumerate(keys[:-1]):
            child = container.get(key)
            if isinstance(child, Leaf) or not _takes(container, key):
                return None, 0, False
            if child is None:
                fresh = min(fresh, position)
                is_next = is_next and _comes_next(container, key)
                child = container[key] = {}
            container = child
        return container, fresh, is_next

    def _change(self, container: Container, key: Key, there: Leaf, path: str, text: str, is_string: bool) -> str:
        """Changes a value that was left: unless it stays the same, it can no longer be written."""
        if is_string and there.is_string:
            there.grow(text)
            if not text:  # only marks the end of the string (QUIRKS 151)
                return ""
        elif is_string == there.is_string and there.json() == text:
            return ""
        else:
            there = container[key] = Leaf(text, is_string)
        self.is_written = False
        self._leaf, self._path = there, path
        return ""

    def _json(self, node: Leaf | Container) -> str:
        if isinstance(node, Leaf):
            return node.json()
        if not _takes(node, ""):
            if sorted(node) != list(range(len(node))):
                self.fail("a list has gaps")
            return f"[{','.join(self._json(child) for _, child in sorted(node.items()))}]"
        return f"{{{','.join(f'{_quote(str(key))}:{self._json(child)}' for key, child in node.items())}}}"

    def fail(self, error: str) -> str | None:
        """Records an error; the first one counts."""
        self.error = self.error or error
        return None


def keys_of(path: str) -> Keys:
    """The keys of a path such as `$.a.b[0]`, `$['a']["b"][0]` or `a.b`; none if it has another form."""
    if _PLAIN.fullmatch(path):
        plain_keys = tuple([name or int(index) for name, index in _PLAIN_KEY.findall(path)])
        return plain_keys if len(plain_keys) <= MAX_PATH_KEYS else ()
    rest = path[1:] if path.startswith("$") else path if path.startswith("[") else f".{path}"
    keys, position = list[Key](), 0
    while position < len(rest):
        match = _KEY.match(rest, position)
        if match is None or len(keys) == MAX_PATH_KEYS:
            return ()
        position = match.end()
        keys.append(_key(match))
    return tuple(keys)


def _key(path_key: re.Match[str]) -> Key:
    match path_key.lastgroup:
        case "index":
            return int(path_key["index"])
        case "name":
            return path_key["name"]
        case _:
            return _ESCAPE.sub(_unescaped, path_key["single"] or path_key["double"] or "")


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _ESCAPED.get(escape[2], escape[2])


def _takes(container: Container, key: Key) -> bool:
    """Whether the key fits the container: a name in an object, an index in a list."""
    return not container or isinstance(next(iter(container)), type(key))


def _comes_next(container: Container, key: Key) -> bool:
    return isinstance(key, str) or key == len(container)


def _end_of(leaf: Leaf | None) -> str:
    return '"' if leaf is not None and leaf.is_string else ""


def _closing(keys: Keys) -> str:
    """The closing brackets of the containers of these keys, the innermost first."""
    text = ""
    for key in keys:
        text = ("]" if isinstance(key, int) else "}") + text
    return text


def _opening(keys: Keys) -> str:
    """The text before a value: the first key is in an open container, the others are in new ones."""
    text = f"{_quote(keys[0])}:" if isinstance(keys[0], str) else ""
    for key in keys[1:]:
        text += "[" if isinstance(key, int) else f"{{{_quote(key)}:"
    return text
