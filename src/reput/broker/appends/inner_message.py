"""MessageExtBrokerInner: a message on its way into the log, and the text of properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reput.formats.java import INT32_MAX
from reput.formats.properties import OF_BROKERS, UNIQ_KEY, decode_properties
from reput.formats.property_crc import PROPERTY_CRC32
from reput.formats.record_layout import Buffer, SysFlag, unpack_record
from reput.remoting.topic_validator import TRANS_HALF_TOPIC
from reput.service.transactional_message import half_properties
from reput.store.puts.put_rows import PutRow


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

    @classmethod
    def of_record(cls, record: Buffer) -> MessageExtBrokerInner:
        """A stored message, to be put again."""
        head, (body, body_end, topic, topic_end, properties, end) = unpack_record(record, 0)
        found = decode_properties(bytes(record[properties:end]))
        found.pop(PROPERTY_CRC32, None)  # of the other record
        return cls(
            bytes(record[topic:topic_end]).decode(errors="replace"), head[3], bytes(record[body:body_end]), found,
            head[4], head[7], head[8], head[9], head[12], head[13],
        )  # fmt: skip

    def count_attempt(self) -> None:
        """Count one more attempt of a consumer; producers set the number, too, so it may be all that a record holds."""
        self.reconsume_times = min(self.reconsume_times + 1, INT32_MAX)

    def become_half(self) -> None:
        """Go where no consumer sees it until its transaction ends (`parseHalfMessageInner`)."""
        unique_key = self.properties.get(UNIQ_KEY, "")
        self.properties = half_properties(self.properties, self.topic, self.queue_id, unique_key)
        self.topic, self.queue_id = TRANS_HALF_TOPIC, 0
        self.sys_flag &= ~SysFlag.TRANSACTION_MASK

    def row(self) -> PutRow:
        """The row of the store."""
        return PutRow(
            self.topic, self.queue_id, self.body, write_properties(self.properties), self.flag, self.sys_flag,
            self.born_timestamp, self.born_host, self.reconsume_times, self.prepared_transaction_offset, self.is_batch,
        )  # fmt: skip


def read_properties(text: str) -> dict[str, str]:
    """Properties by name, in their order (`MessageDecoder.string2messageProperties`)."""
    properties = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def sent_properties(text: str | None) -> dict[str, str]:
    """The properties that a client sends, without those that only brokers write."""
    return {name: value for name, value in read_properties(text or "").items() if name not in OF_BROKERS}


def write_properties(properties: Mapping[str, str]) -> bytes:
    """The text of properties, in their order (`MessageDecoder.messageProperties2String`)."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode("utf-8", "replace")
