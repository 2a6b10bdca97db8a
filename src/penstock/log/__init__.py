"""The log of a run: its events in a store, from which any process can read and continue it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.opening import memory, open  # noqa: A004  # `penstock.log.open`

if not TYPE_CHECKING:  # imported when they are first used, as those of `penstock` are

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'penstock.log' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module("penstock.log.opening"), name)
        return value


__all__ = ["memory", "open"]
