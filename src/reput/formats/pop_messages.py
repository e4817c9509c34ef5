"""Check points and acks of POP: the JSON bodies of the messages in the revive topic (docs/formats/pop.md).

A check point says which messages of a queue were handed out, and until when nobody else gets them; an ack, that some
of them are consumed. RocketMQ's classes are `PopCheckPoint`, `AckMsg` and `BatchAckMsg`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from reput.errors import CorruptMetadataError
from reput.formats.fastjson import decode_fastjson
from reput.formats.java import INT64_MAX, INT64_MIN

#: Tags of the messages.
CK_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
#: A check point is due by so much before its acks.
ACK_TIME_INTERVAL_MS = 1000
#: The consumer group of the revive topic: its offset is that of the last check point done.
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
#: Messages of one check point: their number is an int8, their acks an int32 of bits.
MOST_MESSAGES = 32

#: How the body of an ack of one message begins, as fastjson writes it.
_ACK_BEGIN = b'{"ao":'
_MOST_DIGITS, _ZERO = 18, ord("0")
#: Bytes of a body whose key may be remembered.
_LONGEST_KNOWN = 1024

#: A name as JSON; each check point and ack has the same three.
_dumps = lru_cache(4096)(json.JSONEncoder(ensure_ascii=False).encode)


class CheckPointKey(NamedTuple):
    """Key that an ack and its check point share; times in ms since 1970 UTC."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


class CheckPoint(NamedTuple):
    """Messages of one queue that were handed out.

    Attributes:
        key: The queue, with the topic that holds the messages; where reading began, and when.
        invisible_time: ms.
        offsets: The queue offset of each message; at most 32.
        bit_map: Bit n is set if message n is acked already.
        re_put_times: How often it was written again, as messages could not be revived.
    """

    key: CheckPointKey
    invisible_time: int
    offsets: tuple[int, ...]
    bit_map: int = 0
    re_put_times: int | None = None

    @property
    def revive_time(self) -> int:
        """Time when messages without an ack are delivered again: ms since 1970 UTC."""
        return self.key.pop_time + self.invisible_time


class Ack(NamedTuple):
    """Messages of one check point that are consumed, by their queue offsets."""

    key: CheckPointKey
    offsets: tuple[int, ...]


def encode_check_point(check_point: CheckPoint) -> bytes:
    """The body, as fastjson writes it: members sorted by name, what is null left out."""
    (topic, group, queue_id, start, pop_time, broker), invisible, offsets, bits, again = check_point
    diffs = ",".join([str(offset - start) for offset in offsets])
    rp = "" if again is None else f'"rp":"{again}",'
    return (
        f'{{"bm":{bits},"bn":{_dumps(broker)},"c":{_dumps(group)},"d":[{diffs}],"it":{invisible},"n":{len(offsets)},'
        f'"pt":{pop_time},"q":{queue_id},"reviveTime":{pop_time + invisible},"ro":0,{rp}"so":{start},'
        f'"t":{_dumps(topic)}}}'
    ).encode("utf-8", "replace")


def check_point_unique_key(key: CheckPointKey) -> str:
    """The property UNIQ_KEY of a check point (`PopMessageProcessor.genCkUniqueId`)."""
    topic, group, queue_id, start, pop_time, broker = key
    return f"{topic}@{queue_id}@{start}@{group}@{pop_time}@{broker}@ck"


def encode_acks(key: CheckPointKey, offsets: Iterable[int]) -> list[bytes]:
    """The bodies of acks of one message each."""
    topic, group, queue_id, start, pop_time, broker = key
    rest = (
        f',"bn":{_dumps(broker)},"c":{_dumps(group)},"pt":{pop_time},"q":{queue_id},"so":{start},"t":{_dumps(topic)}}}'
    ).encode("utf-8", "replace")
    return [b"%b%d%b" % (_ACK_BEGIN, offset, rest) for offset in offsets]


def encode_batch_ack(ack: Ack) -> bytes:
    """The body of the ack of several messages of one check point."""
    topic, group, queue_id, start, pop_time, broker = ack.key
    return (
        f'{{"ao":-1,"aol":[{",".join(map(str, ack.offsets))}],"bn":{_dumps(broker)},"c":{_dumps(group)},'
        f'"pt":{pop_time},"q":{queue_id},"so":{start},"t":{_dumps(topic)}}}'
    ).encode("utf-8", "replace")


def ack_unique_key(key: CheckPointKey, offset: int) -> str:
    """The property UNIQ_KEY of an ack; offset -1 of a batch ack (`PopMessageProcessor.genAckUniqueId`)."""
    topic, group, queue_id, _, pop_time, broker = key
    return f"{topic}@{queue_id}@{offset}@{group}@{pop_time}@{broker}@ack"


def decode_check_point(body: bytes) -> CheckPoint | None:
    """The check point of a body; None if it is none: RocketMQ passes it, too."""
    data = _members(body)
    key = None if data is None else _key(data, data.get("bn", ""))  # without a broker: of no broker that is known
    if data is None or key is None:
        return None
    count, invisible = _number(data, "n"), _number(data, "it")
    diffs, again = data.get("d"), data.get("rp")
    if count is None or invisible is None or not 0 <= count <= MOST_MESSAGES:
        return None
    if not diffs:
        diffs = list(range(count))  # as before 4.9.3
    elif not isinstance(diffs, list | tuple) or len(diffs) != count or not all(type(one) is int for one in diffs):
        return None
    times = int(again) if isinstance(again, str) and again.isascii() and again.isdigit() and len(again) < 9 else None
    bits = (_number(data, "bm") or 0) & 0xFFFFFFFF
    return CheckPoint(key, invisible, tuple(key.start_offset + one for one in diffs), bits, times)


def decode_ack(body: bytes, broker_name: str) -> Ack | None:
    """The ack, or the batch ack, of a body; None if it is none.

    broker_name: of the broker that reads, for an ack that names none.
    """
    if body.startswith(_ACK_BEGIN) and len(body) <= _LONGEST_KNOWN:
        digits, comma, rest = body[len(_ACK_BEGIN) :].partition(b",")
        if comma and digits.isdigit() and len(digits) <= _MOST_DIGITS and (digits[0] != _ZERO or len(digits) == 1):
            known = _ack_key(rest, broker_name)
            if known is not None:
                return Ack(known, (int(digits),))
    return _decode_any_ack(body, broker_name)


@lru_cache(4096)
def _ack_key(rest: bytes, broker_name: str) -> CheckPointKey | None:
    """The key of acks whose bodies differ in their first number alone; None if that is not their offset.

    The acks of one pop have the same, and thousands come a second.
    """
    one, other = (_decode_any_ack(b"%b%d,%b" % (_ACK_BEGIN, number, rest), broker_name) for number in (1, 2))
    is_offset = one is not None and other is not None and (one.offsets, other.offsets) == ((1,), (2,))
    return one.key if one is not None and is_offset else None


def _decode_any_ack(body: bytes, broker_name: str) -> Ack | None:
    data = _members(body)
    key = None if data is None else _key(data, data.get("bn", data.get("brokerName", broker_name)))
    if data is None or key is None:
        return None
    offsets = data.get("aol", data.get("ackOffsetList"))
    if offsets is None:
        offset = _number(data, "ao", "ackOffset")
        return None if offset is None else Ack(key, (offset,))
    if not isinstance(offsets, list | tuple) or not all(type(one) is int for one in offsets):
        return None
    return Ack(key, tuple(offsets))


def _members(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        try:
            value = decode_fastjson(body)
        except CorruptMetadataError:
            return None
    return value if isinstance(value, dict) else None


def _key(data: dict[str, Any], broker_name: Any) -> CheckPointKey | None:
    topic, group = data.get("t", data.get("topic")), data.get("c", data.get("consumerGroup"))
    numbers = _number(data, "q", "queueId"), _number(data, "so", "startOffset"), _number(data, "pt", "popTime")
    queue_id, start, pop_time = numbers
    if not (isinstance(topic, str) and isinstance(group, str) and isinstance(broker_name, str)):
        return None
    if queue_id is None or start is None or pop_time is None:
        return None
    return CheckPointKey(topic, group, queue_id, start, pop_time, broker_name)


def _number(data: dict[str, Any], *names: str) -> int | None:
    """A whole number of 64 bits by its short or its long name."""
    value = next((data[name] for name in names if name in data), None)
    return value if type(value) is int and INT64_MIN <= value <= INT64_MAX else None


def greatest_offset(group: str, end: int) -> int:
    """The greatest offset of a group in a queue whose next message gets an offset: that one, or the last one's."""
    return end - 1 if group == REVIVE_GROUP else end
