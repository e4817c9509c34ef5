"""Requests of all codes with fields and bodies of any kind, as an enemy sends them, and what a broker logs of them."""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any

import reput.remoting
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.codes import RequestCode
from reput.remoting.header import header_fields
from reput.remoting.send_headers import V2_NAMES
from tests.support.frames import frame_of

_TOPICS = (
    "t", "u", "%RETRY%g", "%RETRY%g_t", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "../x", "", "a" * 127,
    "a" * 128, "\ud800", "%LMQ%l",
)  # fmt: skip
_GROUPS = (
    "g", "h", "g+t", "", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP", "TOOLS_CONSUMER", "x" * 255, "x" * 256,
    "\ud800", "a@b",
)  # fmt: skip
_NUMBERS = (
    "0", "1", "-1", "2", "7", "32", "100", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808",
    "9" * 20, "x", "", "1e3", "\u0663", "+1", "01",
)  # fmt: skip
_TEXTS = (
    "*", "a||b", "x > 3", "TRUE", "((((", "TAG", "SQL92", "+message.type=NORMAL", "+queue.type=BatchCQ", "POP", "\0",
    "7F00000100002A9F0000000000000000", "AVG", "queue.type", "0 1 2 0 0 broker-a 0 0", "\ud800", "a=b\nc=d",
)  # fmt: skip
_PROPERTIES = (
    "DELAY", "TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY",
    "KEYS", "TAGS", "INNER_NUM", "PGROUP", "POP_CK", "__CRC32#", "REPLY_TO_CLIENT", "TIMER_DEL_UNIQKEY", "x",
)  # fmt: skip
_VALUES = ("1", "3", "true", "-1", "", "t", "9" * 18, "x" * 300, "\ud800")
_MEMBERS = (
    "clientID", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet", "topic", "subString", "c",
    "subVersion", "consumerGroup", "clientId", "mqSet", "brokerName", "queueId", "acks", "t", "q", "so", "pt", "it",
    "rq", "r", "b", "topicConfigList", "topicName", "groupConfigList", "strategyName", "messageModel", "mode",
    "popShareQueueNum", "subscriptionData", "attributes", "readQueueNums", "policies", "subject", "password",
)  # fmt: skip
#: Done by few: they change the broker's keys, or remove what others need.
_RARE = {
    RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.DELETE_EXPIRED_COMMITLOG,
}  # fmt: skip
_SENDS = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
#: Fields with which more requests can be done.
_GOOD = {
    "topic": "t", "b": "t", "originTopic": "t", "group": "g", "consumerGroup": "g", "queueId": "0", "e": "0",
    "offset": "0", "maxMsgNums": "4", "invisibleTime": "500", "pollTime": "0", "suspendTimeoutMillis": "1",
    "sysFlag": "0", "f": "0", "bornTimestamp": "1", "g": "1", "flag": "0", "h": "0", "batch": "false", "m": "false",
    "defaultTopic": "TBW102", "c": "TBW102", "defaultTopicQueueNums": "4", "d": "4", "producerGroup": "g", "a": "g",
}  # fmt: skip


@cache
def field_kinds() -> dict[str, type]:
    """The fields of all headers of requests by their names on the wire, and what they are."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(reput.remoting.__path__):
        if module.name.endswith("headers"):
            for name, kind in vars(importlib.import_module(f"reput.remoting.{module.name}")).items():
                if name.endswith("Header") and "Response" not in name and hasattr(kind, "__dataclass_fields__"):
                    for one in header_fields(kind):
                        found[one.wire_name] = one.kind
    short = {letter: found[long] for letter, long in V2_NAMES.items() if long in found}
    return found | short


def _value(chance: Random, name: str, kind: type) -> str:
    name = V2_NAMES.get(name, name)
    lower = name.lower()
    if lower == "properties":
        pairs = [(chance.choice(_PROPERTIES), chance.choice(_VALUES)) for _ in range(chance.randrange(4))]
        return "".join(f"{one}\x01{value}\x02" for one, value in pairs)
    if kind is bool:
        return chance.choice(("true", "false", "x"))
    if kind is int:
        return str(chance.randrange(200)) if chance.random() < 0.5 else chance.choice(_NUMBERS)
    if "topic" in lower:
        return chance.choice(_TOPICS)
    return chance.choice(_GROUPS if "group" in lower else _TEXTS)


def _body(chance: Random, depth: int = 0) -> Any:
    if chance.random() < 0.1 or depth > 3:
        return chance.choice((None, True, 1, -1, 1 << 63, 1.5, "x", "t", "g", 10**30, float("nan"), "\ud800"))
    if chance.random() < 0.3:
        return [_body(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {
        chance.choice(_MEMBERS): chance.choice(("t", "g", "broker-a", "0", "AAAA"))
        if chance.random() < 0.5
        else _body(chance, depth + 1)
        for _ in range(chance.randrange(7))
    }


def odd_request(chance: Random, opaque: int) -> bytes:
    """The frame of a request of any code."""
    code = chance.choice(_SENDS if chance.random() < 0.2 else list(RequestCode))
    while code in _RARE and chance.random() > 0.05:
        code = chance.choice(list(RequestCode))
    kinds = field_kinds()
    names = chance.sample(sorted(kinds), chance.choice((len(kinds), len(kinds) // 2, 5)))
    fields = {name: _value(chance, name, kinds[name]) for name in names}
    if chance.random() < 0.5:
        fields |= _GOOD
    body = json.dumps(_body(chance)).encode() if chance.random() < 0.7 else chance.randbytes(chance.randrange(50))
    flag = ONE_WAY_FLAG if chance.random() < 0.1 else 0
    header = {
        "code": int(code),
        "opaque": opaque,
        "flag": flag,
        "version": 479,
        "language": "JAVA",
        "extFields": fields,
    }
    return frame_of(json.dumps(header).encode(), body)


class _Bugs(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:  # with a traceback: nobody has expected it
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def logged_bugs() -> Iterator[list[str]]:
    """Tracebacks that the product, or asyncio in its place, logs."""
    handler, loggers = _Bugs(), [logging.getLogger(name) for name in ("reput", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
    try:
        yield handler.found
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
