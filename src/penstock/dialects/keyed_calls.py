"""To be written."""

from __future__ import annotations

from penstock.dialects.dialect import Dialect

DIALECTS: dict[str, Dialect] = {}
