"""Tracing: OpenTelemetry spans and metrics of runs, steps and tools. It needs the extra `otel`."""

from penstock.prices import Prices
from penstock.tracing.tracing import Tracing, carrier

__all__ = ["Prices", "Tracing", "carrier"]
