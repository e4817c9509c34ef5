"""Brokers that come, stay silent and go, beside a model that keeps a list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reput.config.namesrv import NamesrvConfig
from reput.namesrv.lost_brokers import KEPT_MS
from reput.namesrv.route_info_manager import DEFAULT_TIMEOUT_MS, RouteInfoManager
from tests.support.examples import examples
from tests.support.namesrv import CLUSTER, broker_header, leaving, topics_body

NAMES = st.sampled_from(["broker-a", "broker-b", "broker-c"])
IDS = st.integers(0, 2)
TOPICS = st.sets(st.sampled_from(["t1", "t2", "t3", "t4"]), min_size=2)


@dataclass
class Process:
    """A broker that is alive."""

    channel: int
    last_ms: int
    version: int


class NamesrvModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteInfoManager(NamesrvConfig())
        self.now_ms = 0
        self.alive: dict[tuple[str, int], Process] = {}
        self.topics: dict[str, set[str]] = {}  # by broker name
        self.lost: dict[str, tuple[int, set[str]]] = {}  # when, and the topics, by broker name

    @rule(name=NAMES, broker_id=IDS, topics=TOPICS, version=st.integers(1, 3), channel=st.integers(0, 4))
    def register(self, name: str, broker_id: int, topics: set[str], version: int, channel: int) -> None:
        self.routes.register_broker(
            broker_header(name, broker_id), topics_body(*topics, version=version), channel=channel, now_ms=self.now_ms
        )
        self.alive[name, broker_id] = Process(channel, self.now_ms, version)
        if broker_id == 0:
            self.topics.setdefault(name, set()).update(topics)
            self.lost.pop(name, None)

    @rule(name=NAMES, broker_id=IDS)
    def unregister(self, name: str, broker_id: int) -> None:
        self.routes.unregister_broker(leaving(name, broker_id))
        if broker_id == 0:
            self.lost.pop(name, None)
        self.gone([(name, broker_id)])

    @rule(name=NAMES, broker_id=IDS)
    def heartbeat(self, name: str, broker_id: int) -> None:
        address = broker_header(name, broker_id).broker_addr
        self.routes.update_broker_info_update_timestamp((CLUSTER, address), self.now_ms)
        if (name, broker_id) in self.alive:
            self.alive[name, broker_id].last_ms = self.now_ms

    @rule(milliseconds=st.sampled_from([1, 40_000, DEFAULT_TIMEOUT_MS, DEFAULT_TIMEOUT_MS + 1, KEPT_MS]))
    def scan(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.lost = {name: one for name, one in self.lost.items() if self.now_ms - one[0] <= KEPT_MS}
        expired = [who for who, one in self.alive.items() if self.now_ms - one.last_ms > DEFAULT_TIMEOUT_MS]
        found = self.routes.scan_not_active_broker(self.now_ms).channels
        assert sorted(found) == sorted(self.alive[who].channel for who in expired)
        self.lose(expired)

    @rule(channel=st.integers(0, 4))
    def close(self, channel: int) -> None:
        self.routes.channel_closed(channel, self.now_ms)
        self.lose([who for who, one in self.alive.items() if one.channel == channel])

    @rule(name=NAMES)
    def wipe_write_perm(self, name: str) -> None:
        self.routes.wipe_write_perm(name)
        if name not in {one for one, _ in self.alive}:
            self.lost.pop(name, None)

    @rule(topic=st.sampled_from(["t1", "t2"]))
    def delete_topic(self, topic: str) -> None:
        self.routes.delete_topic(topic)
        for topics in (*self.topics.values(), *(lost for _, lost in self.lost.values())):
            topics.discard(topic)

    def lose(self, brokers: list[tuple[str, int]]) -> None:
        for name, broker_id in brokers:
            if broker_id == 0 or [one for one, _ in self.alive].count(name) == 1:
                topics = self.topics.get(name) or self.lost.get(name, (0, set()))[1]
                self.lost[name] = self.now_ms, set(topics)
            self.gone([(name, broker_id)])

    def gone(self, brokers: list[tuple[str, int]]) -> None:
        for who in brokers:
            self.alive.pop(who, None)
        left = {name for name, _ in self.alive}
        self.topics = {name: topics for name, topics in self.topics.items() if name in left}

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        names: dict[str, dict[int, Any]] = {}
        for name, broker_id in self.alive:
            names.setdefault(name, {})[broker_id] = broker_header(name, broker_id).broker_addr
        info = self.routes.cluster_info()
        assert {name: one.broker_addrs for name, one in info.broker_addr_table.items()} == names
        assert info.cluster_addr_table == ({CLUSTER: tuple(sorted(names))} if names else {})
        known = self.routes.cluster_info(with_lost=True).broker_addr_table
        assert {name: one.broker_addrs for name, one in known.items()} == {name: {} for name in self.lost} | names
        for topic in ("t1", "t2", "t3", "t4"):
            having = {name for name, topics in self.topics.items() if topic in topics}
            route = self.routes.pickup_topic_route_data(topic)
            found = set() if route is None else {one.broker_name for one in route.broker_datas}
            assert found == having
            assert (topic in self.routes.all_topic_list().topic_list) == bool(having)
            having |= {name for name, (_, topics) in self.lost.items() if topic in topics}
            route = self.routes.pickup_topic_route_data(topic, with_lost=True)
            addresses = {} if route is None else {one.broker_name: one.broker_addrs for one in route.broker_datas}
            assert addresses == {name: names.get(name, {}) for name in having}
            assert (topic in self.routes.all_topic_list(with_lost=True).topic_list) == bool(having)


NamesrvModel.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestNamesrvModel = NamesrvModel.TestCase
