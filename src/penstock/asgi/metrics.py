"""Counters and gauges of a server, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

MAX_SERIES = 1_000
"""How many combinations of labels are counted apart; others are counted together."""

_OTHER = "other"
Labels = tuple[tuple[str, str], ...]


class _Metric(Struct):
    kind: str
    description: str
    values: dict[Labels, float] = {}
    read: Callable[[], float] | None = None


class Metrics:
    """The metrics of one app."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._metrics: dict[str, _Metric] = {}

    def counter(self, name: str, description: str) -> None:
        """Declare a counter."""
        self._metrics[name] = _Metric("counter", description)

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Declare a gauge, whose value is read when it is asked for."""
        self._metrics[name] = _Metric("gauge", description, read=read)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        values = self._metrics[name].values
        key = tuple(sorted(labels.items()))
        if key not in values and len(values) >= MAX_SERIES:
            key = tuple((label, _OTHER) for label, _ in key)
        values[key] = values.get(key, 0.0) + amount

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        lines: list[str] = []
        for name, metric in self._metrics.items():
            full = f"{self._prefix}_{name}"
            lines += [f"# HELP {full} {metric.description}", f"# TYPE {full} {metric.kind}"]
            values = metric.values if metric.read is None else {(): metric.read()}
            lines += [f"{full}{_labels(labels)} {value:.10g}" for labels, value in values.items()]
        return ("\n".join(lines) + "\n").encode()


def _labels(labels: Labels) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
