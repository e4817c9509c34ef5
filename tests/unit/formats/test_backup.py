"""The manifest of a backup, and its names."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptBackupError
from reput.formats.backup import (
    ConfigFile,
    EmptiedQueue,
    LastBackedUp,
    LogRange,
    Manifest,
    backup_name,
    decode_manifest,
    encode_manifest,
    manifest_name,
    name_of_time,
    time_of_name,
)
from reput.formats.paths import is_checked_name

PAGE = Path(__file__).parents[3] / "docs/formats/backup.md"
MANIFEST = Manifest(
    "20231114T221320123Z",
    1_700_000_000_123,
    "/data/störe",
    8192,
    12_288 + 100,
    LastBackedUp(12_288, 1_700_000_000_000, 88, 305_419_896),
    4096,
    (LogRange(8192, 12_288, "a" * 64), LogRange(12_288, 12_388, "b" * 64)),
    (ConfigFile("topics.json", 17, "c" * 64),),
    (EmptiedQueue("consumequeue/%RETRY%g/0", 160, 340, bytes(range(20))),),
    {"max_hash_slot_num": 7, "enable_lmq": True},
    ("timerwheel",),
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "m") == MANIFEST
    empty = Manifest("20231114T221320123Z", 0, "/s", 0, 0, None, 0, ())
    assert decode_manifest(encode_manifest(empty), "m") == empty


@given(st.data())
def test_a_manifest_with_any_byte_changed_or_cut_off_is_no_other_manifest(data: st.DataObject) -> None:
    text = encode_manifest(MANIFEST)
    position = data.draw(st.integers(0, len(text) - 1))
    changed = bytearray(text)
    changed[position] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), text[:position]):
        try:
            found = decode_manifest(damaged, "backups/x.json")
        except CorruptBackupError as error:
            found, text = MANIFEST, str(error)
        else:
            text = "a blank between two members, if anything"
        assert found == MANIFEST
        assert text.startswith(("backups/x.json: damaged at offset ", "a blank"))


@pytest.mark.parametrize(
    "path", ["consumequeue/../0", "consumequeue/t/../../x", "/etc/t/0", "config/t/0", "consumequeue/t/x"]
)
def test_a_queue_that_leads_elsewhere_is_refused(path: str) -> None:
    forged = Manifest("20231114T221320123Z", 0, "/s", 0, 0, None, 0, (), queues=(EmptiedQueue(path, 20, 0, bytes(20)),))
    with pytest.raises(CorruptBackupError):
        decode_manifest(encode_manifest(forged), "m")


@given(st.integers(0, 4_102_444_800_000))
def test_a_name_is_its_time_and_sorts_as_it(timestamp_ms: int) -> None:
    name = name_of_time(timestamp_ms)
    assert time_of_name(name) == timestamp_ms
    assert name < name_of_time(timestamp_ms + 1)
    assert backup_name(manifest_name(name).removeprefix("backups/")) == name


@pytest.mark.parametrize("name", ["", ".json", "x.json", "20231114T221320123Z", "20231114T221320123Z.json.tmp"])
def test_other_files_are_no_backups(name: str) -> None:
    assert backup_name(name) is None


def test_the_page_shows_the_manifest_that_the_code_writes() -> None:
    (example,) = re.findall(r"```json\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    manifest = decode_manifest(example.encode(), "page")
    assert encode_manifest(manifest).decode() == example + "\n"
    assert manifest.name == name_of_time(manifest.created_timestamp)
    for piece in manifest.log:
        assert f"`{piece.name}`" in PAGE.read_text()


@pytest.mark.parametrize(("text", "offset"), [(b"{}", 0), (b'{"manifest": 1', 14), (b"[]", 0)])
def test_an_error_names_the_byte_where_json_ends_or_the_begin_of_the_file(text: bytes, offset: int) -> None:
    with pytest.raises(CorruptBackupError) as raised:
        decode_manifest(text, "m")
    assert raised.value.offset == offset


def with_member(path: tuple[str | int, ...], odd: object) -> bytes:
    """The manifest with another value of one member, and the checksum of that."""
    content = json.loads(encode_manifest(MANIFEST))["backup"]
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = odd
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({"sha256": digest, "backup": content}).encode()


PLACES: list[tuple[str | int, ...]] = [
    *((name,) for name in json.loads(encode_manifest(MANIFEST))["backup"]),
    *(("last", i) for i in range(4)),
    *(("log", 1, i) for i in range(3)),
    *(("config", 0, i) for i in range(3)),
    *(("queues", 0, i) for i in range(4)),
    ("sizes", "max_hash_slot_num"),
    ("leftOut", 0),
]
ODD: list[object] = [
    *(
        -1,
        0,
        1,
        2**31,
        2**62,
        2**63,
        10**30,
        1.5,
        True,
        None,
        "",
        "x",
        "..",
        "a/b",
        "a\0b",
        "x" * 300,
        [],
        {},
        [[]],
        [1],
    ),
    *("consumequeue/a\0b/0", "consumequeue/t/00", "batchconsumequeue/t/0", "00" * 46),
]


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_an_odd_value_is_refused_or_one_that_a_backup_can_have(path: tuple[str | int, ...]) -> None:
    for odd in ODD:
        data = with_member(path, odd)
        try:
            manifest = decode_manifest(data, "m")
        except CorruptBackupError:
            continue
        assert decode_manifest(encode_manifest(manifest), "m") == manifest
        for part in manifest.log:
            assert manifest.begin_offset <= part.begin < part.end <= manifest.end_offset
            assert part.begin // manifest.log_file_size == (part.end - 1) // manifest.log_file_size
        for queue in manifest.queues:
            size = 20 if queue.path.startswith("consumequeue/") else 46
            assert len(queue.unit) == size
            assert queue.position >= queue.position % size == queue.file_size % size == 0 < queue.file_size
        names = [file.file_name for file in manifest.config] + [queue.path.split("/")[1] for queue in manifest.queues]
        assert all(is_checked_name(name) for name in names)


@pytest.mark.parametrize(
    ("path", "odd"),
    [(("logFileSize",), 0), (("endOffset",), 8191), (("log", 1, 0), 12_287), (("log", 0, 1), 12_289), (("log",), []),
     (("queues", 0, 2), -20), (("queues", 0, 3), "00"), (("config", 0, 0), "../x"), (("config", 0, 1), 2**63),
     (("beginOffset",), 8193)],
    ids=str,
)  # fmt: skip
def test_what_no_restore_can_use_is_refused(path: tuple[str | int, ...], odd: object) -> None:
    with pytest.raises(CorruptBackupError, match="not the manifest that a backup has written"):
        decode_manifest(with_member(path, odd), "m")
