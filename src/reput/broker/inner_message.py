"""MessageExtBrokerInner: a message on its way into the log, and the text of properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reput.formats.record_layout import Buffer, unpack_record
from reput.store.put_rows import PutRow


@dataclass(slots=True)
class MessageExtBrokerInner:
    """A message, or a batch for one queue, before it is put (RocketMQ's class of the same name).

    Attributes:
        properties: By name, in their order; of a batch: what is added to each of its messages.
        born_timestamp: ms since 1970 UTC.
        born_host: 8 or 20 bytes (`encode_host`).
        is_batch: The body holds messages (`encode_batch`).
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    is_batch: bool = False

    def row(self) -> PutRow:
        """The row of the store."""
        return PutRow(
            self.topic, self.queue_id, self.body, write_properties(self.properties), self.flag, self.sys_flag,
            self.born_timestamp, self.born_host, self.reconsume_times, self.prepared_transaction_offset, self.is_batch,
        )  # fmt: skip


def inner_message(record: bytes) -> MessageExtBrokerInner:
    """The message of a whole record, as it would be put again."""
    head, bounds = unpack_record(record, 0)
    body, topic, properties = (record[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))
    return MessageExtBrokerInner(
        topic.decode("utf-8", "replace"), head[3], body, read_properties(properties.decode("utf-8", "replace")),
        head[4], head[7], head[8], head[9], head[12], head[13],
    )  # fmt: skip


def read_properties(text: str) -> dict[str, str]:
    """Properties by name, in their order (`MessageDecoder.string2messageProperties`)."""
    properties = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def write_properties(properties: Mapping[str, str]) -> bytes:
    """The text of properties, in their order (`MessageDecoder.messageProperties2String`)."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode("utf-8", "replace")
