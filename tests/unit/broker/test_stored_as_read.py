"""What any send stores, a scan with all CRCs and a slave take: random properties and flags, by every way in."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from reput import MessageStore
from reput.kernels.records.columns import RecordStatus
from reput.kernels.records.record_scan import RecordScanner
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import SMALL, send_command, serving_broker, with_topic
from tests.support.fake_master import log_of

_BAD = RecordStatus.BAD_BODY_CRC | RecordStatus.BAD_PROPERTY_CRC
#: Pairs of properties, whole and not, of which several are joined.
_PIECES = (
    "__CRC32#\x011234567890\x02", "__CRC32#\x010000000000\x02", "__CRC32#\x01123\x02", "__CRC32#\x02", "__CRC32#\x01",
    "MSG_REGION\x01a\x02", "TRACE_ON\x01true\x02", "UNIQ_KEY\x01k\x02", "CLUSTER\x01c\x02", "KEYS\x01k\x02", "\x02",
    "a\x01b\x02", "a\x01__CRC32#\x011234567890\x02", "x__CRC32#\x011234567890\x02", "WAIT\x01false\x02", "é\x01ü\x02",
    "1234567890\x02",
)  # fmt: skip
_SYS_FLAGS = (0, 0, 0, 1, 2, 4, 8, 12, 0x10, 0x20, 0x30, 0x40, 0x80, 0x700, 0x7FFFFFFF)


def properties(random: Random) -> str:
    text = "".join(random.choices(_PIECES, k=random.randrange(6)))
    return text + random.choice(["", "__CRC32#\x011234567890\x02", "__CRC32#\x011234567890"])


def item(body: bytes, text: bytes) -> bytes:
    """A message of a batch as it lies in the body, with any properties."""
    size = 22 + len(body) + len(text)
    head = size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big")
    return head + body + len(text).to_bytes(2, "big") + text


def send(random: Random) -> RemotingCommand:
    """A send by any way in."""
    code = random.choice(
        [
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
        ]
    )
    is_batch = code == RequestCode.SEND_BATCH_MESSAGE
    body = random.randbytes(random.randrange(1, 40))
    if is_batch:
        body = b"".join(item(b"x", properties(random).encode()) for _ in range(random.randrange(1, 4)))
    topic = random.choice(["plain", "plain", "batches", "%RETRY%g"])
    names = RequestCode.SEND_MESSAGE if code == RequestCode.SEND_REPLY_MESSAGE else code
    command = send_command(topic, body, code=names, sysFlag=random.choice(_SYS_FLAGS), batch=is_batch)
    assert command.ext_fields is not None
    command.ext_fields["properties" if "topic" in command.ext_fields else "i"] = properties(random)
    command.code = code
    return command


@pytest.mark.parametrize("takes_batch_properties", [True, False])
@pytest.mark.parametrize("has_crc", [False, True])
async def test_every_stored_record_proves_itself(
    tmp_path: Path, *, has_crc: bool, takes_batch_properties: bool
) -> None:
    random = Random(f"{has_crc} {takes_batch_properties}")
    keys = {"dispatch_rules": "5.3.3" if takes_batch_properties else "5.5.0"}
    async with serving_broker(tmp_path / "store", enabled_append_prop_crc=has_crc, **keys) as served:
        client = await served.client()
        await with_topic(client, "plain")
        await with_topic(client, "batches", attributes="+queue.type=BatchCQ")
        for _ in range(20):
            codes = [
                answer.code for answer in [await one for one in client.begin_all([send(random) for _ in range(40)])]
            ]
            assert 0 in codes
        await served.stop()
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        end = store.max_commit_log_offset
    data = np.frombuffer(log_of(tmp_path / "store", end)[1], np.uint8)
    columns = RecordScanner().scan(data, 0, check_crc=True, require_property_crc=has_crc)
    assert columns.rows > 300
    assert columns.next_offset == end
    assert not (columns["status"] & _BAD).any()
    with MessageStore.open(tmp_path / "copy", **SMALL, force_verify_prop_crc=has_crc) as store:
        assert store.replica_writer().append(data) == data.size  # as a slave takes them
