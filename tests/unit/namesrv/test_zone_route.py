from __future__ import annotations

import pytest

from reput.namesrv.zone_route import filter_by_zone
from reput.remoting.route_bodies import BrokerData, QueueData, TopicRouteData

BROKERS = {"a": ({0: "a:1", 1: "a:2"}, "z1"), "b": ({0: "b:1"}, "z2"), "c": ({0: "c:1"}, None), "d": ({1: "d:1"}, "z2")}
ROUTE = TopicRouteData(
    tuple(QueueData(name) for name in BROKERS),
    tuple(BrokerData("C", name, addresses, zone) for name, (addresses, zone) in BROKERS.items()),
    {"a:1": ("f:1",), "b:1": ("f:2",)},
)


@pytest.mark.parametrize(
    ("fields", "names", "filters"),
    [
        ({}, "abcd", {"a:1", "b:1"}),
        ({"__ZONE_NAME": "z1"}, "abcd", {"a:1", "b:1"}),
        ({"__ZONE_NAME": "z1", "__ZONE_MODE": "1"}, "abcd", {"a:1", "b:1"}),
        ({"__ZONE_NAME": "  ", "__ZONE_MODE": "true"}, "abcd", {"a:1", "b:1"}),
        ({"__ZONE_MODE": "true"}, "abcd", {"a:1", "b:1"}),
        ({"__ZONE_NAME": "z1", "__ZONE_MODE": "true"}, "ad", {"a:1"}),
        ({"__ZONE_NAME": "Z2", "__ZONE_MODE": "TRUE"}, "bd", {"b:1"}),
        ({"__ZONE_NAME": "z3", "__ZONE_MODE": "true"}, "d", set()),
    ],
)
def test_a_client_gets_the_brokers_of_its_zone_and_those_without_a_master(
    fields: dict[str, str], names: str, filters: set[str]
) -> None:
    route = filter_by_zone(ROUTE, fields)
    assert "".join(one.broker_name for one in route.broker_datas) == names
    assert "".join(one.broker_name for one in route.queue_datas) == names
    assert set(route.filter_server_table) == filters
