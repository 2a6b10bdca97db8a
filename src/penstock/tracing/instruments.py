"""The tracer, and the histograms of the metrics."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from opentelemetry.metrics import Histogram, Meter, MeterProvider, get_meter
from opentelemetry.trace import Tracer, TracerProvider, get_tracer
from opentelemetry.util.types import AttributeValue

from penstock.tracing.conventions import METRICS, SCHEMA_URL, Metric

Attributes = dict[str, AttributeValue]


class Instruments:
    """The tracer of the runs, and the histograms by their names."""

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        release = _version()
        self.tracer: Tracer = get_tracer("penstock", release, tracers, SCHEMA_URL)
        meter = get_meter("penstock", release, meters, SCHEMA_URL)
        self._histograms = {metric.name: _histogram(meter, metric) for metric in METRICS}

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Add a value to a histogram."""
        self._histograms[metric.name].record(value, attributes)


def _histogram(meter: Meter, metric: Metric) -> Histogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets or None
    )


def _version() -> str:
    try:
        return version("penstock-llm")
    except PackageNotFoundError:  # run from a folder
        return ""
