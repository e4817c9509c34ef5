"""Options of the format `reput` with `namesrv`: named as in Spark's Kafka source if it has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reput.client.instance.name_servers import name_server_addresses
from reput.client.instance.session_credentials import SessionCredentials
from reput.config.properties import camel_case
from reput.config.tls import TlsConfig
from reput.errors import ConfigError
from reput.remoting.queue_tables import QueueKey
from reput.spark.options import (
    NAMESRV,
    OptionTable,
    boolean_of_text,
    count_of_text,
    list_of_text,
    option_values,
    time_of_text,
)
from reput.spark.wire.wire_offset import queues_of_json
from reput.transport.tls import ClientTls

EARLIEST, LATEST = "earliest", "latest"
#: In `startingOffsets` and `endingOffsets` by queue, as in the Kafka source.
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1

#: A word for all queues, or an offset for each.
Offsets = str | Mapping[QueueKey, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAccess:
    """Access to name servers and brokers.

    Attributes:
        namesrv: `namesrv`, "host:port" of the name servers, separated by `;`.
        credentials: `accessKey`, `secretKey` and `securityToken`: sign each request.
        tls: `tls.enable` and `tls.client.*`, RocketMQ's keys; the files are read on each machine of Spark's.
    """

    namesrv: tuple[str, ...]
    credentials: SessionCredentials | None = None
    tls: ClientTls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReadOptions:
    """Options of `spark.read` and `spark.readStream`.

    Attributes:
        access: See `WireAccess`.
        subscribe: `subscribe`, topics, comma separated or a JSON list; None with `subscribe_pattern`.
        subscribe_pattern: `subscribePattern`, a regular expression that whole names of topics match.
        starting_offsets: `startingOffsets`: earliest, latest, or by topic and queue: {"orders": {"broker-a:0": 5}},
            where -2 is earliest and -1 is latest. Default: earliest; of a stream, too.
        ending_offsets: `endingOffsets` of a batch, in the same form. Default: latest.
        starting_timestamp: `startingTimestamp`: messages that were stored then or later.
        ending_timestamp: `endingTimestamp` of a batch: messages that were stored before.
        min_partitions: `minPartitions`: the fewest tasks, as far as there are messages; None: one for each queue.
        max_records_per_partition: `maxRecordsPerPartition`: the most messages of a task.
        max_offsets_per_trigger: `maxOffsetsPerTrigger` of a stream: the most messages of a batch.
        fail_on_data_loss: `failOnDataLoss`, false: go on, with a warning, if messages that were planned are gone.
        group: `group`: pull as this group; a stream keeps its progress there, for monitors.
        raw_body: `rawBody`, bodies as they are stored.
        push_filters: `pushFilters` of a batch, as of a directory.
    """

    access: WireAccess
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: re.Pattern[str] | None = None
    starting_offsets: Offsets = EARLIEST
    ending_offsets: Offsets = LATEST
    starting_timestamp: datetime | int | None = None
    ending_timestamp: datetime | int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    group: str | None = None
    raw_body: bool = False
    push_filters: bool = False

    def subscribes(self, topic: str) -> bool:
        """Whether a topic is read, by its name."""
        if self.subscribe_pattern is not None:
            return self.subscribe_pattern.fullmatch(topic) is not None
        return topic in (self.subscribe or ())


def read_options(options: Mapping[str, str]) -> WireReadOptions:
    """Parse the options of a batch. Raises ConfigError for unknown and wrong ones, and for pairs that cannot be."""
    return _read_options(options, {**_READ, **_BATCH})


def stream_options(options: Mapping[str, str]) -> WireReadOptions:
    """Parse the options of a stream; errors as of `read_options`."""
    return _read_options(options, {**_READ, **_STREAM})


def with_access(options: Mapping[str, str], own: OptionTable) -> tuple[WireAccess, dict[str, Any]]:
    """The access that options give, and the values of the others by their fields; errors as of `read_options`."""
    values = option_values(options, {**_ACCESS, **own})
    tls = {name: values.pop(name) for name in list(values) if name.startswith("tls")}
    keys = [values.pop(name, None) for name in ("access_key", "secret_key", "security_token")]
    if (keys[0] is None) != (keys[1] is None):
        raise ConfigError("options accessKey and secretKey: give both, or neither")
    credentials = None if keys[0] is None else SessionCredentials(*keys)
    access = WireAccess(
        namesrv=values.pop("namesrv"), credentials=credentials, tls=ClientTls.of(TlsConfig.from_mapping(tls))
    )
    return access, values


def _read_options(options: Mapping[str, str], table: OptionTable) -> WireReadOptions:
    access, values = with_access(options, table)
    if ("subscribe" in values) == ("subscribe_pattern" in values):
        raise ConfigError("options subscribe and subscribePattern: give one of the two, to say which topics are read")
    for one, other in (("starting_offsets", "starting_timestamp"), ("ending_offsets", "ending_timestamp")):
        if one in values and other in values:
            raise ConfigError(f"options {camel_case(one)} and {camel_case(other)}: give one of the two")
    return WireReadOptions(access=access, **values)


def _addresses_of_text(text: str) -> tuple[str, ...]:
    try:
        return name_server_addresses(text)
    except ConfigError as error:
        raise ValueError(f"no list of name servers: {error}") from None


def _offsets_of_text(text: str) -> Offsets:
    if not text.startswith("{"):
        if text.lower() not in (EARLIEST, LATEST):
            raise ValueError('neither earliest, latest, nor offsets such as {"orders": {"broker-a:0": 5}}')
        return text.lower()
    try:
        offsets = queues_of_json(json.loads(text))
    except (json.JSONDecodeError, ConfigError) as error:
        raise ValueError(f'no offsets such as {{"orders": {{"broker-a:0": 5}}}}: {error}') from None
    if not all(type(offset) is int and offset >= EARLIEST_OFFSET for offset in offsets.values()):
        raise ValueError("with another offset than a number, -1 for latest, or -2 for earliest")
    return offsets


def _topics_of_text(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic for topic in list_of_text(text) if topic))
    if not topics:
        raise ValueError("no topic")
    return topics


def _pattern_of_text(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None


def text_of(text: str) -> str:
    """A text that is not empty."""
    if not text:
        raise ValueError("empty")
    return text


_TLS = ("tls_enable", "tls_client_auth_server", "tls_client_trust_cert_path", "tls_client_cert_path",
        "tls_client_key_path", "tls_client_key_password")  # fmt: skip
_ACCESS: OptionTable = {
    NAMESRV: ("namesrv", _addresses_of_text),
    "accessKey": ("access_key", str),
    "secretKey": ("secret_key", str),
    "securityToken": ("security_token", str),
    **{camel_case(name): (name, str) for name in _TLS},
}
_READ: OptionTable = {
    "subscribe": ("subscribe", _topics_of_text),
    "subscribePattern": ("subscribe_pattern", _pattern_of_text),
    "startingOffsets": ("starting_offsets", _offsets_of_text),
    "startingTimestamp": ("starting_timestamp", time_of_text),
    "minPartitions": ("min_partitions", count_of_text),
    "maxRecordsPerPartition": ("max_records_per_partition", count_of_text),
    "failOnDataLoss": ("fail_on_data_loss", boolean_of_text),
    "group": ("group", text_of),
    "rawBody": ("raw_body", boolean_of_text),
}
_BATCH: OptionTable = {
    "endingOffsets": ("ending_offsets", _offsets_of_text),
    "endingTimestamp": ("ending_timestamp", time_of_text),
    "pushFilters": ("push_filters", boolean_of_text),
}
_STREAM: OptionTable = {"maxOffsetsPerTrigger": ("max_offsets_per_trigger", count_of_text)}
