"""The settings of a request that a server received: everything but its messages, in one form for all wires.

A wire's `decode_request` has a function `read_settings`. It takes the fields that it knows out of the body; what is
left is `extra`, which only the same protocol understands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError, type_name
from penstock.jsontext.scan import MAX_DEPTH
from penstock.wires.shared.decode_request.fields import unreadable
from penstock.wires.shared.encode_request.reasoning import is_effort
from penstock.wires.shared.encode_response.response_head import ToolPath
from penstock.wires.shared.request import OutputFormat

Json = dict[str, Any]
T = TypeVar("T")

KEPT_SETS = 32
"""How many sets of tools are kept for the next requests with the same tools."""
MAX_KEPT_TOOLS = 128 * 1024
"""How many bytes of JSON a set of tools may have to be kept."""


class Dropped(Struct, frozen=True):
    """Something in a request that was not passed on: its place, and why."""

    place: str
    why: str


class RequestSettings(Struct, frozen=True, kw_only=True):
    """What a request asks for besides its messages. `options` are those of `Request`.

    `echo` are the fields that the response repeats. `namespaces` maps the flat names of tools to those that the client
    declared. `previous_response` is the id of a response that the server is expected to know, and `is_kept` says that
    the client counts on the server to know the response to this request later. With `has_instructions` the first
    message is the instructions; they and the tools hold for one request, or with `is_thread` for all that continue it.
    With `has_old_calls`, the client knows only an older form of calls. `allowed_tools` are the names of those that may
    be called, if not all may. `exact` are fields that say in the client's protocol what no other can say as well, by
    the name of the option, `output` or `tool_choice` that they replace there. `partial` are the names of the fields in
    `extra` of which only a part was not read.
    """

    model: str
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str = ""
    is_parallel: bool | None = None
    is_streaming: bool = False
    options: Mapping[str, Any] = {}
    output: OutputFormat | None = None
    has_usage: bool = True
    namespaces: Mapping[str, ToolPath] = {}
    previous_response: str = ""
    is_kept: bool = False
    is_thread: bool = False
    has_instructions: bool = False
    echo: Mapping[str, Any] = {}
    has_old_calls: bool = False
    allowed_tools: tuple[str, ...] = ()
    exact: Mapping[str, Mapping[str, Any]] = {}
    extra: Mapping[str, Any] = {}
    partial: frozenset[str] = frozenset()
    dropped: tuple[Dropped, ...] = ()

    @property
    def own_fields(self) -> list[str]:
        """The names of what only the client's protocol has."""
        names: list[str] = []
        for name, value in self.extra.items():
            names += [f"{name}.{inner}" for inner in value] if name in self.partial else [name]
        return names


ReadSettings = Callable[[Mapping[str, Any], str, bool | None], RequestSettings]
"""Reads the settings of a body. Protocols with the model and the kind of response in the path pass these two."""

NO_PROBABILITIES = "the probabilities of tokens are not passed on"
_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_WHOLE_NUMBERS = ("max_tokens", "top_k", "seed")


class Fields:
    """The fields of a request object. Reading a field removes it, so what remains was not recognised."""

    def __init__(self, fields: Any, place: str = "") -> None:
        if not isinstance(fields, Mapping):
            raise unreadable(place or "the body", f"must be an object, not {type_name(fields)}")
        self.rest: Json = {key: value for key, value in fields.items() if value is not None}
        self.partial: set[str] = set()  # the fields that were put back
        self._place = place

    def place(self, name: str) -> str:
        """The place of a field."""
        return f"{self._place}.{name}" if self._place else name

    def take(self, name: str, kind: type[T] | tuple[type[T], ...], what: str) -> T | None:
        """Removes and returns a field; raises if it has another type than `what` says."""
        value: Any = self.rest.pop(name, None)
        if kind is int and isinstance(value, float) and value.is_integer():  # some clients have only one kind of number
            value = int(value)
        if value is None or (isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)):
            taken: T | None = value
            return taken
        raise unreadable(self.place(name), f"must be {what}, not {type_name(value)}")

    def text(self, name: str) -> str:
        return self.take(name, str, "text") or ""

    def flag(self, name: str) -> bool | None:
        return self.take(name, bool, "true or false")

    def inner(self, name: str, rename: Callable[[Json], Json] = dict) -> Fields:
        """The fields of an object inside this one, renamed; it has none if it is missing."""
        return Fields(rename(self.take(name, dict, "an object") or {}), self.place(name))

    def effort(self, name: str) -> str:
        """Takes an effort; an effort specific to this protocol or server is not read."""
        return self.text(name) if is_effort(self.rest.get(name)) else ""

    def put_back(self, name: str, inner: Fields) -> None:
        """Keeps what was not read of an object inside this one."""
        if inner.rest:
            self.rest[name] = inner.rest
            self.partial.add(name)

    def leave_out(self, *names: str, why: str) -> tuple[Dropped, ...]:
        """Removes fields that no provider gets, if they are set."""
        return tuple(Dropped(self.place(name), why) for name in names if self.rest.pop(name, None))

    def unread(self, why: str) -> tuple[Dropped, ...]:
        """What was not read of this object, and is not passed on."""
        return tuple(Dropped(self.place(name), why) for name in self.rest)

    def required_text(self, name: str, example: str) -> str:
        if not (value := self.text(name)):
            raise unreadable(self.place(name), f"is missing; send {example}")
        return value

    def options(self, names: Mapping[str, str]) -> Json:
        """Takes the options under these names; the first name of an option that has a value counts."""
        options: Json = {}
        for name, option in names.items():
            value: Any
            if option in _NUMBERS:
                value = self.take(name, (int, float), "a number")
            elif option in _WHOLE_NUMBERS:
                value = self.take(name, int, "a whole number")
            else:
                value = self._stop(name)
            if value is not None:
                options.setdefault(option, value)
        return options

    def _stop(self, name: str) -> list[str] | None:
        match self.rest.pop(name, None):
            case None:
                return None
            case str(text):
                return [text]
            case [*texts] if all(isinstance(text, str) for text in texts):
                return texts
            case _:
                raise unreadable(self.place(name), "must be text or a list of texts")

    def objects(self, name: str) -> list[tuple[str, Json]]:
        """Takes a list of objects, each with its place."""
        values = self.take(name, list, "a list") or []
        for number, value in enumerate(values):
            if not isinstance(value, dict):
                raise unreadable(f"{self.place(name)}[{number}]", f"must be an object, not {type_name(value)}")
        return [(f"{self.place(name)}[{number}]", value) for number, value in enumerate(values)]


def read_tools(placed: Sequence[tuple[str, Json]]) -> tuple[ToolDeclaration, ...]:
    """The declarations of tools; raises with the place of an unreadable declaration or a repeated name.

    Clients send the same tools with each request, so the declarations of the last sets are kept. They are shared by all
    requests that declare them: a schema is copied before it is changed.
    """
    if not placed:
        return ()
    try:
        encoded = msgspec.json.encode([value for _, value in placed])
        if len(encoded) <= MAX_KEPT_TOOLS:
            return kept_tools(encoded)
    except (UsageError, TypeError, ValueError, OverflowError, RecursionError):
        pass  # what is wrong is reported below, with its place
    return _read_tools(placed)


@lru_cache(maxsize=KEPT_SETS)
def kept_tools(encoded: bytes) -> tuple[ToolDeclaration, ...]:
    """The declarations of tools in a JSON array, which are kept."""
    return _read_tools([("", value) for value in msgspec.json.decode(encoded)])


def _read_tools(placed: Sequence[tuple[str, Json]]) -> tuple[ToolDeclaration, ...]:
    tools: list[ToolDeclaration] = []
    names: set[str] = set()
    for place, value in placed:
        try:
            declared = read_declarations([value])
        except UsageError as error:
            raise unreadable(place, str(error)) from None
        for tool in declared:
            if tool.hosted is None and tool.name in names:
                raise unreadable(place, f"another tool is called {tool.name!r} too; rename one of them")
            names.add(tool.name)
        tools += declared
    return tuple(tools)


class ToolChoice(Struct, frozen=True):
    """What a request says about calls: a mode or the name of a tool, and the names of the allowed tools.

    `exact` are the fields that say it in the client's protocol, if no other protocol can say it as well.
    """

    choice: str = ""
    allowed: tuple[str, ...] = ()
    exact: Mapping[str, Any] = {}


def check_tool_choice(choice: str, tools: Iterable[ToolDeclaration], place: str) -> str:
    """The tool choice; raises if it is neither a mode nor a declared tool."""
    names = [tool.name for tool in tools]
    if choice in ("", "auto", "none", "required") or choice in names:
        return choice
    known = ", ".join(names) or "there are none"
    raise unreadable(place, f"{choice!r} is not a declared tool ({known}); declare it, or send auto, none or required")


def read_schema_format(format: Any, place: str) -> OutputFormat | None:
    """The output format of OpenAI's two wires: `{"type": "json_schema", …}`, flat or under a key of that name."""
    fields = Fields(format, place)
    match fields.text("type"):
        case "json_object":
            return OutputFormat(fields.take("schema", dict, "a JSON Schema"))  # which some servers take
        case "json_schema":
            inner = fields.inner("json_schema") if "json_schema" in fields.rest else fields
            schema: Any = inner.take("schema", dict, "a JSON Schema")
            return OutputFormat(schema, inner.text("name"), inner.flag("strict"), inner.text("description"))
        case "text" | "":
            return None
        case other:
            raise unreadable(f"{place}.type", f"{other!r} is not a known format; send text, json_object or json_schema")


def check_depth(body: Any) -> None:
    """Raises if a body is nested too deeply."""
    level = [body]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _values(outer)]
        if not level:
            return
    raise unreadable("the body", f"is nested deeper than {MAX_DEPTH} levels")


def _values(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
