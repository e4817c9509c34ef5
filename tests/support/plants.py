"""Damages to plant in a closed store, by name: what a disk, a copy or a person does to one of its files."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import reput
from tests.support.damage import overwrite

LOG_SIZE, QUEUE_SIZE = 65_536, 2_000
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": LOG_SIZE,
    "mapped_file_size_consume_queue": QUEUE_SIZE,
    "max_hash_slot_num": 64,
    "max_index_num": 400,
}
_BLANK = 0xCBD43194 - (1 << 32)


def planted_store(path: Path, count: int = 600) -> Path:
    """A closed store of three topics, with several files of each kind; its last ten messages have one time."""
    with reput.MessageStore.open(path, **SIZES) as store:
        for n in range(count):
            message = reput.Message(
                f"t{n % 3}", (f"body-{n} " * (1 + n % 17)).encode(), tags=f"tag{n % 4}", keys=[f"k{n}", f"g{n % 50}"],
                unique_key=f"UK{n:06d}", properties={"p": str(n)},
            )  # fmt: skip
            store.put_message(message, n % 2)
        store.update_topic(reput.TopicConfig("t0", 4, 4))
        store.put_messages([reput.Message("t0", b"last%d" % n, tags="a", keys=["last"]) for n in range(10)], 0)
        store.wait_dispatched()
    return path


class Stored(NamedTuple):
    """A record of the log: its file, its position there, and its bytes."""

    file: Path
    position: int
    data: bytes

    def number(self, position: int, code: str = "q") -> int:
        """A number of the record."""
        number: int = struct.unpack_from(f">{code}", self.data, position)[0]
        return number

    @property
    def topic_position(self) -> int:
        """Of the topic's length."""
        return 88 + self.number(84, "i")

    @property
    def topic(self) -> str:
        """The topic."""
        begin = self.topic_position + 1
        return self.data[begin : begin + self.data[begin - 1]].decode()

    def change(self, position: int, data: bytes) -> None:
        """Put other bytes at a position of the record."""
        overwrite(self.file, self.position + position, data)


def stored(store: Path) -> list[Stored]:
    """The records of a log without damage, in order."""
    found = []
    for file in sorted((store / "commitlog").iterdir()):
        data, position = file.read_bytes(), 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, position)
            if size <= 0 or magic == _BLANK:
                break
            found.append(Stored(file, position, data[position : position + size]))
            position += size
    return found


Plant = Callable[[Path], object]
PLANTS: dict[str, Plant] = {}
_QUEUE, _CONFIG = "consumequeue/t1/0/00000000000000000000", "config/reputShutdown.json"


def blank(position: int) -> bytes:
    """Header of a blank record that fills a log file from a position on."""
    return struct.pack(">ii", LOG_SIZE - position, _BLANK)


def _numbers(codes: str, *values: int) -> bytes:
    return struct.pack(f">{codes}", *values)


def _of_record(name: str, position: int | Callable[[Stored], int], data: bytes | Callable[[Stored], bytes]) -> None:
    def plant(store: Path) -> None:
        record = stored(store)[100]
        begin = position if isinstance(position, int) else position(record)
        record.change(begin, data if isinstance(data, bytes) else data(record))

    PLANTS[f"record: {name}"] = plant


def _later(ms: int) -> Callable[[Stored], bytes]:
    return lambda record: _numbers("q", record.number(56) + ms)


def _after(text: bytes) -> Callable[[Stored], int]:
    return lambda record: record.data.index(text) + len(text)


_of_record("flag", 16, _numbers("i", 7))
_of_record("queue id", 12, _numbers("i", 7))
_of_record("queue offset of an earlier record", 20, _numbers("q", 5))
_of_record("queue offset one bit too high", 20, lambda record: _numbers("q", record.number(20) ^ 2048))
_of_record("queue offset huge", 20, _numbers("q", 2**62))
_of_record("queue offset negative", 20, _numbers("q", -5))
_of_record("prepared", 36, _numbers("i", 4))
_of_record("compressed", 36, _numbers("i", 1))
_of_record("born time", 40, _numbers("q", 2**62))
_of_record("an hour later", 56, _later(3_600_000))
_of_record("an hour earlier", 56, _later(-3_600_000))
_of_record("50 ms later", 56, _later(50))
_of_record("reconsume times", 72, _numbers("i", 99))
_of_record("body", 89, b"X")
_of_record("topic", lambda record: record.topic_position + 1, b"u")
_of_record("last property", lambda record: len(record.data) - 2, b"9")
_of_record("tag", _after(b"TAGS\1"), b"x")
_of_record("key", _after(b"KEYS\1"), b"x")
_of_record("magic code of a blank", 4, _numbers("i", _BLANK))
_of_record("blank to the end of the file", 0, lambda record: blank(record.position))


def _in_file(name: str, file: str | Callable[[Path], str], position: int, data: bytes) -> None:
    PLANTS[name] = lambda store: overwrite(store / (file if isinstance(file, str) else file(store)), position, data)


def _nth(folder: str, number: int) -> Callable[[Path], str]:
    return lambda store: f"{folder}/{sorted(os.listdir(store / folder))[number]}"


for _name, _position, _data in (
    ("tags", 159, b"\xff"), ("size", 151, b"\xff"), ("offset", 147, b"\xff"), ("zero", 140, bytes(20)),
    ("far after the end", 1980, _numbers("qiq", 0, 100, 0)),
):  # fmt: skip
    _in_file(f"unit: {_name}", _QUEUE, _position, _data)
for _name, _file, _position, _data in (
    ("slot", 0, 60, bytes(4)), ("chain", 0, 8112, bytes(4)), ("hash", 0, 2096, _numbers("i", 12345)),
    ("time", 0, 2108, _numbers("i", 99)), ("entry 0", 0, 299, b"\7"), ("begin time", 1, 0, _numbers("q", 1)),
    ("end time", 1, 8, _numbers("q", 2**60)), ("count of slots", 1, 32, _numbers("i", 1)),
    ("count of entries", 1, 36, _numbers("i", 7)), ("garbage at the end", -1, 8276, b"garbage"),
):  # fmt: skip
    _in_file(f"index: {_name}", _nth("index", _file), _position, _data)
for _name, _position, _data in (
    ("zero", 0, bytes(24)), ("future", 0, _numbers("qqq", *[2**62] * 3)), ("negative", 0, _numbers("q", -5)),
    ("queues in the future", 8, _numbers("q", 2**62)), ("index in the future", 16, _numbers("q", 2**62)),
):  # fmt: skip
    _in_file(f"checkpoint: {_name}", "checkpoint", _position, _data)
_in_file("topics.json garbled", "config/topics.json", 20, b"\xff\xff")
for _path in ("checkpoint", _CONFIG, "config/topics.json"):
    PLANTS[f"{os.path.basename(_path)} deleted"] = lambda store, path=_path: (store / path).unlink()  # type: ignore[misc]
for _name, _number in (("first", 0), ("middle", 1), ("last", -1)):
    for _folder in ("commitlog", "index"):
        _path_of = _nth(_folder, _number)
        PLANTS[f"{_folder}: {_name} file deleted"] = lambda store, of=_path_of: (store / of(store)).unlink()  # type: ignore[misc]
for _name, _text in (
    ("below zero", '{"offsetTable":{"t1@g":{0:-7}}}'), ("ahead", '{"offsetTable":{"t1@g":{0:700}}}'),
    ("of no topic", '{"offsetTable":{"nope@g":{0:700}}}'), ("of no queue", '{"offsetTable":{"t1@g":{99:700}}}'),
):  # fmt: skip
    PLANTS[f"offsets: {_name}"] = (  # type: ignore[misc]
        lambda store, text=_text: (store / "config/consumerOffset.json").write_text(text)
    )
for _name in ("reputSinks", "reputDispatch", "reputRecovery"):
    PLANTS[f"{_name}.json garbled"] = (  # type: ignore[misc]
        lambda store, name=_name: (store / f"config/{name}.json").write_text("{")
    )


def _plant(function: Plant) -> Plant:
    PLANTS[function.__name__.replace("_", " ").strip()] = function
    return function


def _zero_last(store: Path, count: int) -> None:
    for record in stored(store)[-count:]:
        record.change(0, bytes(len(record.data)))


PLANTS["the last record zero"] = lambda store: _zero_last(store, 1)
PLANTS["the last three records zero"] = lambda store: _zero_last(store, 3)


@_plant
def _the_last_record_blank(store: Path) -> None:
    record = stored(store)[-1]
    record.change(0, blank(record.position))


@_plant
def _the_last_record_in_a_century(store: Path) -> None:
    record = stored(store)[-1]
    record.change(56, _numbers("q", record.number(56) + 140 * 365 * 86_400_000))


@_plant
def _abort_appears(store: Path) -> None:
    (store / "abort").write_text("1")


@_plant
def _garbage_after_the_log(store: Path) -> None:
    record = stored(store)[-1]
    record.change(len(record.data) + 500, b"garbage")


@_plant
def _garbage_in_a_blank(store: Path) -> None:
    path = store / _nth("commitlog", 0)(store)
    overwrite(path, path.read_bytes().rindex(_numbers("i", _BLANK)) + 10, b"garbage")


def _end_of_units(store: Path) -> int:
    return -(-len((store / _QUEUE).read_bytes().rstrip(b"\0")) // 20) * 20


@_plant
def _the_last_unit_zero(store: Path) -> None:
    overwrite(store / _QUEUE, _end_of_units(store) - 20, bytes(20))


@_plant
def _a_unit_after_the_end(store: Path) -> None:
    overwrite(store / _QUEUE, _end_of_units(store), _numbers("qiq", 0, len(stored(store)[0].data), 0))


@_plant
def _a_unit_of_negative_size_after_the_end(store: Path) -> None:
    overwrite(store / _QUEUE, _end_of_units(store), _numbers("qiq", 77, -5, 8))


@_plant
def _a_queue_deleted(store: Path) -> None:
    shutil.rmtree(store / "consumequeue/t1/0")


@_plant
def _a_queue_copied(store: Path) -> None:
    shutil.copytree(store / "consumequeue/t1/0", store / "consumequeue/t1/9")


@_plant
def _a_queue_copied_with_a_leading_zero(store: Path) -> None:
    shutil.copytree(store / "consumequeue/t1/1", store / "consumequeue/t1/00")


@_plant
def _the_next_queue_file_made_ahead(store: Path) -> None:
    (store / "consumequeue/t1/0/00000000000000002000").write_bytes(bytes(QUEUE_SIZE))


@_plant
def _an_empty_topic_folder(store: Path) -> None:
    (store / "consumequeue/tx/0").mkdir(parents=True)


@_plant
def _an_index_file_twice(store: Path) -> None:
    last = sorted(os.listdir(store / "index"))[-1]
    shutil.copy(store / "index" / last, store / "index" / f"{int(last) + 5:017d}")


@_plant
def _names_of_index_files_swapped(store: Path) -> None:
    first, second = (store / "index" / name for name in sorted(os.listdir(store / "index"))[:2])
    aside = first.with_suffix(".x")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


@_plant
def _the_checkpoint_a_minute_later(store: Path) -> None:
    path = store / "checkpoint"
    overwrite(path, 0, _numbers("q", struct.unpack(">q", path.read_bytes()[:8])[0] + 60_000))


@_plant
def _a_topic_without_read_permission(store: Path) -> None:
    path = store / "config/topics.json"
    overwrite(path, 0, path.read_bytes().replace(b'"perm":6', b'"perm":2', 1))


@_plant
def _an_extension_without_units(store: Path) -> None:
    folder = store / "consumequeue_ext/t1/0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(b"\0\x14" + bytes(1022))


@_plant
def _a_batch_queue_without_messages(store: Path) -> None:
    folder = store / "batchconsumequeue/tz/0"
    folder.mkdir(parents=True)
    unit = _numbers("qiqqqhii", 0, 300, 0, 1, 0, 1, -1, 0)
    (folder / "00000000000000000000").write_bytes(unit + bytes(46 * 9))
