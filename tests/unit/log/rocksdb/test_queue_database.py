"""Consume queues in a RocksDB: all of their units, nothing of the folder changed, and damage in one line."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from reput.errors import ConfigError, CorruptConsumeQueueError
from reput.files import DISK
from reput.formats.consume_queue import FILLER, UNIT_SIZE, decode_unit, encode_unit
from reput.formats.java import INT64_MAX
from reput.formats.rocksdb import encode_key, encode_value
from reput.log.rocksdb.queue_database import DatabaseQueue, QueueDatabase
from reput.log.rocksdb.queue_files import DatabaseFiles
from tests.support.rocksdb import StoredUnit, end_key, write_rows, write_units

#: Queues in an order that is not that of their keys, one of them with a begin and a gap as a compaction leaves them.
UNITS = [
    *(StoredUnit("orders", 1, offset, offset * 100, 100, offset) for offset in range(300)),
    *(StoredUnit("a", 0, offset, offset * 100, 100, -offset) for offset in (7, 8, 12)),
    *(StoredUnit("%LMQ%é", 0, offset, offset * 100, 100, 3) for offset in range(3)),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_units(tmp_path / "database", UNITS)
    return tmp_path / "database"


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_nlink, path.read_bytes()) for path in folder.iterdir()}


def test_all_queues_are_listed_with_their_first_and_last_units(folder: Path) -> None:
    database = QueueDatabase(str(folder))
    found = {queue[:2]: queue[2:4] for queue in database.queues()}
    database.close()
    assert found == {("a", 0): (7, 13), ("orders", 1): (0, 300), ("%LMQ%é", 0): (0, 3)}


def test_units_are_those_that_were_put_with_fillers_before_the_last_one_and_zeros_behind_it(folder: Path) -> None:
    database = QueueDatabase(str(folder))
    queue = next(queue for queue in database.queues() if queue.topic == "a")
    data = database.units(queue, 5, 10)
    units = [decode_unit(data, position) for position in range(0, len(data), UNIT_SIZE)]
    kept = {unit.queue_offset: unit[3:] for unit in UNITS if unit.topic == "a"}
    expected = [kept.get(offset, FILLER if offset < 12 else (0, 0, 0)) for offset in range(5, 15)]
    assert units == expected
    assert [database.has_units(queue, begin, begin + 1) for begin in range(5, 14)] == [
        False, False, True, True, False, False, False, True, False,
    ]  # fmt: skip
    database.close()


def test_nothing_in_the_folder_of_the_database_changes_and_nothing_is_left_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = state(folder)
    folder.chmod(0o555)
    first, second = QueueDatabase(str(folder)), QueueDatabase(str(folder))
    assert list(first.queues()) == list(second.queues())
    assert len(list(temporary.iterdir())) == 2
    first.close()
    first.close()
    del second
    folder.chmod(0o755)
    assert state(folder) == before
    assert list(temporary.iterdir()) == []


def test_files_of_queues_are_read_as_those_of_a_disk(folder: Path, tmp_path: Path) -> None:
    database = QueueDatabase(str(folder))
    queue = next(queue for queue in database.queues() if queue.topic == "orders")
    database.close()
    files: DatabaseFiles = pickle.loads(pickle.dumps(DatabaseFiles(str(tmp_path), 64 * UNIT_SIZE, [queue])))
    paths = files.paths(queue)
    assert [Path(path).name for path in paths] == [
        f"{start:020d}" for start in range(0, 300 * UNIT_SIZE, 64 * UNIT_SIZE)
    ]
    assert files.is_directory(f"{tmp_path}/orders/1")
    assert [entry.name for entry in files.list_directory(f"{tmp_path}/orders/1")] == [Path(path).name for path in paths]
    expected = b"".join(encode_unit(*unit[3:]) for unit in UNITS if unit.topic == "orders").ljust(
        320 * UNIT_SIZE, b"\0"
    )
    assert b"".join(map(files.read_bytes, paths)) == expected
    with files.open(paths[1]) as file:
        assert file.read(13, 50) == expected[64 * UNIT_SIZE + 13 : 64 * UNIT_SIZE + 63]
        mapping = file.map(random=True, expected=64 * UNIT_SIZE)
    assert bytes(mapping.view) == expected[64 * UNIT_SIZE : 128 * UNIT_SIZE]
    with files.open(paths[-1]) as file:
        assert file.has_data_from(43 * UNIT_SIZE)
        assert not file.has_data_from(44 * UNIT_SIZE)
    other = tmp_path / "orders" / "2" / "00000000000000000000"
    other.parent.mkdir(parents=True)
    other.write_bytes(bytes(20))
    assert files.exists(str(other))
    assert files.read_bytes(str(other)) == bytes(20)
    assert not files.exists(f"{tmp_path}/orders/1/{500 * UNIT_SIZE:020d}")
    files.close()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({b"x": b"y"}, "expected the key of a unit, found 78"),
        ({end_key(): b""}, "expected the key of a unit, found 7f000000"),
        ({encode_key(b"t", 0, 0): b"", encode_key(b"t", 0, INT64_MAX): b""}, "more than a log can have"),
        ({encode_key(b"t", 0, 0) + b"\1": b""}, "expected the key of a unit"),
    ],
)
def test_keys_that_rocketmq_does_not_write_are_damage(rows: dict[bytes, bytes], said: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "database", rows)
    database = QueueDatabase(str(tmp_path / "database"))
    with pytest.raises(CorruptConsumeQueueError, match=said) as caught:
        list(database.queues())
    assert str(caught.value).startswith(str(tmp_path / "database"))
    database.close()


def test_a_value_of_another_length_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "database"
    write_rows(path, {encode_key(b"t", 0, 0): encode_value(0, 100, 0, 0), encode_key(b"t", 0, 1): b"short"})
    database = QueueDatabase(str(path))
    with pytest.raises(
        CorruptConsumeQueueError, match=r"expected 28 bytes as the unit of queue offset 1 of t/0, found 5"
    ):
        database.units(DatabaseQueue("t", 0, 0, 2, str(path)), 0, 2)
    database.close()


def read_all(folder: Path) -> None:
    database = QueueDatabase(str(folder))
    for queue in database.queues():
        database.units(queue, queue.begin, queue.end - queue.begin)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST", ".sst"])
def test_a_database_with_a_damaged_file_is_told_in_one_line_that_names_it(name: str, folder: Path) -> None:
    (damaged,) = [path for path in folder.iterdir() if path.name.startswith(name) or path.suffix == name]
    data = bytearray(damaged.read_bytes())
    data[: len(data) // 2] = b"\xff" * (len(data) // 2)
    damaged.write_bytes(data)
    with pytest.raises(CorruptConsumeQueueError, match=r"the RocksDB of the queues: .*reput rebuild") as caught:
        read_all(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)
    assert "/reput-" not in str(caught.value)


def test_without_the_package_the_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigError, match=r"a RocksDB needs rocksdict: pip install 'reput\[rocksdb\]'"):
        QueueDatabase(str(folder))


def test_a_file_of_a_database_is_not_written(folder: Path, tmp_path: Path) -> None:
    queue = DatabaseQueue("orders", 1, 0, 300, str(folder))
    files = DatabaseFiles(str(tmp_path), 64 * UNIT_SIZE, [queue])
    with pytest.raises(Exception, match="which is only read"):
        files.open(files.paths(queue)[0], writable=True)
    assert DISK.exists(str(folder))
