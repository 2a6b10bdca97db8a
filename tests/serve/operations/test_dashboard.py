"""The dashboard and the alerts: every query names metrics and labels that exist, and the page describes each alert."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import penstock.gateway
import penstock.serve
from penstock import Agent, Model, Runs
from penstock.log.in_memory import MemoryStore
from penstock.serve.operations import log_watch
from penstock.serve.operations.run_metrics import STATES
from penstock.serve.operations.worker_app import WorkerApp
from penstock.testing import Scripted
from tests.asgi_client import serving

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "operations"
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((FOLDER / "prometheus-rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
AGENT = Agent(Model("openai:gpt-5", via=Scripted(lambda request: "Hello.")), name="desk")
FUNCTIONS = {"min", "max", "sum", "by", "rate", "increase", "and", "or", "histogram_quantile", "humanize"}
OF_PROMETHEUS = {"job", "instance", "le"}


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The names of all samples, each with its labels: of a server, a worker and a gateway that have been used."""

    async def main() -> list[bytes]:
        store = MemoryStore()
        Runs(store, {"other": AGENT}).start("other", "Hi")
        texts: list[bytes] = []
        async with serving(penstock.serve.app(AGENT, log=store)) as browser:
            await browser.post("/runs", {"prompt": "Hi"})
            async with asyncio.timeout(30):
                while True:
                    text = (await browser.get("/metrics")).body
                    if b'ended_runs_total{reason="answered"}' in text:
                        break
                    await asyncio.sleep(0.05)
            texts.append(text)
        async with serving(WorkerApp(store, Runs(store, {"desk": AGENT}))) as browser:
            texts.append((await browser.get("/metrics")).body)
        gateway = penstock.gateway.app("http://127.0.0.1:9/v1")
        gateway.metrics.add("tokens", upstream="x", kind="input")
        gateway.metrics.add("answers", upstream="x", problem="no")
        async with serving(gateway) as browser:
            texts.append((await browser.get("/metrics")).body)
        return texts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_watch, "COUNT_SECONDS", 0.0)
        texts = asyncio.run(main())
    found: dict[str, set[str]] = {}
    for text in texts:
        written = {line.partition("{")[0].partition(" ")[0] for line in text.decode().splitlines() if line[:1] != "#"}
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                name = sample.name if sample.name in written else sample.name.removesuffix("_total")
                assert name in written
                found.setdefault(name, set()).update(sample.labels)
    return found


def queries() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("title", "query"), [*queries()], ids=lambda text: text[:30])
def test_a_query_names_metrics_and_labels_that_exist(title: str, query: str, known: dict[str, set[str]]) -> None:
    names = re.findall(r"\bpenstock_\w+", query)
    assert names
    assert set(names) <= set(known), title
    labels = {label for name in names for label in known[name]} | OF_PROMETHEUS
    used = set(re.findall(r'(\w+)(?:=|=~|!=)"', query))
    for group in re.findall(r"by \(([^)]*)\)", query):
        used |= {label.strip() for label in group.split(",")}
    assert used <= labels, title
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")
    words = set(re.findall(r"\b[a-z_]+\b(?=\s*\()", re.sub(r'"[^"]*"', "", query)))
    assert words <= FUNCTIONS | {"by"}, title


def test_states_in_queries_are_states_of_runs() -> None:
    text = json.dumps(DASHBOARD) + json.dumps(RULES)
    assert set(re.findall(r'state=\\*"(\w+)', text)) <= set(STATES)


def test_panels_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_every_metric_of_runs_is_in_the_dashboard_or_an_alert(known: dict[str, set[str]]) -> None:
    used = set(re.findall(r"\bpenstock_\w+", " ".join(query for _, query in queries())))
    of_runs = {name for name in known if not re.match("penstock_(serve|gateway|worker)_", name)}
    assert of_runs <= used


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_the_page_describes_every_alert_with_its_threshold(rule: dict[str, Any]) -> None:
    [row] = re.findall(rf"^\| `{rule['alert']}` \|.*$", PAGE, re.MULTILINE)
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    threshold = re.findall(r"(?:>|==)\s*([\d.]+)", rule["expr"])[0]
    shown = {"0.05": "5 %", "0.1": "10 %", "5000": "5,000", "0.5": "0.5"}.get(threshold, threshold)
    assert shown in row or threshold in ("0", "1")
    assert rule["for"].replace("m", " min") in row


def test_the_page_has_no_other_alerts_and_names_the_files() -> None:
    assert set(re.findall(r"^\| `(Penstock\w+)`", PAGE, re.MULTILINE)) == {rule["alert"] for rule in RULES}
    for path in FOLDER.iterdir():
        assert path.name in PAGE
