"""The version of the tables of a log, and which versions of penstock can use them."""

from __future__ import annotations

from msgspec import Struct

from penstock.log.store import StoreError


class TableVersions(Struct, frozen=True):
    """The version of the tables of a log, the oldest that can use them, and that of this code; 0 without tables."""

    version: int
    oldest: int
    own: int

    def check(self, name: str) -> None:
        """Raise a `StoreError` if this version cannot use the tables."""
        if self.oldest > self.own:
            raise StoreError(
                f"{name} is of a later version of penstock: its tables have version {self.version}, which those from "
                f"{self.oldest} on can use, and this penstock knows version {self.own}. Upgrade it; nothing was changed"
            )
