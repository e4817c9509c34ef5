from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.errors import RemotingCommandError
from reput.formats.metadata import DataVersion
from reput.namesrv.lost_brokers import KEPT_MS
from reput.namesrv.route_info_manager import RegisterBrokerResult, RouteInfoManager
from reput.remoting.route_bodies import BrokerData, QueueData, RegisterBrokerBody
from tests.support.namesrv import CLUSTER, broker_header, leaving, topics_body

A0 = (CLUSTER, "broker-a-0:10911")


class Routes(RouteInfoManager):
    """With a registration in one line."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(NamesrvConfig(**keys))

    def register(
        self,
        header: Any = None,
        body: RegisterBrokerBody | None = None,
        channel: Any = None,
        now_ms: int = 0,
        **more: Any,
    ) -> RegisterBrokerResult:
        body = topics_body("orders", "payments") if body is None else body
        return self.register_broker(header or broker_header(), body, channel=channel, now_ms=now_ms, **more)

    def addresses(self, topic: str = "orders") -> dict[str, Mapping[int, str]]:
        route = self.pickup_topic_route_data(topic)
        return {} if route is None else {one.broker_name: one.broker_addrs for one in route.broker_datas}

    def perms(self, topic: str = "orders") -> dict[str, int]:
        route = self.pickup_topic_route_data(topic)
        return {} if route is None else {one.broker_name: one.perm for one in route.queue_datas}


@pytest.fixture
def routes() -> Routes:
    return Routes()


def test_a_route_names_the_brokers_and_queues_of_a_topic(routes: Routes) -> None:
    routes.register(broker_header("broker-b"), topics_body("orders", "payments", queues=8))
    routes.register(broker_header("broker-a"))
    routes.register(broker_header("broker-a", 1))
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.broker_datas == (
        BrokerData(CLUSTER, "broker-a", {0: "broker-a-0:10911", 1: "broker-a-1:10911"}, None, False),
        BrokerData(CLUSTER, "broker-b", {0: "broker-b-0:10911"}, None, False),
    )
    assert route.queue_datas == (QueueData("broker-a", 4, 4, 6), QueueData("broker-b", 8, 8, 6))
    assert routes.pickup_topic_route_data("unknown") is None


def test_a_slave_learns_its_master(routes: Routes) -> None:
    assert routes.register(broker_header("broker-a", 1)) == RegisterBrokerResult()
    assert routes.register() == RegisterBrokerResult()
    told = routes.register(broker_header("broker-a", 1))
    assert told == RegisterBrokerResult("ha-of-broker-a-0:10911", "broker-a-0:10911")


def test_the_first_registration_of_one_topic_is_refused_and_changes_nothing(routes: Routes) -> None:
    with pytest.raises(RemotingCommandError, match="register broker failed") as refused:
        routes.register(body=topics_body("orders"))
    assert refused.value.code == 1
    assert routes.cluster_info() == RouteInfoManager(NamesrvConfig()).cluster_info()
    routes.register()
    routes.register(body=topics_body("later", version=2))
    assert routes.addresses("later")
    with pytest.raises(RemotingCommandError):
        routes.register(broker_header("broker-a", 1), topics_body("orders"))


def test_only_the_master_changes_topics(routes: Routes) -> None:
    routes.register()
    routes.register(broker_header("broker-a", 1), topics_body("orders", "of-the-slave", version=9, perm=4))
    assert routes.perms() == {"broker-a": 6}
    assert routes.perms("of-the-slave") == {}


def test_an_old_slave_without_a_master_registers_no_topics(routes: Routes) -> None:
    routes.register(broker_header("broker-a", 1))
    assert routes.perms() == {}
    assert routes.broker_member_group(CLUSTER, "broker-a").broker_addrs == {1: "broker-a-1:10911"}


def test_topics_change_with_their_data_version_alone(routes: Routes) -> None:
    routes.register()
    routes.register(body=topics_body("orders", "payments", perm=4))
    assert routes.perms() == {"broker-a": 6}
    routes.register(body=topics_body("orders", "payments", perm=4, version=2))
    assert routes.perms() == {"broker-a": 4}
    routes.register(body=topics_body("orders", "payments", perm=6, version=2, state_version=1))
    assert routes.perms() == {"broker-a": 6}


def test_a_topic_that_a_broker_registers_no_more_stays(routes: Routes) -> None:
    routes.register()
    routes.register(body=topics_body("orders", "refunds", version=2))
    assert set(routes.all_topic_list().topic_list) == {"orders", "payments", "refunds"}


def test_a_topic_that_a_broker_registers_no_more_goes_where_the_key_says_so() -> None:
    routes = Routes(delete_topic_with_broker_registration=True)
    routes.register()
    routes.register(broker_header("broker-b"))
    routes.register(body=topics_body("orders", "refunds", version=2))
    assert routes.addresses("payments").keys() == {"broker-b"}
    routes.register(broker_header("broker-b"), topics_body("orders", "refunds", version=2))
    assert routes.addresses("payments") == {}


def test_static_topics_keep_their_mappings_and_lose_no_topic() -> None:
    routes = Routes(delete_topic_with_broker_registration=True)
    mapping = {"topic": "orders", "bname": "broker-a", "totalQueues": 4}
    routes.register(body=topics_body("orders", "payments", mappings={"orders": mapping}))
    routes.register(body=topics_body("orders", "refunds", version=2, mappings={"orders": mapping}))
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert routes.addresses("payments")
    routes.unregister_broker(leaving())
    routes.register()
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


def test_a_deleted_topic_comes_back_with_the_next_registration(routes: Routes) -> None:
    routes.register()
    routes.delete_topic("orders")
    assert routes.addresses() == {}
    routes.register()
    assert routes.addresses()


def test_a_topic_is_deleted_in_one_cluster(routes: Routes) -> None:
    routes.register()
    routes.register(broker_header("broker-b", cluster_name="other"))
    routes.delete_topic("orders", "other")
    assert routes.addresses().keys() == {"broker-a"}
    routes.delete_topic("orders", "unknown")
    routes.delete_topic("orders", CLUSTER)
    assert routes.addresses() == {}


def test_a_slave_that_becomes_the_master_has_one_id(routes: Routes) -> None:
    routes.register()
    routes.register(broker_header("broker-a", 1, "slave:1"))
    routes.unregister_broker(leaving())
    routes.register(broker_header("broker-a", 0, "slave:1"))
    assert routes.addresses() == {"broker-a": {0: "slave:1"}}


def test_another_address_takes_an_id_unless_its_state_version_is_older(routes: Routes) -> None:
    body = topics_body("orders", "payments", state_version=2)
    routes.register(broker_header(address="old:1"), body)
    routes.register(
        broker_header(address="new:1"), topics_body("orders", "payments", state_version=1, perm=4, version=9)
    )
    assert routes.addresses() == {"broker-a": {0: "old:1"}}
    assert routes.query_broker_topic_config((CLUSTER, "new:1")) is None
    routes.register(broker_header(address="new:1"), body)
    assert routes.addresses() == {"broker-a": {0: "new:1"}}


def test_a_broker_leaves_and_the_last_one_of_a_name_takes_its_topics_along(routes: Routes) -> None:
    routes.register()
    routes.register(broker_header("broker-a", 1))
    routes.unregister_broker(leaving())
    assert routes.addresses() == {"broker-a": {1: "broker-a-1:10911"}}
    assert routes.perms() == {"broker-a": 6}
    routes.unregister_broker(leaving("broker-a", 1))
    assert routes.addresses() == {}
    assert routes.cluster_info().cluster_addr_table == {}
    assert routes.all_topic_list().topic_list == ()
    assert routes.unregister_broker(leaving()) == []


def test_an_unknown_address_takes_no_broker_along(routes: Routes) -> None:
    routes.register()
    routes.unregister_broker(leaving(address="another:1"))
    assert routes.addresses() == {"broker-a": {0: "broker-a-0:10911"}}


# -- time and connections


def test_a_silent_broker_expires_after_its_time(routes: Routes) -> None:
    here, there = object(), object()
    routes.register(channel=here, now_ms=1_000)
    routes.register(broker_header("broker-b", heartbeat_timeout_millis=10_000), channel=there, now_ms=1_000)
    assert routes.scan_not_active_broker(11_000).channels == []
    assert routes.scan_not_active_broker(11_001).channels == [there]
    assert routes.addresses().keys() == {"broker-a"}
    assert routes.scan_not_active_broker(121_000).channels == []
    assert routes.scan_not_active_broker(121_001).channels == [here]
    assert routes.addresses() == {}


def test_signs_of_life_keep_a_broker(routes: Routes) -> None:
    routes.register()
    routes.update_broker_info_update_timestamp(A0, 100_000)
    routes.update_broker_info_update_timestamp((CLUSTER, "unknown:1"), 100_000)
    assert routes.scan_not_active_broker(220_000).channels == []
    routes.register(now_ms=200_000)
    assert routes.scan_not_active_broker(320_000).channels == []


def test_a_closed_connection_takes_its_brokers_along(routes: Routes) -> None:
    first, second = object(), object()
    routes.register(channel=first)
    routes.register(broker_header("broker-b"), channel=first)
    routes.register(broker_header("broker-c"), channel=second)
    routes.channel_closed(first, 0)
    assert routes.addresses().keys() == {"broker-c"}


def test_the_old_connection_of_a_broker_that_came_back_takes_nothing_along(routes: Routes) -> None:
    first, second = object(), object()
    routes.register(channel=first)
    routes.register(channel=second)
    routes.channel_closed(first, 0)
    assert routes.addresses()


def test_an_expired_address_that_was_replaced_takes_no_broker_along(routes: Routes) -> None:
    routes.register(broker_header(address="old:1"), channel="old")
    routes.register(broker_header(address="new:1"), channel="new", now_ms=100_000)
    assert routes.scan_not_active_broker(150_000).channels == ["old"]
    assert routes.addresses() == {"broker-a": {0: "new:1"}}
    assert routes.scan_not_active_broker(150_000).channels == []


# -- brokers that are lost


def lost(routes: Routes, topic: str = "orders") -> dict[str, Mapping[int, str]]:
    """The addresses of the brokers that a route has besides."""
    route = routes.pickup_topic_route_data(topic, with_lost=True)
    found = () if route is None else route.broker_datas
    assert {one.broker_name for one in found} == {one.broker_name for one in (route.queue_datas if route else ())}
    return {one.broker_name: one.broker_addrs for one in found if one.broker_name not in routes.addresses(topic)}


def two_brokers(routes: Routes) -> None:
    """broker-a, and a master and a slave of broker-b; the channel of each is its name and id."""
    routes.register(channel="a")
    routes.register(broker_header("broker-b"), channel="b0")
    routes.register(broker_header("broker-b", 1), channel="b1")


def test_a_broker_that_is_killed_is_told_to_those_who_ask_for_lost_ones(routes: Routes) -> None:
    two_brokers(routes)
    before = routes.pickup_topic_route_data("orders")
    for channel in ("b0", "b1"):
        assert lost(routes) == {}
        routes.channel_closed(channel, 0)
    assert lost(routes) == {"broker-b": {}}
    assert before is not None
    route = routes.pickup_topic_route_data("orders", with_lost=True)
    assert route is not None
    assert route.queue_datas == before.queue_datas
    assert routes.cluster_info(with_lost=True).cluster_addr_table == {CLUSTER: ("broker-a", "broker-b")}
    assert routes.cluster_info().cluster_addr_table == {CLUSTER: ("broker-a",)}


def test_a_silent_broker_is_lost(routes: Routes) -> None:
    two_brokers(routes)
    routes.scan_not_active_broker(120_001)
    assert lost(routes) == {"broker-a": {}, "broker-b": {}}
    assert routes.pickup_topic_route_data("orders") is None
    assert set(routes.all_topic_list(with_lost=True).topic_list) == {"orders", "payments"}
    routes.scan_not_active_broker(120_001 + KEPT_MS + 1)
    assert lost(routes) == {}


def test_a_master_that_goes_on_purpose_is_not_lost(routes: Routes) -> None:
    two_brokers(routes)
    routes.unregister_broker(leaving("broker-b"))
    routes.unregister_broker(leaving("broker-b", 1))
    assert lost(routes) == {}
    routes.channel_closed("a", 0)
    routes.unregister_broker(leaving())
    assert lost(routes) == {}


@pytest.mark.parametrize("goes", ["on purpose", "without a word"])
def test_a_master_is_lost_however_its_slave_goes(routes: Routes, goes: str) -> None:
    two_brokers(routes)
    routes.channel_closed("b0", 0)
    assert routes.addresses().keys() == {"broker-a", "broker-b"}
    if goes == "on purpose":
        routes.unregister_broker(leaving("broker-b", 1))
    else:
        routes.channel_closed("b1", 0)
    assert lost(routes) == {"broker-b": {}}


def test_a_slave_that_is_back_alone_is_where_the_topics_of_its_lost_master_are(routes: Routes) -> None:
    two_brokers(routes)
    for channel in ("b0", "b1"):
        routes.channel_closed(channel, 0)
    routes.register(broker_header("broker-b", 1), channel="b1")
    assert routes.addresses().keys() == {"broker-a"}
    assert lost(routes) == {"broker-b": {1: "broker-b-1:10911"}}
    routes.register(broker_header("broker-b"), channel="b0")
    assert routes.addresses().keys() == {"broker-a", "broker-b"}
    routes.unregister_broker(leaving("broker-b"))
    routes.unregister_broker(leaving("broker-b", 1))
    assert lost(routes) == {}


def test_an_acting_master_that_leaves_does_not_end_the_loss_of_the_master() -> None:
    routes = Routes(support_acting_master=True)
    acting = broker_header("broker-a", 1, enable_acting_master=True)
    routes.register(broker_header(enable_acting_master=True), channel="a0")
    routes.register(acting, channel="a1")
    routes.channel_closed("a0", 0)
    routes.register(acting, channel="a1")
    assert routes.addresses() == {"broker-a": {0: "broker-a-1:10911"}}
    routes.unregister_broker(leaving("broker-a", 1))
    assert lost(routes) == {"broker-a": {}}


def test_an_operator_says_that_a_lost_broker_does_not_come_back(routes: Routes) -> None:
    two_brokers(routes)
    routes.channel_closed("b0", 0)
    assert routes.wipe_write_perm("broker-b") == 2
    routes.channel_closed("b1", 0)
    assert lost(routes) == {"broker-b": {}}
    assert routes.wipe_write_perm("broker-b") == 0
    assert lost(routes) == {}
    assert routes.cluster_info(with_lost=True) == routes.cluster_info()


def test_a_topic_that_is_deleted_is_not_lost(routes: Routes) -> None:
    two_brokers(routes)
    for channel in ("b0", "b1"):
        routes.channel_closed(channel, 0)
    routes.delete_topic("orders", "another")
    assert lost(routes) == {"broker-b": {}}
    routes.delete_topic("orders")
    assert (lost(routes), lost(routes, "payments")) == ({}, {"broker-b": {}})


# -- perms, topics


def test_write_perm_is_wiped_and_added(routes: Routes) -> None:
    routes.register(body=topics_body("orders", "payments", perm=7))
    routes.register(broker_header("broker-b"))
    assert routes.wipe_write_perm("broker-a") == 2
    assert routes.perms() == {"broker-a": 5, "broker-b": 6}
    routes.register(body=topics_body("orders", "payments", perm=7))
    assert routes.perms() == {"broker-a": 5, "broker-b": 6}
    assert routes.add_write_perm("broker-a") == 2
    assert routes.perms() == {"broker-a": 6, "broker-b": 6}
    assert routes.wipe_write_perm("unknown") == 0


def test_a_topic_is_registered_on_known_brokers_alone(routes: Routes) -> None:
    routes.register()
    data = QueueData("broker-a", 2, 2, 6)
    routes.register_topic("new", [data])
    assert routes.perms("new") == {"broker-a": 6}
    routes.register_topic("other", [data, QueueData("unknown", 2, 2, 6)])
    assert routes.perms("other") == {}
    routes.register_topic("none", [])
    assert routes.all_topic_list().topic_list == ("orders", "payments", "new")


def test_lists_of_topics(routes: Routes) -> None:
    routes.register(body=topics_body("unit", "u2", flag=1))
    routes.register(broker_header("broker-b", cluster_name="other"), topics_body("sub", "s2", flag=2))
    routes.register(broker_header("broker-c", cluster_name="other"), topics_body("both", "b2", flag=3))
    assert routes.topics_by_cluster("other").topic_list == ("sub", "s2", "both", "b2")
    assert routes.topics_by_cluster("unknown").topic_list == ()
    assert routes.topics_by_sys_flag(lambda flag: flag == 3).topic_list == ("both", "b2")
    system = routes.system_topic_list()
    assert set(system.topic_list) == {CLUSTER, "broker-a", "other", "broker-b", "broker-c"}
    assert system.broker_addr == "broker-a-0:10911"
    assert Routes().system_topic_list().broker_addr is None


def test_cluster_info_names_brokers_and_clusters(routes: Routes) -> None:
    routes.register(zone_name="z1")
    routes.register(broker_header("broker-b", cluster_name="other"))
    info = routes.cluster_info()
    assert info.cluster_addr_table == {CLUSTER: ("broker-a",), "other": ("broker-b",)}
    assert info.broker_addr_table["broker-a"] == BrokerData(CLUSTER, "broker-a", {0: A0[1]}, "z1", False)


def test_data_version_is_compared_by_its_three_numbers(routes: Routes) -> None:
    version = DataVersion(1, 0, 1001)
    assert routes.is_broker_topic_config_changed(A0, version)
    routes.register()
    assert not routes.is_broker_topic_config_changed(A0, DataVersion(1, 0, 1001, {"more": 1}))
    for other in (DataVersion(2, 0, 1001), DataVersion(1, 1, 1001), DataVersion(1, 0, 1002)):
        assert routes.is_broker_topic_config_changed(A0, other)
    assert routes.query_broker_topic_config(A0) == version


def test_filter_servers_are_in_the_route_until_a_registration_without_them(routes: Routes) -> None:
    routes.register(body=topics_body("orders", "payments", filter_servers=("f:1",)))
    routes.register(broker_header("broker-b"))
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.filter_server_table == {A0[1]: ("f:1",)}
    routes.register()
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.filter_server_table == {}


# -- acting master


def acting(broker_id: int, **more: Any) -> Any:
    return broker_header("broker-a", broker_id, enable_acting_master=True, **more)


def test_a_slave_that_stands_for_its_master_is_named_as_the_master_for_reading() -> None:
    routes = Routes(support_acting_master=True)
    routes.register(acting(0))
    routes.register(acting(1))
    routes.register(acting(2))
    routes.unregister_broker(leaving())
    assert routes.addresses() == {"broker-a": {0: "broker-a-1:10911", 2: "broker-a-2:10911"}}
    assert routes.perms() == {"broker-a": 4}
    routes.register(acting(1), topics_body("orders", "payments", version=2))
    assert routes.perms() == {"broker-a": 4}
    routes.register(acting(0))
    assert routes.addresses()["broker-a"][0] == "broker-a-0:10911"
    assert routes.perms() == {"broker-a": 6}


def test_without_the_key_or_for_the_topic_of_members_no_slave_is_named_as_the_master() -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    slave = {"broker-a": {1: "broker-a-1:10911"}}
    for keys, expected in (({}, slave), ({"support_acting_master": True}, {"broker-a": {0: "broker-a-1:10911"}})):
        routes = Routes(**keys)
        routes.register(acting(1), topics_body("orders", topic))
        assert routes.addresses() == expected
        assert routes.addresses(topic) == slave


def test_brokers_are_told_of_a_new_smallest_id() -> None:
    routes = Routes(notify_min_broker_id_changed=True)
    assert routes.register(acting(1)).change is None
    assert routes.register(acting(2)).change is None
    change = routes.register(acting(0)).change
    assert change is not None
    assert change.addresses == ("broker-a-1:10911", "broker-a-2:10911")
    header = change.header
    assert (header.min_broker_id, header.min_broker_addr) == (0, "broker-a-0:10911")
    assert (header.offline_broker_addr, header.ha_broker_addr) == (None, "ha-of-broker-a-0:10911")

    (change,) = routes.unregister_broker(leaving())
    assert change.addresses == ("broker-a-1:10911", "broker-a-2:10911")
    assert (change.header.min_broker_id, change.header.min_broker_addr) == (1, "broker-a-1:10911")
    assert (change.header.offline_broker_addr, change.header.ha_broker_addr) == ("broker-a-0:10911", None)
    assert routes.unregister_broker(leaving("broker-a", 2)) == []


def test_brokers_are_told_nothing_without_the_key() -> None:
    routes = Routes()
    routes.register(acting(1))
    assert routes.register(acting(0)).change is None
    assert routes.unregister_broker(leaving()) == []
