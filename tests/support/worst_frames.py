"""The frames that cost a broker's loop most, by what they ask for: many small things, as large as a frame takes."""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from reput.formats.remoting import MAX_FRAME_SIZE
from reput.remoting.body_bounds import LARGE_BODY, most_body
from reput.remoting.codes import RequestCode as Code
from reput.remoting.command import MAX_HEADER_SIZE, RemotingCommand, encode_command
from tests.support.broker import pull_command, texts
from tests.support.frames import binary_header, entry, frame_of

#: Fields that most headers need, so that a request gets as far as it can.
FIELDS = {
    "topic": "t", "consumerGroup": "g", "group": "g", "groupName": "g", "queueId": 0, "offset": 0, "queueOffset": 0,
    "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 10, "subVersion": 0, "subscription": "*",
}  # fmt: skip


def _bodies(size: int) -> dict[str, bytes]:
    """JSON of about `size` bytes: many values of each kind, and what is no JSON for a strict reader."""
    return {
        "objects": b'{"a":[' + b"{}," * (size // 3 - 10) + b"{}]}",
        "lists": b'{"a":[' + b"[]," * (size // 3 - 10) + b"[]]}",
        "numbers": b'{"a":[' + b"1," * (size // 2 - 10) + b"1]}",
        "keys": b"{" + b",".join(b'"%x":1' % number for number in range(size // 12)) + b"}",
        "whole numbers as keys": b"{" + b",".join(b"%d:1" % number for number in range(size // 10)) + b"}",
        "levels": b"[" * (size // 2) + b"]" * (size // 2),
        "lines": b"a=b\n" * (size // 4),
        "nothing": bytes(size),
    }


def _many(size: int, one: Callable[[int], Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one(number) for number in range(size // (len(json.dumps(one(size), separators=(",", ":"))) + 2))]


def _json(**members: Any) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def _request(code: int, body: bytes = b"", fields: Mapping[str, object] = FIELDS) -> bytes:
    return encode_command(RemotingCommand(code, 7, ext_fields=texts(fields), body=body))


def of_code(code: int) -> Iterator[tuple[str, bytes]]:
    """Frames of any code: its largest bodies, those that are too large, and its largest headers."""
    most = most_body(code)
    for size in sorted({min(LARGE_BODY, most), most if most < MAX_FRAME_SIZE else LARGE_BODY}):
        for name, body in _bodies(size).items():
            yield f"{name}, {size} bytes", _request(code, body)
    yield "a body as large as a frame", _request(code, _bodies(MAX_FRAME_SIZE - 1000)["objects"])
    room = MAX_HEADER_SIZE - 1000
    values = {"texts": '""', "numbers": "1", "lists": "[[],[],[],[]]"}
    for name, value in values.items():
        extra = ",".join(f'"{number:x}":{value}' for number in range(room // (len(value) + 8)))
        known = json.dumps(texts(FIELDS))[1:-1]
        yield f"fields of {name}", frame_of(f'{{"code":{code},"opaque":7,"extFields":{{{known},{extra}}}}}'.encode())
    short = struct.unpack(">h", struct.pack(">H", code & 0xFFFF))[0]
    entries = b"".join(entry(b"%x" % number, b"v") for number in range(room // 12))
    yield "binary fields", frame_of(binary_header(short, entries=entries), kind=1)
    yield "a header that is too large", frame_of(bytes(MAX_HEADER_SIZE + 1))


def known() -> dict[str, bytes]:
    """Frames that each once held up the loop for seconds, as large as they may be now."""
    most = most_body(Code.HEART_BEAT) - 200

    def ack(bits: bytes = b"\1") -> dict[str, Any]:
        text = base64.b64encode(bits).decode()
        return {"t": "t", "c": "g", "q": 0, "so": 0, "pt": 1, "it": 1, "rq": 0, "r": "0", "b": text}

    def queues(size: int) -> bytes:
        every = _many(size, lambda number: {"topic": "t", "brokerName": "b", "queueId": number})
        return _json(consumerGroup="g", clientId="c", mqSet=every)

    def heartbeat(**more: Any) -> bytes:
        return _json(**{"clientID": "c", "producerDataSet": [], "consumerDataSet": []} | more)

    tags = "||".join(f"{number:x}" for number in range(7000))
    wanted = [{"topic": "t", "subString": tags}]
    return {
        "acks": _request(Code.BATCH_ACK_MESSAGE, _json(brokerName="b", acks=_many(most, lambda _: ack()))),
        "acks in the loop": _request(
            Code.BATCH_ACK_MESSAGE, _json(brokerName="b", acks=_many(LARGE_BODY - 100, lambda _: ack()))
        ),
        "acks of many messages": _request(Code.BATCH_ACK_MESSAGE, _json(acks=[ack(b"\xff" * 8192)] * 30)),
        "acks far apart": _request(Code.BATCH_ACK_MESSAGE, _json(acks=[ack((b"\1" + bytes(31)) * 255)] * 90)),
        "locks": _request(Code.LOCK_BATCH_MQ, queues(most)),
        "locks in the loop": _request(Code.LOCK_BATCH_MQ, queues(LARGE_BODY - 100)),
        "unlocks": _request(Code.UNLOCK_BATCH_MQ, queues(most)),
        "groups of producers": _request(
            Code.HEART_BEAT, heartbeat(producerDataSet=[{"groupName": f"p{number}"} for number in range(900)])
        ),
        "too many groups": _request(
            Code.HEART_BEAT, heartbeat(producerDataSet=_many(most, lambda number: {"groupName": f"p{number}"}))
        ),
        "groups of consumers": _request(
            Code.HEART_BEAT, heartbeat(consumerDataSet=[{"groupName": f"c{number}"} for number in range(900)])
        ),
        "groups in the loop": _request(
            Code.HEART_BEAT, heartbeat(consumerDataSet=_many(LARGE_BODY - 100, lambda n: {"groupName": f"l{n}"}))
        ),
        "tags of groups": _request(
            Code.HEART_BEAT,
            heartbeat(consumerDataSet=[{"groupName": f"t{n}", "subscriptionDataSet": wanted} for n in range(30)]),
        ),
        "tags of a pull": encode_command(pull_command("t", tags=tags)),
        "too many tags": encode_command(pull_command("t", tags=tags * 3)),
        "topics": _request(
            Code.UPDATE_AND_CREATE_TOPIC_LIST,
            _json(topicConfigList=[{"topicName": f"t{number}"} for number in range(1000)]),
        ),
        "groups": _request(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            _json(groupConfigList=[{"groupName": f"g{number}"} for number in range(1000)]),
        ),
        "many requests": _request(Code.GET_MAX_OFFSET) * 20_000,
    }


def exchange(address: str, data: bytes) -> bytes:
    """Send bytes over a connection of their own, and return what comes first; blocks."""
    host, _, port = address.rpartition(":")
    answer = b""
    with socket.create_connection((host, int(port)), 60) as one:
        with suppress(OSError):  # it was closed before all was sent
            one.sendall(data)
        with suppress(OSError):
            answer = one.recv(1 << 16)
    return answer
