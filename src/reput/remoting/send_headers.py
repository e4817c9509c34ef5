"""Headers of requests that send messages, and of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from reput.formats.remoting import SEND_FIELDS, SEND_LETTERS
from reput.remoting.codes import VERSION, LanguageCode, RequestCode
from reput.remoting.command import quoted
from reput.remoting.header import Int32, Int64, decode_header


@dataclass(frozen=True, slots=True)
class SendMessageRequestHeader:
    """A message or a batch to be stored (SEND_MESSAGE; SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE with `V2_NAMES`).

    `properties`: name 0x01 value 0x02 ...; `born_timestamp`: ms since 1970 UTC; `queue_id` below 0: any queue.
    `default_topic`, `default_topic_queue_nums`: template and queues of a topic that the send makes; only then
    RocketMQ needs them.
    """

    producer_group: str
    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    default_topic: str | None = None
    default_topic_queue_nums: Int32 | None = None
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


@dataclass(slots=True)  # one that is frozen takes three times as long to make, and each send needs one
class SendMessageResponseHeader:
    """Place of a stored message. `msg_id`: offset message ids, of a batch joined by commas."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerSendMsgBackRequestHeader:
    """A message that a group could not consume (CONSUMER_SEND_MSG_BACK).

    `offset`: its commit log offset; `delay_level`: below 0 for the dead letters, 0 as the broker thinks fit.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


#: Names of the fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, and of SEND_MESSAGE (`SendMessageRequestHeaderV2`).
V2_NAMES = dict(zip(SEND_LETTERS, SEND_FIELDS, strict=True))
_V2_CODES = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


def send_fields(code: int, ext_fields: dict[str, str] | None) -> dict[str, str]:
    """The fields of a request by their long names: a short name of a code that has them goes before the long one."""
    fields = ext_fields or {}
    if code in _V2_CODES:
        return fields | {V2_NAMES[name]: value for name, value in fields.items() if name in V2_NAMES}
    return fields


def send_names(code: int, name: str) -> tuple[str, ...]:
    """The names of one field in a request, as `send_fields` reads them: the first one that is there counts."""
    short = [letter for letter, long in V2_NAMES.items() if long == name and code in _V2_CODES]
    return (*short, name)


def decode_send_header(code: int, ext_fields: dict[str, str] | None) -> SendMessageRequestHeader:
    """The header of a request that sends, in the names of its code; errors as of `decode_header`.

    A group that is missing is blank: RocketMQ stores the message all the same. In the short names, which RocketMQ
    reads in the fast way, a number must be one.
    """
    fields = {"producerGroup": ""} | send_fields(code, ext_fields)
    return decode_header(SendMessageRequestHeader, fields, is_fast=code in _V2_CODES)


def v2_fields(
    *,
    producer_group: str,
    topic: str,
    default_topic: str,
    default_topic_queue_nums: int,
    queue_id: int,
    sys_flag: int,
    born_timestamp: int,
    flag: int,
    properties: str,
    batch: bool,
    broker_name: str,
) -> dict[str, str]:
    """The fields of SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2, as a client sends them first.

    Written out: `encode_header` takes ten times as long, and each send needs them. A flag of True is 1, as in a store.
    """
    return {
        "a": producer_group, "b": topic, "c": default_topic, "d": str(default_topic_queue_nums), "e": str(queue_id),
        "f": str(int(sys_flag)), "g": str(int(born_timestamp)), "h": str(int(flag)), "i": properties, "j": "0",
        "k": "false", "m": "true" if batch else "false", "n": broker_name,
    }  # fmt: skip


@lru_cache(maxsize=4096)
def v2_texts(
    code: int,
    producer_group: str,
    topic: str,
    default_topic: str,
    default_topic_queue_nums: int,
    queue_id: int,
    sys_flag: int,
    flag: int,
    batch: bool,
    /,
) -> tuple[str, str, str, str, str]:
    """The header in JSON of a request of a client of ours with the fields of `v2_fields`, around what differs.

    That is born_timestamp, the properties and the broker's name as JSON has them, and opaque. `encode_command` makes
    the same text of the fields in eight times as long, and each send needs it. What is kept is short: a broker's name,
    which a name server tells, may have any length.
    """
    return (
        f'{{"code":{int(code)},"extFields":{{"a":{quoted(producer_group)},"b":{quoted(topic)},'
        f'"c":{quoted(default_topic)},"d":"{default_topic_queue_nums}","e":"{queue_id}","f":"{int(sys_flag)}","g":"',
        f'","h":"{int(flag)}","i":',
        f',"j":"0","k":"false","m":"{"true" if batch else "false"}","n":',
        f'}},"flag":0,"language":"{LanguageCode.PYTHON.name}","opaque":',
        f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}',
    )
