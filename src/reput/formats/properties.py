"""The properties text of a record (docs/formats/commit-log.md, RocketMQ's MessageDecoder)."""

from __future__ import annotations

from collections.abc import Iterable

from reput.errors import MessageIllegalError
from reput.formats.java import string_hash
from reput.formats.property_crc import PROPERTY_CRC32

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"
KEY_SEPARATOR = " "

# Names that stores, brokers and clients read or write (RocketMQ's MessageConst).
UNIQ_KEY = "UNIQ_KEY"
TAGS = "TAGS"
KEYS = "KEYS"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TRAN_MSG = "TRAN_MSG"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
FIRST_POP_TIME = "1ST_POP_TIME"
POP_CK = "POP_CK"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PGROUP = "PGROUP"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
SHARDING_KEY = "__SHARDINGKEY"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
BORN_TIMESTAMP = "BORN_TIMESTAMP"

#: Milliseconds of the delay levels 1, 2, ... that DELAY names (`messageDelayLevel`).
DELAY_LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)

#: What a broker writes into a message, and reads again: of who sends it once more, as from another topic, it is no
#: order, and is dropped.
OF_BROKERS = frozenset(
    (TIMER_OUT_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TRANSACTION_CHECK_TIMES,
     TRAN_PREPARED_QUEUE_OFFSET, POP_CK, PROPERTY_CRC32)
)  # fmt: skip

LITE_TOPIC = "__LITE_TOPIC"
PRIORITY = "_SYS_MSG_PRIORITY_"
#: What a message asks of a broker after 5.3.3, and what that is: a broker that stored it would not do it.
NOT_HERE = {LITE_TOPIC: "lite topics", PRIORITY: "messages with a priority"}

_NUMBER, _TOPIC = 20, 255
#: What a message gets on its way after it was sent, and the bytes of the longest value. What a broker takes has room
#: for all of it: else it could not deliver the message, as it could not put it again.
_ADDED_LATER = {
    # sent back, by the broker or by the consumer itself
    RETRY_TOPIC: _TOPIC, ORIGIN_MESSAGE_ID: 56, RECONSUME_TIME: _NUMBER, MAX_RECONSUME_TIMES: _NUMBER, WAIT: 5,
    DELAY: _NUMBER,
    # where it waits for its delay, its time or the end of its transaction
    REAL_TOPIC: _TOPIC, REAL_QID: _NUMBER, TIMER_OUT_MS: _NUMBER, TIMER_ENQUEUE_MS: _NUMBER, TIMER_DEQUEUE_MS: _NUMBER,
    TIMER_ROLL_TIMES: _NUMBER, TRANSACTION_CHECK_TIMES: _NUMBER, TRAN_PREPARED_QUEUE_OFFSET: _NUMBER,
    # popped
    FIRST_POP_TIME: _NUMBER, POP_CK: 2 * _TOPIC,
    # the CRC of a broker that is started with enabledAppendPropCRC
    PROPERTY_CRC32: 10,
}  # fmt: skip
SIZE_ADDED_LATER = sum(len(name) + size + 2 for name, size in _ADDED_LATER.items())

_RANKS = {UNIQ_KEY: 0, TAGS: 1, KEYS: 2, WAIT: 4}
_RANK_OF_OTHERS = 3


def encode_properties(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Text of the pairs in UTF-8: UNIQ_KEY, TAGS, KEYS, then the others as given, then WAIT; 0x02 ends each pair.

    Raises MessageIllegalError for a name or value that the text cannot represent (see check_property).
    """
    ordered = sorted(pairs, key=lambda pair: _RANKS.get(pair[0], _RANK_OF_OTHERS))
    for name, value in ordered:
        check_property(name, value)
    return "".join([f"{name}\x01{value}\x02" for name, value in ordered]).encode()


def decode_properties(data: bytes, errors: str = "replace") -> dict[str, str]:
    """Properties by name; of a repeated name the last value wins; bytes that are no UTF-8 become U+FFFD.

    With `errors="surrogateescape"` such bytes are kept apart from each other, as in `bytes.decode`.

    As in MessageDecoder.string2messageProperties: the 0x02 of the last pair may be missing (RocketMQ 4); the first 0x01
    of a pair separates name and value, so a value may contain 0x01; a pair without name or value is ignored. RocketMQ
    also ignores pairs shorter than 3 characters, but these lack one of the three parts anyway.
    """
    properties = {}
    for pair in data.decode(errors=errors).split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def property_values(texts: Iterable[bytes], name: str) -> list[str | None]:
    """One property of each text, as `decode_properties` reads it; None if there is none."""
    sought = name.encode() + NAME_VALUE_SEPARATOR
    found: list[str | None] = []
    for text in texts:
        begin = text.rfind(sought)
        if begin < 0:
            found.append(None)
            continue
        end = text.find(PROPERTY_SEPARATOR, begin)
        value = text[begin + len(sought) : end if end >= 0 else None]
        if value and (begin == 0 or text[begin - 1] == PROPERTY_SEPARATOR[0]):
            found.append(value.decode(errors="replace"))
        else:  # it is the end of another name, or within a value
            found.append(decode_properties(text).get(name))
    return found


def check_property(name: object, value: object) -> None:
    """Raises MessageIllegalError unless both are texts that can be written and read back unchanged."""
    check_text_of_property(f"property {name!r}: the name", name)
    check_text_of_property(f"property {name!r}: the value", value)


def check_text_of_property(what: str, text: object) -> None:
    """Raises MessageIllegalError, which begins with what it is, unless a property can keep the text as it is."""
    if not isinstance(text, str):
        raise MessageIllegalError(f"{what} must be text, not {type(text).__name__}")
    if not text:
        raise MessageIllegalError(f"{what} is empty; RocketMQ loses such a pair on reading")
    if "\x01" in text or "\x02" in text:
        raise MessageIllegalError(f"{what} holds a separator (0x01 or 0x02): {text!r}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise MessageIllegalError(f"{what} holds a lone surrogate, which UTF-8 cannot store")


def split_keys(text: str) -> tuple[str, ...]:
    """Keys of a KEYS value: split at single blanks, empty keys left out (IndexService.buildIndex)."""
    return tuple(key for key in text.split(KEY_SEPARATOR) if key)


def tags_code(tags: str | None) -> int:
    """Java hash of the whole tags text, signed; 0 without tags (MessageExtBrokerInner.tagsString2tagsCode)."""
    return string_hash(tags) if tags else 0
