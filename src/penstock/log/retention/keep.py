"""How long a log keeps finished runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.log.store import Cutoff

DAY = 86_400.0
FOREVER = 0.0
"""The cutoff of a tenant whose runs are never deleted: none ended before 1970."""


class Keep(Struct, frozen=True):
    """How many days a log keeps finished runs; None keeps them forever.

        penstock.log.open("runs.db", keep=penstock.log.Keep(days=30, per_tenant={"acme": 365}, archive="archive"))

    Workers and servers delete the others, from time to time. The runs of a conversation (the same tenant and thread)
    are kept or deleted together: its days count from its last end. `per_tenant` has other days for some tenants. With
    `archive`, each run is first written to a file in this directory, which `penstock runs import` reads.
    """

    days: float | None = None
    per_tenant: Mapping[str, float | None] = {}
    archive: str | Path | None = None

    def __post_init__(self) -> None:
        per_tenant: Any = self.per_tenant
        if not isinstance(per_tenant, Mapping) or not all(isinstance(tenant, str) for tenant in per_tenant):
            raise UsageError(f"per_tenant must be a dict of days by tenants, not {per_tenant!r:.60}")
        for name, days in {
            "days": self.days,
            **{f"per_tenant[{key!r}]": days for key, days in per_tenant.items()},
        }.items():
            _expect_days(name, days)
        archive: Any = self.archive
        if archive is not None and not isinstance(archive, str | os.PathLike):
            raise UsageError(f"archive must be the path of a directory, not {archive!r:.60}")

    @property
    def deletes(self) -> bool:
        """Whether runs are deleted at all."""
        return any(days is not None for days in (self.days, *self.per_tenant.values()))

    def cutoff(self, now: float) -> Cutoff:
        """What may be deleted at this time, in seconds since 1970."""
        return Cutoff(_before(self.days, now), {tenant: _before(days, now) for tenant, days in self.per_tenant.items()})


def _before(days: float | None, now: float) -> float:
    return FOREVER if days is None else now - days * DAY


def _expect_days(name: str, days: Any) -> None:
    if days is not None and (isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days < math.inf):
        raise UsageError(f"{name} must be a number of days, 0 or more, or None (forever), not {days!r:.60}")
