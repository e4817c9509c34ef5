"""Where brokers are, by routes of several topics that were asked for at different times."""

from __future__ import annotations

import logging

import pytest

from reput.client.instance.topic_routes import TopicRoutes
from reput.remoting.route_bodies import BrokerData, QueueData, TopicRouteData


def route(**brokers: dict[int, str]) -> TopicRouteData:
    queues = tuple(QueueData(name, 2, 2, 6) for name in brokers)
    return TopicRouteData(queues, tuple(BrokerData("c", name, addresses) for name, addresses in brokers.items()))


async def test_the_newest_route_says_where_a_broker_is() -> None:
    told = {"orders": route(a={0: "master", 1: "slave"}), "refunds": route(a={0: "master", 1: "slave"})}

    async def ask(topic: str) -> TopicRouteData | None:
        return told.get(topic)

    routes = TopicRoutes(ask, lambda: None)
    for topic in ("orders", "refunds"):
        await routes.subscribe_queues(topic)
    assert (routes.master("a"), routes.address("a"), routes.address("a", 1)) == ("master", "master", "slave")
    told["refunds"] = route(a={2: "other slave", 1: "slave"})
    await routes._fetch("refunds")
    assert (routes.master("a"), routes.address("a"), routes.address("a", 2)) == (None, "slave", "other slave")
    assert routes.address("a", 3) == "slave"
    told["orders"] = route(a={0: "new master"})
    await routes._fetch("orders")
    assert routes.master("a") == "new master"
    assert routes.brokers_of("refunds") == ["slave"]
    assert (routes.address("b"), routes.master("b"), routes.brokers_of("none")) == (None, None, [])


async def test_a_topic_without_queues_is_logged_once_until_it_has_some(caplog: pytest.LogCaptureFixture) -> None:
    told: dict[str, TopicRouteData] = {}

    async def ask(topic: str) -> TopicRouteData | None:
        return told.get(topic)

    routes = TopicRoutes(ask, lambda: None)
    for topic in ("ordrs", "ordrs", "%RETRY%group"):
        assert await routes.subscribe_queues(topic) == ()
    (line,) = caplog.records
    assert (line.levelno, str(line.msg)) == (
        logging.WARNING, "nothing is consumed until this changes: no name server knows the topic topic=ordrs"
    )  # fmt: skip
    told["ordrs"] = route(a={0: "master"})
    await routes.refresh()
    assert len(await routes.subscribe_queues("ordrs")) == 2
    told["ordrs"] = TopicRouteData((QueueData("a", 2, 2, 2),), told["ordrs"].broker_datas)
    await routes.refresh()
    assert await routes.subscribe_queues("ordrs") == ()
    assert "no broker lets read the topic" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2
