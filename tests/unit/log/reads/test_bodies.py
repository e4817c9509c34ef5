from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.formats.message import Message
from reput.formats.message_batch import decode_batch
from reput.formats.properties import encode_properties
from reput.log.reads.compression import MAX_BODY_BYTES, decompress
from tests.support.fixtures import LogWriter

TEXT = b"a body that repeats itself, repeats itself, repeats itself" * 20
ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201


def compressed(sys_flag: int, body: bytes = TEXT) -> bytes:
    if sys_flag in (1, ZLIB):
        return zlib.compress(body)
    return bytes(pa.Codec({LZ4: "lz4", ZSTD: "zstd"}[sys_flag]).compress(body, asbytes=True))


def item(body: bytes, flag: int = 0, **properties: str) -> bytes:
    """One message of a producer's batch, as RocketMQ's `MessageDecoder.encodeMessage` writes it."""
    text = encode_properties(list(properties.items()))
    return (
        struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(text))
        + text
    )


@pytest.mark.parametrize("sys_flag", [1, ZLIB, LZ4, ZSTD])
def test_each_type_of_compression_is_undone(sys_flag: int) -> None:
    assert decompress(compressed(sys_flag), sys_flag) == TEXT
    assert decompress(compressed(sys_flag), sys_flag, max_bytes=len(TEXT)) == TEXT
    assert decompress(b"", sys_flag) == b""


@pytest.mark.parametrize("sys_flag", [1, ZLIB, LZ4, ZSTD])
def test_a_broken_or_too_large_body_gives_nothing(sys_flag: int) -> None:
    body = compressed(sys_flag)
    assert decompress(body[:-5], sys_flag) is None
    assert decompress(body[:3], sys_flag) is None
    assert decompress(b"garbage", sys_flag) is None
    assert decompress(body, sys_flag, max_bytes=len(TEXT) - 1) is None
    assert decompress(body, 0x701) is None


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_a_bomb_is_left_as_it_is(sys_flag: int) -> None:
    assert decompress(compressed(sys_flag, bytes(MAX_BODY_BYTES + 1)), sys_flag) is None


def test_a_batch_is_unfolded_into_its_messages() -> None:
    text = encode_properties([("TAGS", "paid")])
    assert decode_batch(item(b"one", 7, TAGS="paid") + item(b"")) == [(7, b"one", text), (0, b"", b"")]


@pytest.mark.parametrize("cut", [*range(1, 25), 30])
def test_a_batch_that_is_cut_gives_nothing(cut: int) -> None:
    assert decode_batch((item(b"one") + item(b"two", region="eu"))[:-cut]) is None


@pytest.mark.parametrize("position", [0, 16, 23])
@pytest.mark.parametrize("value", [b"\x7f\xff", b"\xff\xff", b"\0\0\0\1"])
def test_a_batch_with_wrong_lengths_gives_nothing(position: int, value: bytes) -> None:
    body = bytearray(item(b"one", TAGS="paid") + item(b"two", region="eu"))
    body[position : position + len(value)] = value
    assert decode_batch(bytes(body)) is None


def test_an_empty_batch_gives_nothing() -> None:
    assert decode_batch(b"") is None


def rows(store: Path, **options: object) -> list[dict[str, object]]:
    return reput.read_log(store, **options).read_all().to_pylist()  # type: ignore[arg-type,no-any-return]


def test_rows_show_plain_bodies_and_flags_that_fit_them(tmp_path: Path, write_log: LogWriter) -> None:
    flags = [0, ZLIB, LZ4, 0, ZSTD, 1, ZLIB | 0x4]
    messages = [
        Message("t", compressed(flag & ~4) if flag else TEXT, tags=f"tag-{i}", keys=(f"k-{i}",), sys_flag=flag)
        for i, flag in enumerate(flags)
    ]
    offsets = write_log(messages, 1 << 16)
    shown = rows(tmp_path / "store")
    assert [row["body"] for row in shown] == [TEXT] * len(flags)
    assert [row["sys_flag"] for row in shown] == [0, 0, 0, 0, 0, 0, 4]
    assert [row["status"] for row in shown] == ["OK"] * len(flags)
    assert [row["commit_log_offset"] for row in shown] == offsets
    assert [row["tags"] for row in shown] == [message.tags for message in messages]
    assert [row["keys"] for row in shown] == [list(message.keys) for message in messages]
    stored = rows(tmp_path / "store", raw_body=True)
    assert [row["body"] for row in stored] == [message.body for message in messages]
    assert [row["sys_flag"] for row in stored] == flags
    unchanged = [name for name in shown[0] if name not in ("body", "sys_flag")]
    assert [[row[name] for name in unchanged] for row in shown] == [[row[name] for name in unchanged] for row in stored]


def test_a_body_that_cannot_be_decompressed_stays_and_its_row_says_so(tmp_path: Path, write_log: LogWriter) -> None:
    messages = [
        Message("t", TEXT),
        Message("t", b"garbage", sys_flag=LZ4),
        Message("t", compressed(ZSTD), sys_flag=ZSTD),
    ]
    write_log(messages, 1 << 16)
    shown = rows(tmp_path / "store", columns=["body", "sys_flag", "status"])
    assert shown == [
        {"body": TEXT, "sys_flag": 0, "status": "OK"},
        {"body": b"garbage", "sys_flag": LZ4, "status": "BODY_UNDECODED"},
        {"body": TEXT, "sys_flag": 0, "status": "OK"},
    ]


@pytest.mark.parametrize("compression", [0, ZLIB])
def test_an_inner_batch_becomes_a_row_a_message(tmp_path: Path, write_log: LogWriter, compression: int) -> None:
    body = item(b"one", 7, TAGS="paid", KEYS="a b", UNIQ_KEY="u-1") + item(b"", region="eu") + item(TEXT)
    stored_body = compressed(compression, body) if compression else body
    messages = [
        Message("t", b"before"),
        Message("t", stored_body, sys_flag=0xC0 | compression),
        Message("t", b"after"),
    ]
    offsets = write_log(messages, 1 << 16)
    names = "commit_log_offset queue_offset flag sys_flag tags keys unique_key properties body status".split()
    shown = [tuple(row.values()) for row in rows(tmp_path / "store", columns=names)]
    assert shown == [
        (offsets[0], 0, 0, 0, None, [], None, [], b"before", "OK"),
        (offsets[1], 1, 7, 0, "paid", ["a", "b"], "u-1", [], b"one", "OK"),
        (offsets[1], 2, 0, 0, None, [], None, [("region", "eu")], b"", "OK"),
        (offsets[1], 3, 0, 0, None, [], None, [], TEXT, "OK"),
        (offsets[2], 2, 0, 0, None, [], None, [], b"after", "OK"),
    ]
    stored = rows(tmp_path / "store", raw_body=True)
    assert [row["body"] for row in stored] == [b"before", stored_body, b"after"]
    assert stored[1]["sys_flag"] == 0xC0 | compression
    of_record = "store_size body_crc born_host store_host store_timestamp topic queue_id magic_code".split()
    for row in rows(tmp_path / "store")[1:4]:
        assert [row[name] for name in of_record] == [stored[1][name] for name in of_record]


@pytest.mark.parametrize("body", [b"", b"garbage", item(b"one")[:-1]])
def test_an_inner_batch_that_is_broken_stays_one_row(tmp_path: Path, write_log: LogWriter, body: bytes) -> None:
    write_log([Message("t", body, sys_flag=0xC0, tags="paid")], 1 << 16)
    (row,) = rows(tmp_path / "store", columns=["body", "sys_flag", "tags", "status"])
    assert row == {"body": body, "sys_flag": 0xC0, "tags": "paid", "status": "BODY_UNDECODED"}


def test_messages_that_would_grow_beyond_all_bounds_stay_one_row(tmp_path: Path, write_log: LogWriter) -> None:
    body = zlib.compress(item(b"") * 800_000)
    write_log([Message("t", body, sys_flag=0xC0 | ZLIB)], 1 << 16)
    (row,) = rows(tmp_path / "store", columns=["status"])
    assert row == {"status": "BODY_UNDECODED"}


def test_batches_stay_small_however_much_bodies_grow(tmp_path: Path, write_log: LogWriter) -> None:
    plain = bytes(5 << 20)
    write_log([Message("t", zlib.compress(plain), sys_flag=ZLIB)] * 20, 1 << 20)
    read = list(reput.read_log(tmp_path / "store", columns=["body"]))
    assert sum(batch.num_rows for batch in read) == 20
    assert all(0 < batch.num_rows <= 6 for batch in read)
    write_log([Message("t", item(b"") * 100_000, sys_flag=0xC0)], 1 << 22)
    read = list(reput.read_log(tmp_path / "store", columns=["queue_offset"]))
    assert sum(batch.num_rows for batch in read) == 100_000
    assert max(batch.num_rows for batch in read) <= 32_768
