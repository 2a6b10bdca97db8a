"""`gateway.toml`: the settings of a gateway, reloaded when the file changes."""

from __future__ import annotations

import logging
import time
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.gateway.config.settings import GatewaySettings, Healing, HostedTools, ModelRoute, Target, Upstream
from penstock.gateway.config.tables import Count, Seconds, read_table
from penstock.gateway.config.upstream_names import read_upstream
from penstock.providers import find_provider
from penstock.wires import wire_name

logger = logging.getLogger("penstock.gateway")

LOOK_SECONDS = 1.0
"""The seconds between two checks of the file."""


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


class _ModelTable(Struct, frozen=True, kw_only=True):
    to: str
    fallbacks: list[str] = []
    healing: dict[str, Any] = {}
    hosted_tools: HostedTools | None = None  # None: as the file says


class _File(Struct, frozen=True, kw_only=True):
    upstreams: dict[str, Any] = {}
    models: dict[str, Any] = {}
    model: str = ""
    healing: dict[str, Any] = {}
    hosted_tools: HostedTools = "drop"


def read_settings(path: Path) -> GatewaySettings:
    """The settings in a file; a `UsageError` names the mistake and its place."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
        return settings_from(table)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def settings_from(table: Mapping[str, Any]) -> GatewaySettings:
    """The settings in the tables of a file."""
    file = read_table("the file", table, _File)
    if not file.upstreams:
        raise UsageError("there is no upstream: write a table [upstreams.NAME] with a url")
    healing = read_table("healing", file.healing, Healing)  # before the routes, which inherit it, and its mistakes
    return GatewaySettings(
        upstreams={name: _upstream(name, row) for name, row in file.upstreams.items()},
        routes=tuple(_route(pattern, row, file) for pattern, row in file.models.items()),
        model=file.model,
        healing=healing,
        hosted_tools=file.hosted_tools,
    )


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
        healing=read_table(f"{section}.healing", {**file.healing, **row.healing}, Healing),
        hosted_tools=row.hosted_tools or file.hosted_tools,
    )


def read_target(text: str) -> Target:
    """The target of `upstream/model`, or of `upstream` for the model that the client asks for."""
    upstream, _, model = text.partition("/")
    return Target(upstream, model)


class FileSettings:
    """The settings of a file, reloaded when it changes; an invalid file changes nothing."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._settings = read_settings(path)
        self._version = self._stat()
        self._next_look = 0.0

    @property
    def current(self) -> GatewaySettings:
        """The settings; checks the file for changes at intervals."""
        if self._clock() >= self._next_look:
            self._next_look = self._clock() + LOOK_SECONDS
            if self._stat() != self._version:
                self.reload()
        return self._settings

    def reload(self) -> None:
        """Read the file again."""
        self._version = self._stat()
        try:
            self._settings = read_settings(self._path)
            logger.info("read %s again", self._path)
        except UsageError as error:
            logger.error("the settings are not changed: %s", error)

    def _stat(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size
