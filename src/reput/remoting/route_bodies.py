"""Bodies that a name server sends and takes: routes, clusters, registrations."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reput.errors import RemotingCommandError
from reput.formats.metadata import DataVersion, TopicConfig
from reput.formats.remoting import MAX_FRAME_SIZE
from reput.remoting.body import decode_body, decode_json, decode_value, encode_body
from reput.remoting.body_bounds import LARGE_BODY
from reput.remoting.codes import ResponseCode

#: A compressed registration may grow to what a plain one may have: 100 000 topics take 10 MiB.
_MOST_BYTES = MAX_FRAME_SIZE
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic on one broker."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The addresses of a broker name: "ip:port" by broker id, 0 for the master."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """Route of a topic: its queues and their brokers (GET_ROUTEINFO_BY_TOPIC)."""

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: Mapping[str, Any] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: Mapping[str, Any] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The brokers of all clusters, by broker name, and the broker names of each cluster."""

    broker_addr_table: Mapping[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerMemberGroup:
    """The addresses of a broker name: "ip:port" by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetBrokerMemberGroupResponseBody:
    """Answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicList:
    """Names of topics."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KVTable:
    """Values by key."""

    table: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConfigSerializeWrapper:
    """The topics of a broker in a registration, and the number of their changes."""

    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_info_map: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """Topics that a broker registers (REGISTER_BROKER)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)
    filter_server_list: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


def encode_register_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """The body of REGISTER_BROKER (`RegisterBrokerBody.encode`); compressed in the form of 5.x."""
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    texts = [encode_topic_config(topic).encode() for topic in wrapper.topic_config_table.values()]
    mappings = [encode_body(one) for one in wrapper.topic_queue_mapping_info_map.values()]
    parts = [
        _with_size(encode_body(wrapper.data_version)),
        _INT.pack(len(texts)),
        *map(_with_size, texts),
        _with_size(encode_body(list(body.filter_server_list))),
        _INT.pack(len(mappings)),
        *map(_with_size, mappings),
    ]
    return zlib.compress(b"".join(parts))


def decode_register_body(body: bytes, *, compressed: bool = False) -> RegisterBrokerBody:
    """Decode the body of a registration; an empty body registers no topic.

    Raises RemotingCommandError (SYSTEM_ERROR) if the body is none.
    """
    if not body:
        return RegisterBrokerBody()
    if not compressed:
        return decode_value(RegisterBrokerBody, decode_json(body, is_beside=len(body) > LARGE_BODY))
    try:
        return _decode_compressed(_Reader(_decompress(body)))
    except (struct.error, zlib.error, ValueError) as error:
        remark = f"RegisterBrokerBody: the compressed body is none: {error}"
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark) from None


def encode_topic_config(topic: TopicConfig) -> str:
    """A topic as one text (`TopicConfig.encode`): name, read and write queues, perm, filter type, attributes."""
    attributes = json.dumps(dict(topic.attributes), ensure_ascii=False, separators=(",", ":"))
    numbers = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    return f"{topic.topic_name} {numbers} {topic.topic_filter_type} {attributes}"


def decode_topic_config(text: str) -> TopicConfig:
    """A topic from one text; that of 4.x lacks the attributes.

    Raises ValueError if parts are missing, RemotingCommandError (SYSTEM_ERROR) if they are of another type.
    """
    name, read, write, perm, kind, *rest = text.split(" ", 5)
    parts = {
        "topicName": name, "readQueueNums": int(read), "writeQueueNums": int(write), "perm": int(perm),
        "topicFilterType": kind, "attributes": decode_json(rest[0].encode()) if rest and rest[0] else None,
    }  # fmt: skip
    return decode_value(TopicConfig, parts)


def _with_size(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _decompress(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    data = stream.decompress(body, _MOST_BYTES)
    if not stream.eof:
        raise ValueError(f"it is cut short, or more than {_MOST_BYTES} bytes decompressed")
    return data


class _Reader:
    """Takes numbers, and bytes with their size in front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._position)
        self._position += _INT.size
        return int(value)

    def sized(self) -> bytes:
        size = self.number()
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes at {self._position} of {len(self._data)}")
        data, self._position = self._data[self._position : end], end
        return data

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)


def _decode_compressed(reader: _Reader) -> RegisterBrokerBody:
    version = decode_body(DataVersion, reader.sized())
    topics = [decode_topic_config(reader.sized().decode()) for _ in range(reader.number())]
    filters = decode_json(reader.sized())
    mappings: dict[str, Any] = {}
    if not reader.is_at_end:
        for _ in range(reader.number()):
            one = decode_json(reader.sized())
            if not isinstance(one, dict) or not isinstance(one.get("topic"), str):
                raise ValueError("a mapping of queues without a topic")
            mappings[one["topic"]] = one
    wrapper = TopicConfigSerializeWrapper({topic.topic_name: topic for topic in topics}, version, mappings)
    names = decode_value(RegisterBrokerBody, {"filterServerList": filters}).filter_server_list
    return RegisterBrokerBody(wrapper, names)
