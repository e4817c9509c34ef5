"""Stored messages as gRPC clients get them."""

from __future__ import annotations

import gzip
import hashlib
import zlib

import pytest

from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.message_ext import MessageExt
from reput.formats.record import encode_record
from reput.formats.record_layout import SysFlag
from reput.remoting.grpc.grpc_codes import Encoding, GrpcMessageType
from reput.service.grpc.delivered_messages import delivered_message

BODY = b"hello " * 100
HOST = encode_host("10.0.0.1:10911")


def stored_record(body: bytes = b"x", sys_flag: int = 0, properties: dict[str, str] | None = None) -> bytes:
    message = Message("orders", body, properties=properties, sys_flag=sys_flag)
    times = {"store_timestamp": 1_700_000_000_000, "born_timestamp": 1_700_000_000_000}
    return encode_record(
        message, queue_id=0, queue_offset=0, commit_log_offset=0, store_host=HOST, born_host=HOST, **times
    )


@pytest.mark.parametrize(
    ("body", "sys_flag", "encoding", "told"),
    [
        (BODY, 0, Encoding.IDENTITY, BODY),
        (gzip.compress(BODY, mtime=0), SysFlag.COMPRESSED, Encoding.GZIP, gzip.compress(BODY, mtime=0)),
        (zlib.compress(BODY), SysFlag.COMPRESSED, Encoding.IDENTITY, BODY),
        (zlib.compress(bytes(2000)), SysFlag.COMPRESSED, Encoding.GZIP, zlib.compress(bytes(2000))),
        (b"neither", SysFlag.COMPRESSED, Encoding.GZIP, b"neither"),
    ],
    ids=["plain", "gzip", "zlib", "more than 1000 bytes", "neither"],
)
def test_a_body_is_told_so_that_every_client_reads_it(
    body: bytes, sys_flag: int, encoding: Encoding, told: bytes
) -> None:
    """A client of the remoting protocol deflates with zlib, which those for Python and Node do not read."""
    message = delivered_message(MessageExt(stored_record(body=body, sys_flag=sys_flag)), "t", "h", 0, 1000)
    system = message.system_properties
    assert system is not None
    assert system.body_digest is not None
    assert (system.body_encoding, message.body) == (encoding, told)
    assert system.body_digest.checksum == hashlib.md5(told).hexdigest().upper()


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, GrpcMessageType.NORMAL),
        ({"__SHARDINGKEY": "g"}, GrpcMessageType.FIFO),
        ({"DELAY": "3"}, GrpcMessageType.DELAY),
        ({"TIMER_DELAY_SEC": "3", "__SHARDINGKEY": "g"}, GrpcMessageType.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, GrpcMessageType.TRANSACTION),
    ],
)
def test_the_kind_of_a_message_is_that_of_its_properties(properties: dict[str, str], kind: GrpcMessageType) -> None:
    message = delivered_message(MessageExt(stored_record(properties=properties)), "t", "h", 0, 1000)
    assert message.system_properties is not None
    assert message.system_properties.message_type == kind


def test_a_user_sees_its_own_properties_and_the_origin_of_a_dead_letter() -> None:
    given = {
        "colour": "red", "PGROUP": "p", "DLQ_ORIGIN_TOPIC": "t0", "DLQ_ORIGIN_MESSAGE_ID": "id0",
        "TIMER_DELIVER_MS": "x" * 30,
    }  # fmt: skip
    message = delivered_message(MessageExt(stored_record(properties=given)), "asked", None, 2, 1000)
    system = message.system_properties
    assert system is not None
    assert system.dead_letter_queue is not None
    assert message.user_properties == {"colour": "red"}
    assert (message.topic and message.topic.name, system.receipt_handle, system.delivery_attempt) == ("asked", None, 3)
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("t0", "id0")
    assert system.delivery_timestamp is None
