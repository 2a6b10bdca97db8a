"""The inspector: raw frames beside events beside what was sent on, live or from a recording, on a web page."""

from __future__ import annotations

from penstock.inspector.app import InspectorApp, app
from penstock.inspector.exchange import InspectedExchange
from penstock.inspector.inspections import Inspections, read_file

__all__ = ["InspectedExchange", "Inspections", "InspectorApp", "app", "read_file"]
