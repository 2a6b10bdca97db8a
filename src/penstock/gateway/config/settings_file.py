"""Settings of a file that is read again when it changes, while the gateway runs.

| a look finds | then |
|---|---|
| the file as it was | nothing |
| a change | its content is kept until the next look |
| the same content as the look before | valid settings replace the old ones; a mistake is reported |
| other content than the look before | somebody is still writing: the next look compares again |

Running requests keep the settings with which they began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.gateway.config.file import parse_settings, read_content
from penstock.gateway.config.settings import GatewaySettings, Upstream
from penstock.loggers import get_logger

logger = get_logger("penstock.gateway")

LOOK_SECONDS = 0.5
"""The seconds between two looks at the file."""

Version = tuple[int, int, int]
Content = bytes | str
"""The content of the file, or the reason why it cannot be read."""


class FileSettings:
    """The settings of a file. `problem` says what is wrong with the file, if it does not have these settings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = self._stat()
        content = read_content(path)
        self._used: Content = content  # the content that was read last, valid or not
        self._seen: Content | None = None  # new content, until two looks have found it
        self.current = parse_settings(path, content)
        self.problem = ""

    def look(self) -> bool:
        """Check the file; True if its settings or its problem changed."""
        version = self._stat()
        if version == self._version and self._seen is None:
            return False
        self._version = version
        content = self._content()
        if content == self._used:
            self._seen = None
            return False
        if content != self._seen:
            self._seen = content
            return False
        return self._use(content)

    def reload(self) -> None:
        """Read the file now, without waiting for a second look."""
        self._version = self._stat()
        self._use(self._content())

    def _use(self, content: Content) -> bool:
        self._seen, self._used = None, content
        try:
            if isinstance(content, str):
                raise UsageError(content)
            settings = parse_settings(self._path, content)
        except UsageError as error:
            self.problem = str(error)
            logger.error("the settings are not changed: %s", error)
        else:
            changes = ", ".join(changed_sections(self.current, settings)) or "nothing changed"
            self.current, self.problem = settings, ""
            logger.info("read %s again: %s", self._path, changes)
        return True

    def _content(self) -> Content:
        try:
            return read_content(self._path)
        except UsageError as error:
            return str(error)

    def _stat(self) -> Version | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def changed_sections(old: GatewaySettings, new: GatewaySettings) -> list[str]:
    """The sections of the file that differ: `upstreams.local`, `models.gpt-*`, `healing`."""
    rows = [
        *((f"upstreams.{name}", _written(old, name), _written(new, name))
          for name in dict.fromkeys([*old.upstreams, *new.upstreams])),
        *_routes(old, new),
        *((name, getattr(old, name), getattr(new, name))
          for name in old.__struct_fields__ if name not in ("upstreams", "routes", "withheld")),
    ]  # fmt: skip
    names = [name for name, before, after in rows if before != after]
    return names or (["the order of the sections"] if _order(old) != _order(new) else [])


def _written(settings: GatewaySettings, name: str) -> Upstream | None:
    """An upstream as it is in the file: without the key that it has because there are others."""
    upstream = settings.upstreams.get(name)
    return replace(upstream, key="") if upstream is not None and name in settings.withheld else upstream


def _routes(old: GatewaySettings, new: GatewaySettings) -> list[tuple[str, object, object]]:
    before = {route.pattern: route for route in old.routes}
    after = {route.pattern: route for route in new.routes}
    return [(f"models.{name}", before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]


def _order(settings: GatewaySettings) -> list[str]:
    """The names whose order decides: the first upstream is the default, and the first fitting route counts."""
    return [*settings.upstreams, *(route.pattern for route in settings.routes)]


class SettingsWatch:
    """Looks at a file at intervals, on the event loop of the gateway; `changed` is called after a change."""

    def __init__(self, settings: FileSettings, changed: Callable[[], None]) -> None:
        self._settings = settings
        self._changed = changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin, unless it has begun on this event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._wait(loop)

    def close(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            if self._settings.look():
                self._changed()
        finally:  # a failure is logged by the loop, and must not end the watch
            self._wait(loop)
