"""RouteInfoManager: brokers and topics as brokers register them, and as they go (`RouteInfoManager`).

Pure: no sockets, no clock. A channel is any object that stands for a broker's connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from reput.errors import RemotingCommandError
from reput.events import Event
from reput.formats.metadata import DataVersion, TopicConfig
from reput.namesrv.route_tables import MASTER_ID, BrokerAddrInfo, BrokerLiveInfo, NamedBrokers, RouteTables
from reput.remoting.codes import PermName, ResponseCode
from reput.remoting.namesrv_headers import (
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from reput.remoting.route_bodies import (
    QueueData,
    RegisterBrokerBody,
)

logger = logging.getLogger("reput.namesrv")

#: A broker that names no time of its own is dropped after so long without a registration or a heartbeat.
DEFAULT_TIMEOUT_MS = 120_000
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


class RouteInfoManager(RouteTables):
    """All that a name server knows of brokers and topics, and what brokers and operators change of it."""

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
        broker = self._brokers.setdefault(name, NamedBrokers(header.cluster_name, name))
        broker.enable_acting_master = bool(header.enable_acting_master)
        broker.zone_name = zone_name
        is_new_minimum = bool(broker.addresses) and broker_id < min(broker.addresses)
        for other_id in [one for one, at in broker.addresses.items() if at == address and one != broker_id]:
            del broker.addresses[other_id]  # a slave has become the master, or the other way round

        process = BrokerAddrInfo(header.cluster_name, address)
        old_address = broker.addresses.get(broker_id)
        if old_address is not None and old_address != address:
            old = self._live.get(BrokerAddrInfo(header.cluster_name, old_address))
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
        self._live[process] = BrokerLiveInfo(
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

    def _master_of(self, broker: NamedBrokers, broker_id: int, cluster: str) -> tuple[str | None, str | None]:
        """(HA address, address) of a slave's master."""
        master = broker.addresses.get(MASTER_ID)
        live = None if master is None or broker_id == MASTER_ID else self._live.get(BrokerAddrInfo(cluster, master))
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
        live = self._live.get(BrokerAddrInfo(*process))
        return None if live is None else live.data_version

    def update_broker_info_update_timestamp(self, process: tuple[str, str], now_ms: int) -> None:
        """Note a sign of life of a broker, (cluster, address)."""
        live = self._live.get(BrokerAddrInfo(*process))
        if live is not None:
            live.last_update_ms = now_ms

    # -- brokers go

    def unregister_broker(self, header: UnRegisterBrokerRequestHeader) -> list[MinBrokerIdChange]:
        """Forget a broker that goes on purpose; with the last one of a name its topics.

        Returns what others are to hear.
        """
        if header.broker_id == MASTER_ID:
            self._lost.forget(header.broker_name)
        return self._remove(header)

    def _remove(self, header: UnRegisterBrokerRequestHeader) -> list[MinBrokerIdChange]:
        process = BrokerAddrInfo(header.cluster_name, header.broker_addr)
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

    def _drop(self, processes: Iterable[BrokerAddrInfo], now_ms: int) -> list[MinBrokerIdChange]:
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


def _queue_data(broker_name: str, topic: TopicConfig, *, wipes_write: bool) -> QueueData:
    perm = topic.perm & ~PermName.WRITE if wipes_write else topic.perm
    return QueueData(broker_name, topic.read_queue_nums, topic.write_queue_nums, int(perm), topic.topic_sys_flag)


def _version_key(version: DataVersion) -> tuple[int, int, int]:
    return version.state_version, version.timestamp, version.counter


def _min_broker_id_change(broker: NamedBrokers, offline: str | None, ha_address: str | None) -> MinBrokerIdChange:
    smallest = min(broker.addresses)
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=smallest,
        min_broker_addr=broker.addresses[smallest],
        offline_broker_addr=offline,
        ha_broker_addr=ha_address,
    )
    told = {one: at for one, at in broker.addresses.items() if offline or len(broker.addresses) == 1 or one != smallest}
    return MinBrokerIdChange(tuple(told.values()), header)
