"""Messages of a retry topic as a pop gives them: with the topic that was asked for, and their handle."""

from __future__ import annotations

from reput.broker.appends.inner_message import read_properties, write_properties
from reput.formats.properties import POP_CK
from reput.formats.property_crc import PROPERTY_CRC32
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, encode_topic, pack_record, unpack_record
from reput.remoting.extra_info import ExtraInfo, build_extra_info


def recoded(records: bytes, topic: str, real_topic: str, info: ExtraInfo) -> bytes:
    """Records, each encoded again (`PopMessageProcessor.recodeRetryMessage`).

    Properties that have no room for a handle go without: a client makes it of the answer's other texts then.

    Args:
        records: As stored, one after the other.
        topic: The topic that they get.
        real_topic: The one that they have.
        info: Words of their handles.
    """
    found, position = [], 0
    magic, name = encode_topic(topic)
    while position < len(records):
        head, bounds = unpack_record(records, position)
        properties = read_properties(records[bounds[4] : bounds[5]].decode("utf-8", "replace"))
        properties.pop(PROPERTY_CRC32, None)  # of the other record
        handle = properties.get(POP_CK) or build_extra_info(info, real_topic, head[3], head[5])
        text = write_properties(properties | {POP_CK: handle})
        if len(text) > MAX_PROPERTIES_SIZE:
            text = write_properties(properties)
        found.append(
            pack_record(
                magic, head[2], head[3], head[4], head[5], head[6], head[7], head[8], head[9], head[10], head[11],
                head[12], head[13], records[bounds[0] : bounds[1]], name, text,
            )
        )  # fmt: skip
        position += head[0]
    return b"".join(found)
