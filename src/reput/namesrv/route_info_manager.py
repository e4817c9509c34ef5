"""RouteInfoManager: brokers and topics as brokers register them, and the answers out of them (`RouteInfoManager`).

Pure: no sockets, no clock. A channel is any object that stands for a broker's connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from reput.config.namesrv import NamesrvConfig
from reput.errors import RemotingCommandError
from reput.events import Event
from reput.formats.metadata import DataVersion, TopicConfig
from reput.namesrv.lost_brokers import LostBrokers
from reput.remoting.codes import PermName, ResponseCode
from reput.remoting.namesrv_headers import (
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from reput.remoting.route_bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    RegisterBrokerBody,
    TopicList,
    TopicRouteData,
)

logger = logging.getLogger("reput.namesrv")

MASTER_ID = 0
#: A broker that names no time of its own is dropped after so long without a registration or a heartbeat.
DEFAULT_TIMEOUT_MS = 120_000
_SYNC_BROKER_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
#: Bits of `topic_sys_flag` (`TopicSysFlag`).
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2


class MinBrokerIdChange(NamedTuple):
    """Notice to the brokers of a name: the smallest id among them has changed."""

    addresses: tuple[str, ...]
    header: NotifyMinBrokerIdChangeRequestHeader


class RegisterBrokerResult(NamedTuple):
    """Answer to a broker: the addresses of a slave's master. `change`: the notice to others."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    change: MinBrokerIdChange | None = None


class Expired(NamedTuple):
    """Result of a look for silent brokers: their channels, to be closed, and the notices to others."""

    channels: list[Any]
    changes: list[MinBrokerIdChange]


class _Address(NamedTuple):
    """A broker process (`BrokerAddrInfo`)."""

    cluster: str
    address: str


@dataclass(slots=True)
class _Broker:
    """The brokers of one name: a master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False

    def data(self) -> BrokerData:
        return BrokerData(
            self.cluster, self.name, dict(sorted(self.addresses.items())), self.zone_name, self.enable_acting_master
        )


@dataclass(slots=True)
class _Live:
    """A broker process that is heard of (`BrokerLiveInfo`)."""

    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Any
    ha_server_addr: str


class RouteInfoManager:
    """All that a name server knows of brokers and topics.

    Attributes:
        config: Its keys `deleteTopicWithBrokerRegistration`, `supportActingMaster` and `notifyMinBrokerIdChanged` are
            looked at; may be replaced.
    """

    def __init__(self, config: NamesrvConfig) -> None:
        self.config = config
        self._topics: dict[str, dict[str, QueueData]] = {}  # by topic and broker name
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[_Address, _Live] = {}
        self._filter_servers: dict[_Address, tuple[str, ...]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}  # of static topics, by topic and broker name
        self._lost = LostBrokers()

    # -- brokers come

    def register_broker(
        self,
        header: RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
        *,
        zone_name: str | None = None,
        channel: Any,
        now_ms: int,
    ) -> RegisterBrokerResult:
        """Note a broker and its topics.

        Raises RemotingCommandError (SYSTEM_ERROR), with nothing changed, for a broker that is not known yet and
        registers exactly one topic: such a registration adds to a full one, which must come first.
        """
        name, broker_id, address = header.broker_name, header.broker_id, header.broker_addr
        topics = body.topic_config_serialize_wrapper
        known = self._brokers.get(name)
        if (known is None or broker_id not in known.addresses) and len(topics.topic_config_table) == 1:
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._clusters.setdefault(header.cluster_name, set()).add(name)
        broker = self._brokers.setdefault(name, _Broker(header.cluster_name, name))
        broker.enable_acting_master = bool(header.enable_acting_master)
        broker.zone_name = zone_name
        is_new_minimum = bool(broker.addresses) and broker_id < min(broker.addresses)
        for other_id in [one for one, at in broker.addresses.items() if at == address and one != broker_id]:
            del broker.addresses[other_id]  # a slave has become the master, or the other way round

        process = _Address(header.cluster_name, address)
        old_address = broker.addresses.get(broker_id)
        if old_address is not None and old_address != address:
            old = self._live.get(_Address(header.cluster_name, old_address))
            if old is not None and old.data_version.state_version > topics.data_version.state_version:
                logger.warning(
                    Event(
                        "registration ignored: another broker has its id",
                        address=address,
                        other=old_address,
                        broker=name,
                        id=broker_id,
                    )
                )
                self._live.pop(process, None)
                return RegisterBrokerResult()

        broker.addresses[broker_id] = address
        if broker_id == MASTER_ID:
            self._lost.forget(name)
        is_prime_slave = (
            header.enable_acting_master is not None and broker_id != MASTER_ID and broker_id == min(broker.addresses)
        )
        if broker_id == MASTER_ID or is_prime_slave:
            is_changed = old_address is None or self.is_broker_topic_config_changed(process, topics.data_version)
            wipes_write = is_prime_slave and broker.enable_acting_master
            self._register_topics(name, body, is_changed=is_changed, wipes_write=wipes_write)

        if process not in self._live:
            logger.info(
                Event("broker registered", address=address, broker=name, id=broker_id, cluster=header.cluster_name)
            )
        timeout_ms = header.heartbeat_timeout_millis
        self._live[process] = _Live(
            now_ms,
            DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
            topics.data_version,
            channel,
            header.ha_server_addr,
        )
        self._filter_servers.pop(process, None)
        if body.filter_server_list:
            self._filter_servers[process] = body.filter_server_list
        change = None
        if is_new_minimum and self.config.notify_min_broker_id_changed:
            change = _min_broker_id_change(broker, None, header.ha_server_addr)
        return RegisterBrokerResult(*self._master_of(broker, broker_id, header.cluster_name), change)

    def _master_of(self, broker: _Broker, broker_id: int, cluster: str) -> tuple[str | None, str | None]:
        """(HA address, address) of a slave's master."""
        master = broker.addresses.get(MASTER_ID)
        live = None if master is None or broker_id == MASTER_ID else self._live.get(_Address(cluster, master))
        return (None, None) if live is None else (live.ha_server_addr, master)

    def _register_topics(self, name: str, body: RegisterBrokerBody, *, is_changed: bool, wipes_write: bool) -> None:
        """Note the topics of a broker that writes them: the master, or the slave that stands for it."""
        wrapper = body.topic_config_serialize_wrapper
        if self.config.delete_topic_with_broker_registration and not wrapper.topic_queue_mapping_info_map:
            kept = {topic.topic_name for topic in wrapper.topic_config_table.values()}
            self._forget_topics(name, [topic for topic in self._topics if topic not in kept])
        for topic in wrapper.topic_config_table.values():
            # One that is missing here was deleted by a request; it comes back.
            if is_changed or name not in self._topics.get(topic.topic_name, ()):
                queues = self._topics.setdefault(topic.topic_name, {})
                queues[name] = _queue_data(name, topic, wipes_write=wipes_write)
        if is_changed:
            for topic_name, mapping in wrapper.topic_queue_mapping_info_map.items():
                self._mappings.setdefault(topic_name, {})[str(mapping.get("bname"))] = mapping

    def is_broker_topic_config_changed(self, process: tuple[str, str], version: DataVersion) -> bool:
        """Whether a broker, (cluster, address), has other topics than it had registered."""
        known = self.query_broker_topic_config(process)
        return known is None or _version_key(known) != _version_key(version)

    def query_broker_topic_config(self, process: tuple[str, str]) -> DataVersion | None:
        """The data version that a broker, (cluster, address), has registered; None for an unknown one."""
        live = self._live.get(_Address(*process))
        return None if live is None else live.data_version

    def update_broker_info_update_timestamp(self, process: tuple[str, str], now_ms: int) -> None:
        """Note a sign of life of a broker, (cluster, address)."""
        live = self._live.get(_Address(*process))
        if live is not None:
            live.last_update_ms = now_ms

    # -- brokers go

    def unregister_broker(self, header: UnRegisterBrokerRequestHeader) -> list[MinBrokerIdChange]:
        """Forget a broker that goes on purpose; with the last one of a name its topics.

        Returns what others are to be told.
        """
        if header.broker_id == MASTER_ID:
            self._lost.forget(header.broker_name)
        return self._remove(header)

    def _remove(self, header: UnRegisterBrokerRequestHeader) -> list[MinBrokerIdChange]:
        process = _Address(header.cluster_name, header.broker_addr)
        self._filter_servers.pop(process, None)
        if self._live.pop(process, None) is not None:
            logger.info(Event("broker unregistered", address=header.broker_addr, broker=header.broker_name))
        broker = self._brokers.get(header.broker_name)
        if broker is None:
            return []
        was_minimum = bool(broker.addresses) and header.broker_id == min(broker.addresses)
        broker.addresses = {one: at for one, at in broker.addresses.items() if at != header.broker_addr}
        if not broker.addresses:
            self._forget_broker(broker.name)
            return []
        if broker.enable_acting_master and MASTER_ID not in broker.addresses:
            self._change_perm(broker.name, lambda perm: perm & ~PermName.WRITE)
        if was_minimum and broker.enable_acting_master and self.config.notify_min_broker_id_changed:
            return [_min_broker_id_change(broker, header.broker_addr, None)]
        return []

    def _forget_broker(self, name: str) -> None:
        del self._brokers[name]
        for names in self._clusters.values():
            names.discard(name)
        self._clusters = {cluster: names for cluster, names in self._clusters.items() if names}
        self._forget_topics(name, list(self._topics))
        self._mappings = {
            topic: rest
            for topic, by_name in self._mappings.items()
            if (rest := {one: mapping for one, mapping in by_name.items() if one != name})
        }

    def channel_closed(self, channel: Any, now_ms: int) -> list[MinBrokerIdChange]:
        """Forget the brokers that have registered through a connection which has ended."""
        return self._drop([process for process, live in self._live.items() if live.channel is channel], now_ms)

    def scan_not_active_broker(self, now_ms: int) -> Expired:
        """Forget the brokers that were silent for longer than their time."""
        self._lost.expire(now_ms)
        silent = {
            process: live for process, live in self._live.items() if live.last_update_ms + live.timeout_ms < now_ms
        }
        for process, live in silent.items():
            logger.warning(Event("broker is silent", address=process.address, timeout_ms=live.timeout_ms))
        return Expired([live.channel for live in silent.values()], self._drop(silent, now_ms))

    def _drop(self, processes: Iterable[_Address], now_ms: int) -> list[MinBrokerIdChange]:
        """Forget brokers that went without a word; a master, and the last one of a name, are noted as lost."""
        changes = []
        for process in processes:
            for broker in list(self._brokers.values()):
                ids = [one for one, at in broker.addresses.items() if at == process.address]
                if ids and broker.cluster == process.cluster:
                    if MASTER_ID in ids or len(broker.addresses) == 1:
                        queues = {topic: of[broker.name] for topic, of in self._topics.items() if broker.name in of}
                        self._lost.note(broker.name, broker.cluster, queues, now_ms)
                    header = UnRegisterBrokerRequestHeader(broker.name, process.address, process.cluster, ids[0])
                    changes += self._remove(header)
            self._live.pop(process, None)  # of an address that has another broker now
            self._filter_servers.pop(process, None)
        return changes

    # -- topics

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Note queues of a topic, up to the first broker that is not known; a new topic needs all to be known."""
        found = self._topics.get(topic, {})
        for data in queue_datas:
            if data.broker_name not in self._brokers:
                logger.warning(Event("topic not registered: unknown broker", topic=topic, broker=data.broker_name))
                return
            found[data.broker_name] = data
        if found:
            self._topics[topic] = found

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or its queues in one cluster; the next changed registration of a broker brings it back."""
        self._lost.forget_topic(topic, cluster or None)
        if not cluster:
            self._topics.pop(topic, None)
        elif topic in self._topics:
            for name in self._clusters.get(cluster, ()):
                self._forget_topics(name, [topic])

    def _forget_topics(self, broker_name: str, topics: Iterable[str]) -> None:
        for topic in topics:
            queues = self._topics.get(topic, {})
            queues.pop(broker_name, None)
            if not queues:
                self._topics.pop(topic, None)

    def wipe_write_perm(self, broker_name: str, *, lost_only: bool = False) -> int:
        """Let nobody write to a broker; returns its number of topics. Lasts until the broker's topics change.

        One that is lost is forgotten: an operator says so that it does not come back. `lost_only`: that alone; a broker
        that has come back meanwhile is left as it is.
        """
        if broker_name not in self._brokers:
            self._lost.forget(broker_name)
        elif lost_only:
            return 0
        return self._change_perm(broker_name, lambda perm: perm & ~PermName.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let clients read from and write to a broker; returns its number of topics."""
        return self._change_perm(broker_name, lambda _: PermName.READ | PermName.WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            if broker_name in queues:
                queues[broker_name] = replace(queues[broker_name], perm=int(change(queues[broker_name].perm)))
                count += 1
        return count

    # -- answers

    def pickup_topic_route_data(self, topic: str, *, with_lost: bool = False) -> TopicRouteData | None:
        """The route of a topic; None if no broker has it.

        `with_lost`: with the queues of brokers that are lost, whose addresses are those of their slaves, or none.
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
                    servers = self._filter_servers.get(_Address(data.cluster, address))
                    if servers is not None:
                        filter_servers[address] = servers
        if self.config.support_acting_master and not topic.startswith(_SYNC_BROKER_MEMBER_PREFIX):
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
        """All topics; `with_lost`: with those of brokers that are lost."""
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


def _queue_data(broker_name: str, topic: TopicConfig, *, wipes_write: bool) -> QueueData:
    perm = topic.perm & ~PermName.WRITE if wipes_write else topic.perm
    return QueueData(broker_name, topic.read_queue_nums, topic.write_queue_nums, int(perm), topic.topic_sys_flag)


def _version_key(version: DataVersion) -> tuple[int, int, int]:
    return version.state_version, version.timestamp, version.counter


def _min_broker_id_change(broker: _Broker, offline: str | None, ha_address: str | None) -> MinBrokerIdChange:
    smallest = min(broker.addresses)
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=smallest,
        min_broker_addr=broker.addresses[smallest],
        offline_broker_addr=offline,
        ha_broker_addr=ha_address,
    )
    told = {one: at for one, at in broker.addresses.items() if offline or len(broker.addresses) == 1 or one != smallest}
    return MinBrokerIdChange(tuple(told.values()), header)


def _with_acting_master(data: BrokerData, queues: QueueData) -> BrokerData:
    """A broker without a master whose slaves may stand for it: the first one is named as the master, for reading."""
    addresses: Mapping[int, str] = data.broker_addrs
    if MASTER_ID in addresses or not data.enable_acting_master or queues.perm & PermName.WRITE:
        return data
    first = min(addresses)
    rest = {one: at for one, at in addresses.items() if one != first}
    return replace(data, broker_addrs={MASTER_ID: addresses[first], **rest})
