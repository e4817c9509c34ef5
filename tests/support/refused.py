"""Stores that no writer opens: each kind of bad input, how it comes about, and what the error says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import reput
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.index_file import IndexHeader, decode_header, encode_header
from reput.formats.record_layout import BODY, QUEUE_OFFSET
from tests.support.damage import at, cut, overwrite
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import SMALL

FILE_SIZE = 4096
#: Nothing is synced, saved or made ahead but by puts and closes.
OPTIONS: dict[str, object] = SMALL | {
    "flush_interval_consume_queue": 60_000,
    "max_index_num": 6,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 256,
}
EARLY, LATE = 300, 900  # bytes of the bodies
LATER = 4_000_000_000_000

Offsets = dict[str, list[int]]
Deed = Callable[[Path, Offsets], object]


class Kind(NamedTuple):
    """A way to spoil a store.

    Attributes:
        deed: What is done to it.
        error: What the error says, a pattern.
        killed: Whether its writer was killed before.
    """

    deed: Deed
    error: str
    killed: bool


def make_store(path: Path, *, killed: bool) -> Offsets:
    """Topic `early` in the first files of the log, topic `late` in all others; killed, the checkpoint is ahead."""
    offsets: Offsets = {}
    for topic, size, count in (("early", EARLY, 16), ("late", LATE, 12)):
        files = FaultyFiles()
        store = reput.MessageStore.open(path, files=files, **OPTIONS)
        messages = [reput.Message(topic, bytes(size), keys=[f"{topic}-{n}"]) for n in range(count)]
        offsets[topic] = [store.put_message(message).commit_log_offset for message in messages]
        store.wait_dispatched()
        if not killed or topic == "early":
            store.close()
    if killed:
        abandon(store, files)
        (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(LATER, LATER, LATER)))
    return offsets


def _folder(name: str, path: Path, _: Offsets) -> None:
    """A folder where a file of this name is expected."""
    place = path / name
    if place.is_file():
        place.unlink()
    place.mkdir(parents=True)


def _link(name: str, path: Path, _: Offsets) -> None:
    place = path / name
    place.unlink(missing_ok=True)
    place.symlink_to("/nowhere")


def _file(name: str, path: Path, _: Offsets) -> None:
    """A file where a folder of this name is expected."""
    place = path / name
    if place.is_dir():
        shutil.rmtree(place)
    place.write_bytes(b"no folder")


def _first(pattern: str, path: Path) -> Path:
    return min(path.glob(pattern))


def _cut(pattern: str, path: Path, _: Offsets) -> None:
    file = _first(pattern, path)
    cut(file, file.stat().st_size - 1)


def _write(name: str, text: str, path: Path, _: Offsets) -> None:
    (path / name).write_text(text)


def _spoil_both(name: str, path: Path, _: Offsets) -> None:
    (path / name).write_text("{")
    (path / f"{name}.bak").write_text("{")


def _rename(name: str, to: str, path: Path, _: Offsets) -> None:
    (path / name).rename(path / to)


def _full_header(path: Path, _: Offsets) -> None:
    file = _first("index/*", path)
    header: IndexHeader = decode_header(file.read_bytes())
    overwrite(file, 0, encode_header(header._replace(index_count=99)))


def _wrong_queue_type(path: Path, _: Offsets) -> None:
    topic = '{"topicName":"early","attributes":{"queue.type":"BatchCQ"}}'
    (path / "config/topics.json").write_text(f'{{"topicConfigTable":{{"early":{topic}}},"dataVersion":{{}}}}')


def _bad_topic(topic: str, number: int, path: Path, offsets: Offsets) -> None:
    """A topic that cannot name a folder; neither lengths nor the body's CRC show it."""
    size = EARLY if topic == "early" else LATE
    overwrite(*at(path, offsets[topic][number] + BODY + size + 2), b"/")


def _bad_queue_offset(topic: str, number: int, path: Path, offsets: Offsets) -> None:
    overwrite(*at(path, offsets[topic][number] + QUEUE_OFFSET), bytes.fromhex("00000000ffffffff"))


def _zeros(topic: str, number: int, path: Path, offsets: Offsets) -> None:
    overwrite(*at(path, offsets[topic][number]), bytes(8))


def _damaged_body(topic: str, number: int, path: Path, offsets: Offsets) -> None:
    overwrite(*at(path, offsets[topic][number] + BODY), b"damage")


def _without(name: str, deed: Deed, path: Path, offsets: Offsets) -> None:
    """Something that is derived from the log is gone, and the log that it would be built from is bad."""
    deed(path, offsets)
    shutil.rmtree(path / name)


def _last_queue_file_lost(deed: Deed, path: Path, offsets: Offsets) -> None:
    """Only a gap tells that units are missing; what they would be built from is bad."""
    deed(path, offsets)
    shutil.rmtree(path / "config")
    max((path / "consumequeue/late/0").iterdir()).unlink()
    min((path / "consumequeue/late/0").iterdir()).write_bytes(bytes(160))


def _marks(deed: Deed, path: Path, offsets: Offsets) -> None:
    """Another process dispatches, and its marks are there."""
    for lock in ("reputDispatch.lock", "reputDispatchBatch.lock", "reputDispatcher.lock"):
        (path / "config" / lock).write_text("lock")
    (path / "config/reputDispatch.json").write_text('{"settings": {}, "marks": []}')
    deed(path, offsets)


def _kinds() -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    log_file, queue_file = f"commitlog/{0:020d}", f"consumequeue/late/0/{0:020d}"
    for name in (
        *(log_file, f"commitlog/{10 * FILE_SIZE:020d}", queue_file, f"consumequeue_ext/late/0/{0:020d}"),
        *(
            "index/20200101000000000",
            "checkpoint",
            "abort",
            "abort.tmp",
            "lock",
            "config/topics.json",
            "config/topics.json.bak",
        ),
        *("config/reputShutdown.json", "config/reputSinks.json", "config/reputDispatch.json"),
        *("config/reputDispatchBatch.lock", "config/reputRecovery.json", "config/reputRecovery.json.tmp"),
    ):
        kinds[f"a folder in place of {name}"] = Kind(partial(_folder, name), f"{name}: a folder lies where", False)
    for name in (queue_file, "checkpoint", "config/reputSinks.json"):
        kinds[f"a link that leads nowhere in place of {name}"] = Kind(
            partial(_link, name), f"{name}: a symbolic link", True
        )
    for name in (
        *("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config"),
        *("consumequeue/late", "consumequeue/late/0", "consumequeue/other"),
    ):
        kinds[f"a file in place of {name}"] = Kind(partial(_file, name), f"{name}: a file lies where", False)
    for pattern in ("commitlog/*", "consumequeue/early/0/*", "index/*"):
        kinds[f"a cut file of {pattern}"] = Kind(partial(_cut, pattern), "bytes", True)
    kinds["a foreign name in the log"] = Kind(partial(_write, "commitlog/notes.txt", "x"), "foreign file", False)
    kinds["a foreign name in the index"] = Kind(partial(_write, "index/notes", "x"), "no index file", True)
    kinds["a file of the log that is missing"] = Kind(
        partial(_rename, f"commitlog/{FILE_SIZE:020d}", "aside"), "is expected", True
    )
    kinds["damaged topics"] = Kind(partial(_spoil_both, "config/topics.json"), "topics.json", True)
    kinds["damaged sinks"] = Kind(partial(_write, "config/reputSinks.json", "{"), "reputSinks.json", True)
    kinds["an index header with too many entries"] = Kind(_full_header, "the next entry has number 99", True)
    kinds["queues of the wrong type"] = Kind(_wrong_queue_type, "queues belong into", True)
    for late_deed, text in (
        (partial(_bad_topic, "late", -1), "cannot name a folder"),
        (partial(_bad_queue_offset, "late", -1), "queue offset 4294967295"),
        (partial(_damaged_body, "late", -2), "damage, not a torn tail"),
    ):
        kinds[f"{late_deed.func.__name__} in the last file"] = Kind(late_deed, text, True)
    kinds["damage at the end of a closed store"] = Kind(
        partial(_damaged_body, "late", -1), "the last clean exit left records", False
    )
    for early_deed, text in (
        (partial(_bad_topic, "early", 3), "cannot name a folder"),
        (partial(_bad_queue_offset, "early", 3), "queue offset 4294967295"),
        (partial(_zeros, "early", 3), "expected a record, found"),
    ):
        name = early_deed.func.__name__
        for killed in (False, True):
            state = "killed" if killed else "closed"
            kinds[f"{name} before lost queues, {state}"] = Kind(
                partial(_without, "consumequeue", early_deed), text, killed
            )
            kinds[f"{name} before a lost queue, {state}"] = Kind(
                partial(_without, "consumequeue/early", early_deed), text, killed
            )
            kinds[f"{name} before a lost index, {state}"] = Kind(partial(_without, "index", early_deed), text, killed)
        kinds[f"{name} before a gap"] = Kind(partial(_last_queue_file_lost, early_deed), text, True)
    kinds["marks of a dispatcher, and damage"] = Kind(
        partial(_marks, partial(_damaged_body, "late", -1)), "the last clean exit", False
    )
    return kinds


KINDS = _kinds()
