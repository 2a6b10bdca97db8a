"""`gateway.toml`: the settings of a gateway, reloaded when the file changes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from penstock.errors import UnknownNameError, UsageError, type_name
from penstock.gateway.config.settings import (
    HEALING,
    NATIVE,
    GatewaySettings,
    HostedTools,
    ModelRoute,
    Target,
    Upstream,
    Watch,
    WebTool,
    read_calls,
)
from penstock.gateway.config.upstream_names import read_upstream
from penstock.healing.settings import Healing
from penstock.providers import find_provider
from penstock.wires import wire_name

T = TypeVar("T", bound=Struct)
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]

_WRONG = re.compile(r"at `\$\.(\w+)")  # in the messages of msgspec
_MISSING = re.compile(r"missing required field `(\w+)`")
_KINDS_IN_WORDS = {bool: "true or false", str: "a text in quotes", int: "a whole number", float: "a number"}


class _UnknownKey(UnknownNameError):
    kind = "key"
    advice = "the page of the gateway lists all"


def read_table(section: str, table: Any, kind: type[T]) -> T:
    """The struct of a table; a `UsageError` names the section, the key, and the allowed values."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{section} must be a table, not {type_name(table)}")
    types = get_type_hints(kind, include_extras=True)
    for key in table:
        if key not in types:
            raise UsageError(f"{section}: {_UnknownKey(key, types)}")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{section}{_problem(str(error), table, types)}") from None


def _problem(message: str, table: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """What is wrong with a table, after the name of its section."""
    if place := _WRONG.search(message):
        key = place[1]
        if "[...]" in message:
            return f": every value of {key} must be a text in quotes"
        return f": {key} must be {allowed(types[key])}, not {_shown(table[key])}"
    if missing := _MISSING.search(message):
        return f": the key {missing[1]!r} is missing; it must be {allowed(types[missing[1]])}"
    return f": {message.partition(' - at `$')[0]}"  # the message of the struct's own checks


def allowed(kind: Any) -> str:
    """The values of a type, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return f"{allowed(arguments[0])} of 0 or more"
    if origin is Literal:
        return _or([f'"{value}"' for value in arguments])
    if origin in (Union, UnionType):
        return _or([allowed(argument) for argument in arguments if argument is not NoneType])
    if origin in (list, tuple):
        return "a list of texts"
    if origin is dict and arguments[-1] is str:
        return "a table of texts"
    return _KINDS_IN_WORDS.get(kind, "a table")


def _or(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else values[0]


def _shown(value: Any) -> str:
    """A short value as it is written in a file. Tables and lists are not shown: they may have API keys."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= MAX_SHOWN and not isinstance(value, dict | list) else type_name(value)


MAX_SHOWN = 60
"""How many characters of a wrong value are shown."""


MAX_FILE = 1024 * 1024
"""How many bytes a file of settings may have."""
_OPTIONS = {
    "host": "--host", "port": "--port", "key": "--key", "allow_host": "--allow-host", "allow_origin": "--allow-origin",
    "trust_proxy": "--trust-proxy", "record": "--record", "inspect": "--no-inspect",
}  # fmt: skip
"""What cannot change while the gateway runs, and is set on the command line."""


class _UpstreamTable(Struct, frozen=True, kw_only=True):
    url: str = ""
    provider: str = ""
    wire: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    streaming: bool = True
    connect: Seconds = 10.0
    first_token: Seconds = 600.0
    idle: Seconds = 120.0
    total: Seconds = 3600.0
    retries: Count = 2
    context: Count = 0


class _ModelTable(Struct, frozen=True, kw_only=True):
    to: str
    fallbacks: list[str] = []
    healing: dict[str, Any] = {}
    hosted_tools: HostedTools | None = None  # None: as the file says
    calls: Any = None  # None: as the file says
    watch: dict[str, Any] = {}
    context: Count = 0


class _WebToolTable(Struct, frozen=True, kw_only=True):
    command: list[str] = []
    mcp: str | list[str] = ""
    tool: str = ""
    argument: str = ""
    env: list[str] = []
    seconds: Seconds = 30.0
    characters: Count = 50_000


class _File(Struct, frozen=True, kw_only=True):
    upstreams: dict[str, Any] = {}
    models: dict[str, Any] = {}
    model: str = ""
    healing: dict[str, Any] = {}
    hosted_tools: HostedTools = "drop"
    calls: Any = NATIVE
    watch: dict[str, Any] = {}
    web_tools: dict[str, Any] = {}


def read_settings(path: Path) -> GatewaySettings:
    """The settings in a file; a `UsageError` names the mistake and its place."""
    return parse_settings(path, read_content(path))


def read_content(path: Path) -> bytes:
    """The bytes of a file of settings."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise UsageError(f"{path} is larger than {MAX_FILE} bytes")
    return content


def parse_settings(path: Path, content: bytes) -> GatewaySettings:
    """The settings in the content of a file."""
    try:
        return settings_from(tomllib.loads(content.decode()))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: there is a byte {content[error.start]:#04x} at {error.start}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def settings_from(table: Mapping[str, Any]) -> GatewaySettings:
    """The settings in the tables of a file."""
    for key in table:
        if key in _OPTIONS:
            raise UsageError(
                f"{key} is not a setting of the file: it cannot change while the gateway runs; use {_OPTIONS[key]}"
            )
    file = read_table("the file", table, _File)
    if not file.upstreams:
        raise UsageError("there is no upstream: write a table [upstreams.NAME] with a url")
    # before the routes, which inherit it, and its mistakes
    healing = read_table("healing", _healing(file.healing), Healing)
    watch = read_table("watch", file.watch, Watch)
    return GatewaySettings(
        upstreams={name: _upstream(name, row) for name, row in file.upstreams.items()},
        routes=tuple(_route(pattern, row, file) for pattern, row in file.models.items()),
        model=file.model,
        healing=healing,
        hosted_tools=file.hosted_tools,
        calls=read_calls(file.calls),
        watch=watch,
        web_tools={name: _web_tool(name, row) for name, row in file.web_tools.items()},
    )


def _web_tool(name: str, table: Any) -> WebTool:
    section = f"web_tools.{name}"
    row = read_table(section, table, _WebToolTable)
    with _named(section):
        return WebTool(
            command=tuple(row.command), mcp=row.mcp if isinstance(row.mcp, str) else tuple(row.mcp), tool=row.tool,
            argument=row.argument, env=tuple(row.env), seconds=row.seconds, characters=row.characters,
        )  # fmt: skip


def _upstream(name: str, table: Any) -> Upstream:
    section = f"upstreams.{name}"
    row = read_table(section, table, _UpstreamTable)
    if "/" in name:
        raise UsageError(f"{section}: a name must not contain a slash; in upstream/model, the slash separates the two")
    if not row.url and not row.provider:
        raise UsageError(f"{section} needs a url, or a provider")
    with _named(section):
        return _checked(name, row)


@contextmanager
def _named(section: str) -> Generator[None]:
    """Names the section in errors."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{section}: {error}") from None


def _checked(name: str, row: _UpstreamTable) -> Upstream:
    named = find_provider(row.provider)[0] if row.provider else ""  # raises if there is none
    guessed = read_upstream(f"{name}={row.url}" if row.url else row.provider)
    provider = named or guessed.provider
    if row.wire:
        wire_name(row.wire)  # raises if there is none
    settings = {key: getattr(row, key) for key in row.__struct_fields__ if key != "provider"}
    return Upstream(name=name, provider=provider, **settings)


def _route(pattern: str, table: Any, file: _File) -> ModelRoute:
    section = f"models.{pattern}"
    row = read_table(section, table, _ModelTable)
    return ModelRoute(
        pattern=pattern,
        target=read_target(row.to),
        fallbacks=tuple(map(read_target, row.fallbacks)),
        healing=read_table(f"{section}.healing", _healing({**file.healing, **row.healing}), Healing),
        hosted_tools=row.hosted_tools or file.hosted_tools,
        calls=_calls(section, file.calls if row.calls is None else row.calls),
        watch=read_table(f"{section}.watch", {**file.watch, **row.watch}, Watch),
        context=row.context,
    )


def _calls(section: str, value: Any) -> str:
    with _named(section):
        return read_calls(value)


def _healing(table: Mapping[str, Any]) -> dict[str, Any]:
    """The switches of healing, with the defaults of a gateway."""
    return {"reasoning_calls": HEALING.reasoning_calls, **table}


def read_target(text: str) -> Target:
    """The target of `upstream/model`, or of `upstream` for the model that the client asks for."""
    upstream, _, model = text.partition("/")
    return Target(upstream, model)
