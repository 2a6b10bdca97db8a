"""Counters, gauges and histograms of a process, as Prometheus reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

MAX_SERIES = 1_000
"""How many combinations of labels are counted apart; others are counted together."""

MAX_LABEL = 200
"""How many characters the value of a label has."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the text format of Prometheus."""

_OTHER = "other"
Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[str, Labels, float]
"""What follows the name of a metric, its labels and its value."""


class _Metric(Struct):
    kind: Kind
    description: str
    values: dict[Labels, float] = {}
    read: Callable[[], Iterator[Sample]] | None = None

    def samples(self) -> Iterator[Sample]:
        if self.read is not None:
            yield from self.read()
        else:
            yield from (("", labels, value) for labels, value in self.values.items())


class Metrics:
    """The metrics of one app. Their names begin with the prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._metrics: dict[str, _Metric] = {}

    @property
    def names(self) -> list[str]:
        """The full names."""
        return [f"{self._prefix}_{name}" for name in self._metrics]

    def counter(self, name: str, description: str) -> None:
        """Declare a counter, for `add`."""
        self._metrics[name] = _Metric("counter", description)

    def gauge(self, name: str, description: str, read: Callable[[], float | None]) -> None:
        """Declare a gauge, whose value is read when it is asked for; None if it is unknown."""

        def one() -> Iterator[Sample]:
            if (value := read()) is not None:
                yield "", (), value

        self._metrics[name] = _Metric("gauge", description, read=one)

    def table(
        self, kind: Kind, name: str, description: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Declare a metric with one label, whose values are read when they are asked for."""

        def rows() -> Iterator[Sample]:
            values: dict[str, float] = {}
            for key, value in read().items():
                key = key[:MAX_LABEL] if key[:MAX_LABEL] in values or len(values) < MAX_SERIES else _OTHER
                values[key] = values.get(key, 0.0) + value
            yield from (("", ((label, key),), value) for key, value in values.items())

        self._metrics[name] = _Metric(kind, description, read=rows)

    def histogram(
        self, name: str, description: str, bounds: Sequence[float], read: Callable[[], tuple[Sequence[int], float]]
    ) -> None:
        """Declare a histogram. `read` returns how many values each bucket has, and the last one, and their sum."""

        def buckets() -> Iterator[Sample]:
            counts, total = read()
            sums = [*accumulate(counts)]
            for bound, count in zip([*bounds, math.inf], sums, strict=True):
                yield "_bucket", (("le", _number(bound)),), count
            yield "_sum", (), total
            yield "_count", (), sums[-1]

        self._metrics[name] = _Metric("histogram", description, read=buckets)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        values = self._metrics[name].values
        key = tuple((label, value[:MAX_LABEL]) for label, value in sorted(labels.items()))
        if key not in values and len(values) >= MAX_SERIES:
            key = tuple((label, _OTHER) for label, _ in key)
        values[key] = values.get(key, 0.0) + amount

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        lines: list[str] = []
        for name, metric in self._metrics.items():
            full = f"{self._prefix}_{name}"
            lines += [f"# HELP {full} {metric.description}", f"# TYPE {full} {metric.kind}"]
            lines += [f"{full}{end}{_labels(labels)} {_number(value)}" for end, labels, value in metric.samples()]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _labels(labels: Labels) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) else repr(float(value))
