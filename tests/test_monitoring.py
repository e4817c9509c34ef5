"""deploy/monitoring: alerts and dashboard ask for what a broker tells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client import CollectorRegistry

from reput.broker.metrics.metric_families import java
from reput.remoting.codes import RequestCode, ResponseCode
from reput.replication.follow_metrics import FollowMetrics
from reput.replication.follower import FollowState
from tests.support.async_tests import run
from tests.support.broker import serving_broker
from tests.support.fake_slave import FakeSlave
from tests.support.metrics import MEASURED, families, labels_of, let_happen
from tests.support.sockets import free_ports

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/monitoring"
(GROUP,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
ALERTS: list[dict[str, Any]] = GROUP["rules"]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana/dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: Prometheus' words, and the labels that it adds.
WORDS = set("sum max by rate histogram_quantile offset or unless on".split())
ADDED = {"job", "instance"}
#: The values that a label may have.
VALUES = {
    "request_code": [code.name.lower() for code in RequestCode],
    "response_code": [code.name.lower() for code in ResponseCode],
    "is_system": [java(True), java(False)],
}


class Query(NamedTuple):
    """An expression, and the texts in which labels of its result stand."""

    name: str
    expression: str
    texts: list[str]

    @property
    def selectors(self) -> list[tuple[str, str, str]]:
        """(metric, label, value) of each matcher."""
        return [
            (metric, label, value)
            for metric, matchers in re.findall(r"(\w+)\{([^}]*)\}", self.expression)
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', matchers)
        ]

    @property
    def grouped(self) -> list[set[str]]:
        """The labels of each `by` and `on`."""
        return [set(re.split(r",\s*", labels)) for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", self.expression)]

    @property
    def metrics(self) -> set[str]:
        """All names that are no words of Prometheus', and no labels."""
        bare = re.sub(r'\{[^}]*\}|\[[^\]]*\]|\b(?:by|on) \([^)]*\)|"[^"]*"|\b\d\w*', "", self.expression)
        return set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS

    @property
    def shown(self) -> set[str]:
        """The labels that the texts name."""
        return {label for text in self.texts for label in re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text)}


QUERIES = [
    *(Query(one["alert"], one["expr"], [*one["annotations"].values()]) for one in ALERTS),
    *(Query(panel["title"], one["expr"], [one["legendFormat"]]) for panel in PANELS for one in panel["targets"]),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric of a master with a slave, and of `reput follow`, whose a slave tells."""
    found: dict[str, set[str]] = {"up": set()}
    (port,) = free_ports(1)

    async def serve() -> None:
        path = tmp_path_factory.mktemp("store")
        async with serving_broker(path, ha_listen_port=port, timer_precision_ms=100, **MEASURED) as served:
            await let_happen(served)
            served.controller._state.stats.inc_dead_letter("g", "orders")
            slave = await FakeSlave.connect(served.controller._state)
            slave.report(0)
            await slave.receive()  # the master knows it
            found.update(labels_of(await families(served)))
            await slave.gone()

    run(serve())
    follower = FollowMetrics()
    follower.note("broker-a", FollowState(0, None, False, 0, 0, None))
    registry: CollectorRegistry = follower._registry
    return found | labels_of(registry.collect())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_a_query_asks_for_metrics_and_labels_that_are_told(query: Query, told: dict[str, set[str]]) -> None:
    assert query.metrics
    assert query.metrics - told.keys() == set()
    assert [one for one in query.selectors if one[1] not in told[one[0]] | ADDED] == []
    there = ADDED.union(*(told[name] for name in query.metrics))
    assert [labels for labels in query.grouped if not labels <= there] == []
    assert query.shown <= (set.union(*query.grouped) if " by (" in query.expression else there)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_a_query_asks_for_values_that_a_label_may_have(query: Query) -> None:
    known = [(label, value) for _, label, value in query.selectors if label in VALUES]
    assert [one for one in known if not any(re.fullmatch(one[1], value) for value in VALUES[one[0]])] == []


def test_alerts_ask_for_the_job_of_the_configuration() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [path for path in config["rule_files"] if not (FOLDER / path).is_file()] == []
    (job,) = config["scrape_configs"]
    assert {value for query in QUERIES for _, label, value in query.selectors if label == "job"} == {job["job_name"]}


def test_each_panel_has_a_title_a_unit_and_the_chosen_data_source() -> None:
    assert len({panel["title"] for panel in PANELS}) == len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == SOURCE
        assert [target for target in panel["targets"] if target["datasource"] != SOURCE] == []
    chosen, node = DASHBOARD["templating"]["list"]
    assert (chosen["name"], chosen["type"], chosen["query"]) == ("datasource", "datasource", "prometheus")
    assert node["datasource"] == SOURCE


def test_panels_lie_beside_each_other() -> None:
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert {x for x, _ in taken} == set(range(24))


def test_the_page_says_what_to_do_at_each_alert() -> None:
    page = (ROOT / "docs/design/monitoring.md").read_text()
    assert re.findall(r"^\| `(Reput\w+)` \|", page, re.MULTILINE) == [one["alert"] for one in ALERTS]
    assert {one["labels"]["severity"] for one in ALERTS} == {"critical", "warning"}
