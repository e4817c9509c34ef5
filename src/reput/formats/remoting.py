"""Frames of the network protocol: their sizes and flags, and the header of a send (docs/formats/remoting.md)."""

from __future__ import annotations

import struct

from reput.formats.field import Field, positions, struct_format

#: Bytes of the largest frame, its length word counted (`com.rocketmq.remoting.frameMaxLength`).
MAX_FRAME_SIZE = 16_777_216
#: The length word and the header word.
FRAME_HEAD = struct.Struct(">iI")
FRAME_HEAD_SIZE = FRAME_HEAD.size
LENGTH_SIZE = 4
#: The header word: size of the header, and above it how the header is written.
HEADER_SIZE_MASK = 0xFFFFFF
TYPE_SHIFT = 24

#: Bits of `flag`.
RESPONSE_FLAG, ONE_WAY_FLAG = 1, 2

#: What a binary header begins with; remark and fields follow.
BINARY_HEAD_FIELDS: tuple[Field, ...] = (
    Field("code", "h", 2, "of the request or the answer, 16 bits of it"),
    Field("language", "B", 1, "of the sender"),
    Field("version", "h", 2, "of the sender"),
    Field("opaque", "i", 4, "number by which an answer finds its request"),
    Field("flag", "i", 4, "bit 0: an answer; bit 1: one-way"),
    Field("remark", "i", 4, "bytes of the remark"),
)
BINARY_HEAD = struct.Struct(struct_format(BINARY_HEAD_FIELDS))
BINARY_HEAD_POSITIONS = positions(BINARY_HEAD_FIELDS)
#: Of a binary header, after its remark: bytes of all fields; then of each field the bytes of its name and of its value.
FIELDS_LENGTH_SIZE, NAME_LENGTH_SIZE, VALUE_LENGTH_SIZE = 4, 2, 4

#: Codes of the requests that send; the others are in `remoting.codes`.
SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = 10, 310, 320
#: Names of the fields of SEND_MESSAGE, and the letter of each in the other two (`SendMessageRequestHeaderV2`).
SEND_FIELDS = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
)  # fmt: skip
SEND_LETTERS = "abcdefghijklmn"
#: The version from which on clients say how often a group consumes a message (`MQVersion.V3_4_9`).
V3_4_9 = 121
#: The code of a message that a consumer sends back, and the names of its fields that a broker reads.
CONSUMER_SEND_MSG_BACK = 36
SEND_BACK_FIELDS = "offset", "group", "delayLevel", "unitMode", "maxReconsumeTimes"
