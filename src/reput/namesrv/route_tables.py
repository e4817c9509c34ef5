"""RouteTables: the brokers and topics that a name server knows, and the answers out of them.

Pure: no sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from reput.config.namesrv import NamesrvConfig
from reput.formats.metadata import DataVersion
from reput.namesrv.lost_brokers import LostBrokers
from reput.remoting.codes import PermName
from reput.remoting.route_bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from reput.remoting.topic_validator import SYNC_BROKER_MEMBER_PREFIX

MASTER_ID = 0


class BrokerAddrInfo(NamedTuple):
    """A broker process (`BrokerAddrInfo`)."""

    cluster: str
    address: str


@dataclass(slots=True)
class NamedBrokers:
    """The brokers of one name: a master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False

    def data(self) -> BrokerData:
        """The brokers as answers have them."""
        return BrokerData(
            self.cluster, self.name, dict(sorted(self.addresses.items())), self.zone_name, self.enable_acting_master
        )


@dataclass(slots=True)
class BrokerLiveInfo:
    """A broker process that is heard of (`BrokerLiveInfo`)."""

    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Any
    ha_server_addr: str


class RouteTables:
    """Brokers and topics by their names, as `RouteInfoManager` keeps them, and what clients ask of them.

    Attributes:
        config: Its keys `deleteTopicWithBrokerRegistration`, `supportActingMaster` and `notifyMinBrokerIdChanged` are
            looked at; may be replaced.
    """

    def __init__(self, config: NamesrvConfig) -> None:
        self.config = config
        self._topics: dict[str, dict[str, QueueData]] = {}  # by topic and broker name
        self._brokers: dict[str, NamedBrokers] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self._filter_servers: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}  # of static topics, by topic and broker name
        self._lost = LostBrokers()

    def pickup_topic_route_data(self, topic: str, *, with_lost: bool = False) -> TopicRouteData | None:
        """The route of a topic; None if no broker has it.

        `with_lost`: with the queues of brokers that are lost, whose addresses are their slaves', or none.
        """
        queues = self._topics.get(topic, {})
        if with_lost:
            queues = {**self._lost.queues(topic), **queues}
        lost = self._lost.brokers() if with_lost else {}
        datas = tuple(
            self._brokers[name].data() if name in self._brokers else lost[name]
            for name in sorted(queues)
            if name in self._brokers or name in lost
        )
        if not datas:
            return None
        filter_servers = {}
        if self._filter_servers:
            for data in datas:
                for address in data.broker_addrs.values():
                    servers = self._filter_servers.get(BrokerAddrInfo(data.cluster, address))
                    if servers is not None:
                        filter_servers[address] = servers
        if self.config.support_acting_master and not topic.startswith(SYNC_BROKER_MEMBER_PREFIX):
            datas = tuple(_with_acting_master(data, queues[data.broker_name]) for data in datas)
        queue_datas = tuple(queues[name] for name in sorted(queues))
        return TopicRouteData(
            queue_datas, datas, filter_servers, topic_queue_mapping_by_broker=self._mappings.get(topic)
        )

    def cluster_info(self, *, with_lost: bool = False) -> ClusterInfo:
        """All brokers and clusters; `with_lost`: with brokers that are lost, without addresses."""
        brokers = self._lost.brokers() if with_lost else {}
        brokers |= {name: broker.data() for name, broker in self._brokers.items()}
        clusters = {cluster: set(names) for cluster, names in self._clusters.items()}
        for name in brokers.keys() - self._brokers.keys():
            clusters.setdefault(brokers[name].cluster, set()).add(name)
        return ClusterInfo(
            dict(sorted(brokers.items())), {name: tuple(sorted(one)) for name, one in sorted(clusters.items())}
        )

    def broker_member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The addresses of a broker name; none for an unknown one."""
        broker = self._brokers.get(broker_name)
        addresses = {} if broker is None else dict(sorted(broker.addresses.items()))
        return BrokerMemberGroup(cluster, broker_name, addresses)

    def all_topic_list(self, *, with_lost: bool = False) -> TopicList:
        """All topics; `with_lost`: with topics of brokers that are lost."""
        return TopicList(tuple(dict.fromkeys((*self._topics, *(self._lost.topics() if with_lost else ())))))

    def system_topic_list(self, *, with_lost: bool = False) -> TopicList:
        """The names of clusters and brokers, which are topics, too; with the address of one broker."""
        names = dict.fromkeys(
            name for cluster, brokers in self._clusters.items() for name in (cluster, *sorted(brokers))
        )
        for name, data in self._lost.brokers().items() if with_lost else ():
            names |= {data.cluster: None, name: None}
        first = next(iter(self._brokers.values()), None)
        return TopicList(tuple(names), None if first is None else first.addresses[min(first.addresses)])

    def topics_by_cluster(self, cluster: str) -> TopicList:
        """The topics that a cluster's brokers have."""
        names = self._clusters.get(cluster, set())
        return TopicList(tuple(topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)))

    def topics_by_sys_flag(self, matches: Callable[[int], bool]) -> TopicList:
        """The topics whose `topic_sys_flag` matches, on the first of their brokers."""
        return TopicList(
            tuple(
                topic for topic, queues in self._topics.items() if matches(next(iter(queues.values())).topic_sys_flag)
            )
        )


def _with_acting_master(data: BrokerData, queues: QueueData) -> BrokerData:
    """A broker without a master whose slaves may stand for it: the first one is named as the master, for reading."""
    addresses: Mapping[int, str] = data.broker_addrs
    if MASTER_ID in addresses or not data.enable_acting_master or queues.perm & PermName.WRITE:
        return data
    first = min(addresses)
    rest = {one: at for one, at in addresses.items() if one != first}
    return replace(data, broker_addrs={MASTER_ID: addresses[first], **rest})
