"""The text format of Prometheus: read back with its own parser."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from penstock.asgi import metrics as metrics_module
from penstock.asgi.metrics import Metrics

BOUNDS = (0.1, 1.0)


def read(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples by name and values of labels, as Prometheus reads them."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            assert tuple(sample.labels.values()) not in values, "a sample comes twice"
            values[tuple(sample.labels.values())] = sample.value
    return found


def test_every_kind_of_metric_is_read_back() -> None:
    metrics = Metrics("app")
    metrics.counter("requests", "Requests")
    metrics.add("requests", method="GET", status="200")
    metrics.add("requests", 2, method="GET", status="200")
    metrics.gauge("open", "Open", lambda: 3)
    metrics.gauge("unknown", "Nobody knows", lambda: None)
    metrics.table("gauge", "runs", "Runs", "state", lambda: {"ready": 1, "waiting": 2})
    metrics.histogram("seconds", "Seconds", BOUNDS, lambda: ([1, 2, 4], 5.25))
    found = read(metrics)
    assert found["app_requests_total"] == {("GET", "200"): 3}
    assert found["app_open"] == {(): 3}
    assert "app_unknown" not in found
    assert found["app_runs"] == {("ready",): 1, ("waiting",): 2}
    assert found["app_seconds_bucket"] == {("0.1",): 1, ("1",): 3, ("+Inf",): 7}
    assert (found["app_seconds_sum"], found["app_seconds_count"]) == ({(): 5.25}, {(): 7})
    assert metrics.names == ["app_requests", "app_open", "app_unknown", "app_runs", "app_seconds"]


def test_labels_of_others_cannot_break_the_format() -> None:
    names = ['a"b', "a\\b", "a\nb", "a}b{", "é€", "x" * 10_000_000, "half \ud800"]
    metrics = Metrics("app")
    metrics.table("gauge", "runs", "Runs", "agent", lambda: dict.fromkeys(names, 1))
    metrics.counter("answers", "Answers")
    for name in names:
        metrics.add("answers", upstream=name)
    assert metrics_module.MAX_LABEL == 200
    assert len(metrics.text()) < 5_000
    found = read(metrics)
    assert set(found["app_runs"]) == set(found["app_answers_total"])
    assert {('a"b',), ("a\\b",), ("a\nb",), ("a}b{",), ("é€",)} <= set(found["app_runs"])


def test_many_values_of_a_label_are_counted_together(monkeypatch: object) -> None:
    metrics = Metrics("app")
    many = {f"agent-{number}": 1.0 for number in range(metrics_module.MAX_SERIES + 50)}
    metrics.table("gauge", "runs", "Runs", "agent", lambda: many)
    found = read(metrics)["app_runs"]
    assert len(found) == metrics_module.MAX_SERIES + 1
    assert found["other",] == 50


def test_numbers_keep_their_value() -> None:
    for value in (0.0, 12_345_678_901.0, 0.1 + 0.2, -1.5, 1e300, math.inf):
        metrics = Metrics("app")
        metrics.gauge("value", "Value", lambda value=value: value)  # type: ignore[misc]
        assert read(metrics)["app_value"] == {(): value}
