"""Bodies with queues as the keys of an object: `{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:7}}`.

This is how fastjson writes a Java map of MessageQueue, and what Java and Go clients read (docs/formats/remoting.md).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from reput.errors import RemotingCommandError
from reput.remoting.body import decode_json, encode_body
from reput.remoting.codes import ResponseCode

#: What says where objects begin and end; a mark inside of a text is none.
_PART = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}:]', re.DOTALL)


class QueueKey(NamedTuple):
    """One queue of one broker (`MessageQueue`), as a key."""

    topic: str
    broker_name: str
    queue_id: int


def encode_queue_tables(value: Any) -> bytes:
    """The body of dicts, whose keys are texts or queues, of lists of dicts, and of what `encode_body` takes."""
    if isinstance(value, list):
        return b"[" + b",".join(map(encode_queue_tables, value)) + b"]"
    if not isinstance(value, dict):
        return encode_body(value)
    members = (_key(key) + b":" + encode_queue_tables(member) for key, member in value.items())
    return b"{" + b",".join(members) + b"}"


def _key(key: str | QueueKey) -> bytes:
    if isinstance(key, str):
        return encode_body(key)
    return encode_body({"brokerName": key.broker_name, "queueId": key.queue_id, "topic": key.topic})


def decode_queue_table(body: bytes, name: str) -> dict[QueueKey, Any]:
    """The values by queue of one member of a body; empty if the body has no such member.

    A key may also be the text of its object. Raises RemotingCommandError (SYSTEM_ERROR) if the body is none.
    """
    value = decode_json(_with_text_keys(body.decode("utf-8", "replace")).encode())
    table = (value.get(name) or {}) if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"{name}: expected an object")
    return {_queue(str(key)): member for key, member in table.items()}


def _queue(text: str) -> QueueKey:
    value = decode_json(text.encode())
    if isinstance(value, dict):
        topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
        if isinstance(topic, str) and isinstance(broker_name, str) and type(queue_id) is int:
            return QueueKey(topic, broker_name, queue_id)
    raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"no queue: {text[:100]}")


def _with_text_keys(text: str) -> str:
    """A body whose keys are all texts: an object before a colon becomes the text of it."""
    parts: list[str] = []
    begins: list[int] = []
    done = 0
    begin = end = -1  # of the object that ended last
    for part in _PART.finditer(text):
        mark = part[0]
        if mark == "{":
            begins.append(part.start())
        elif mark == "}" and begins:
            begin, end = begins.pop(), part.end()
        elif mark == ":" and begin >= done and not text[end : part.start()].strip():
            parts += text[done:begin], json.dumps(text[begin:end])
            done = end
    return "".join((*parts, text[done:]))
