"""Files made by an enemy: fields at their extremes, links, pipes, huge sizes, names and texts that were never written.

Whoever looks must get a ReputError or a right result: never a crash of the process, a hang, or gigabytes of memory, and
nothing changes on the disk where reput only reads, or refuses.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import reput
from lab.campaign.cases import Part
from lab.campaign.children import in_child
from lab.campaign.fields import FileField, fields_of
from lab.campaign.samples import KEYS, TOPICS, Sample, sample
from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError
from reput.formats.own_json import encode_with_crc
from reput.formats.shutdown import SHUTDOWN_FILE
from reput.formats.sink_commit import SINKS_FILE
from reput.jobs.audit.job import audit
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.log.dispatch_marks import DISPATCH_FILE, RECOVERY_FILE, settings_of
from tests.support.invariants import SMALL

_NUMBERS = (0, 1, 2, -1, 7, 91, 4095, 4096, 4097, *(sign << bits for bits in (15, 31, 63) for sign in (1, -1)))
#: What any of them may take; a millisecond is usual.
_SECONDS = 20
_HUGE = (1 << 40, (1 << 62) + 20)
_NAMES = (
    "99999999999999999999", "09223372036854775807", "09223372036854775808", "00000000000000000001",
    "00000000000000004096 ", "-0000000000000004096", "99999999999999999", "00000000000000000", "topics.json",
    "x" * 255, "\udcff", "..\\..", "%00",
)  # fmt: skip
_TOPICS = (
    b"../../", b"/etc/p", b"a/../b", b".\0.\0.\0", b"......", b"%LMQ%/", b"\xff\xfe\xfd\xfc\xfb\xfa", b"x\ny\rz\t",
)  # fmt: skip
_PROPERTIES = (
    b"\x01", b"\x02", b"\0", b"KEYS\x01 ", b"TAGS\x01\x02", b"INNER_NUM\x019\x02", b"DELAY\x01-9\x02", b"\xff",
)  # fmt: skip
#: Of each kind of table: its folder, bytes of a unit, and where its numbers begin.
_UNITS = (
    ("consumequeue", 20, (0, 0, 8, 12)), ("batchconsumequeue", 46, (0, 8, 12, 20, 28, 36, 38)),
    ("consumequeue_ext", 1, (0,)), ("index", 1, (0,)),
)  # fmt: skip
_INDEX_SIZES = (40, 41, 44, 60, 64, 84, 100, 124, 1 << 20, 3 << 30, 1 << 37)
_VALUES: tuple[Any, ...] = (
    -1, 0, 1, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, 10**30, -(1 << 63), 1.5, True, None, "x", "../../x",
    "\0", [], {},
)  # fmt: skip
DEEP = 200_000
#: Each array names the one before twenty times.
LAUGHS = b'{"a0":["xxxxxxxxxxxxxxxx"]' + b"".join(
    b',"a%d":[%s]' % (level, b",".join([b'{"$ref":"$.a%d"}' % (level - 1)] * 20)) for level in range(1, 40)
) + b"}"  # fmt: skip
_TEXTS = (
    b"", b"\0", b"\xff\xfe{\0}\0", b"[" * DEEP, b'{"a":' * DEEP, b"-" * 70, b"9" * 100_000, b"null", b"[]", b'""',
    b"1e999", LAUGHS, b'{"offset":-1}', b'{"offset":1e999}',
    b'{"commitLogEnd":1e999,"indexFileCount":1e999,"maxOffsets":{}}',
    b'{"commitLogEnd":Infinity,"maxOffsets":{"t":{"0":NaN}}}',
    b'{"commitLogEnd":0,"indexFileCount":0,"maxOffsets":{"../../x":{"-1":-1,"99999999999999999999":9e99}}}',
    b'{"topicConfigTable":{"../../x":{"topicName":"../../x","readQueueNums":2147483648}}}',
    b'{"topicConfigTable":{"orders":{"topicName":"orders","attributes":{"queue.type":"BatchCQ"}}}}',
    b'{"topicConfigTable":[],"dataVersion":{"counter":1e999}}',
    b'{"intent":{"sink":"x","beginOffset":-1,"endOffset":99999999999999999999},"commits":{}}',
    b'{"marks":[{"offset":-1,"last":7}],"settings":{"maxHashSlotNum":"9"}}',
)  # fmt: skip
_NO_FILES = (
    "pipe", "socket", "folder", "/dev/zero", "/dev/full", "/dev/null", "/proc/self/mem", "itself", "nowhere",
)  # fmt: skip
_CONFIGS = ("topics.json", "reputShutdown.json", "reputSinks.json", "reputDispatch.json", "consumerOffset.json")


def _set_field(path: Path, chance: random.Random) -> str:
    """One field of one file, by its name: so rare ones are as likely as a body."""
    by_name: dict[str, list[FileField]] = {}
    for field in fields_of(path):
        by_name.setdefault(field.name, []).append(field)
    name = chance.choice(sorted(by_name))
    field = chance.choice(by_name[name])
    size = min(field.size, 8)
    value = chance.choice(_NUMBERS) % (1 << 8 * size)
    with field.file.open("r+b") as file:
        file.seek(field.position)
        file.write(value.to_bytes(size, "big"))
    return f"a field: {name}"


def _set_topic(path: Path, chance: random.Random) -> str:
    """A record says that it is of a topic that leads elsewhere: its body's CRC does not cover that."""
    topics = [field for field in fields_of(path) if field.name.startswith("log TOPIC") and field.size == 6]
    field = chance.choice(topics)
    with field.file.open("r+b") as file:
        file.seek(field.position)
        file.write(chance.choice(_TOPICS).ljust(6, b"/")[:6])
    return "a topic"


def _set_properties(path: Path, chance: random.Random) -> str:
    fields = [field for field in fields_of(path) if field.name == "log PROPERTIES"]
    field = chance.choice(fields)
    mark = chance.choice(
        [b"\x01", b"\x02", b"\0", b"KEYS\x01 ", b"TAGS\x01\x02", b"INNER_NUM\x019\x02", b"DELAY\x01-9\x02", b"\xff"]
    )
    with field.file.open("r+b") as file:
        file.seek(field.position)
        file.write((mark * field.size)[: field.size])
    return "properties"


def _set_text(path: Path, chance: random.Random) -> str:
    name = chance.choice(_CONFIGS)
    folder = path / "config"
    for file in (folder / name, folder / f"{name}.bak"):
        file.write_bytes(chance.choice(_TEXTS))
    return f"a text: {name}"


def _any_file(path: Path, chance: random.Random) -> Path:
    kinds: dict[str, list[Path]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            kinds.setdefault(file.relative_to(path).parts[0], []).append(file)
    return chance.choice(kinds[chance.choice(sorted(kinds))])


def _put_in_place(path: Path, chance: random.Random) -> str:
    """Something that is no file in the place of one."""
    file = _any_file(path, chance)
    kind = chance.choice(
        ["pipe", "socket", "folder", "/dev/zero", "/dev/full", "/dev/null", "/proc/self/mem", "itself", "nowhere"]
    )
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            here = Path.cwd()
            os.chdir(file.parent)
            one.bind(file.name)
            os.chdir(here)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to({"itself": file.name, "nowhere": "nowhere"}.get(kind, kind))
    return f"in place of a file: {kind}"


def _link_folder(path: Path, chance: random.Random) -> str:
    """A folder that is a link: upwards, to itself, to nowhere, or to where it was moved."""
    folders = [folder for folder in sorted(path.rglob("*")) if folder.is_dir()]
    folder = chance.choice(folders)
    kind = chance.choice(["..", "itself", "nowhere", "moved"])
    aside = path.parent / "moved"
    folder.rename(aside)
    folder.symlink_to({"moved": str(aside), "itself": folder.name}.get(kind, kind))
    return f"a folder that links to: {kind}"


def _grow(path: Path, chance: random.Random) -> str:
    """A file, or all beside it, of a size that no memory holds; all of it is a hole."""
    file = _any_file(path, chance)
    beside = [one for one in sorted(file.parent.iterdir()) if one.is_file()]
    for one in [file] if chance.random() < 0.5 else beside:
        size, more = chance.choice(_HUGE), one.stat().st_size % 4096
        try:
            os.truncate(one, size + more)
        except OSError:  # more than this file system can say; ext4 ends at 16 TiB
            size = _HUGE[0]
            os.truncate(one, size + more)
    return f"grown to {size >> 40} TiB: {file.relative_to(path).parts[0]}"


def _name(path: Path, chance: random.Random) -> str:
    file = _any_file(path, chance)
    name = chance.choice(_NAMES)
    if chance.random() < 0.5:
        file.rename(file.with_name(name))
        return "renamed"
    shutil.copyfile(file, file.with_name(name))
    return "a copy of another name"


def set_many(path: Path, chance: random.Random) -> str:
    """Many fields of queues, batch queues, extensions and index at once, and what a start knows of their ends."""
    for folder, size, places in _UNITS:
        for file in sorted((path / folder).rglob("*")):
            if not file.is_file() or chance.random() < 0.3:
                continue
            data = bytearray(file.read_bytes())
            used = len(bytes(data).rstrip(b"\0"))
            for _ in range(chance.randrange(1, 12)):
                position = chance.randrange(max(1, used // size)) * size + chance.choice(places)
                width = chance.choice((4, 8))
                number = chance.choice((*_NUMBERS, *(chance.randrange(70_000) for _ in range(8)), 1 << 62))
                new = (number % (1 << 8 * width)).to_bytes(width, "big")
                data[position : position + width] = new[: max(0, len(data) - position)]
            file.write_bytes(data)
    if chance.random() < 0.5:
        (path / "config" / "reputShutdown.json").unlink(missing_ok=True)
    if chance.random() < 0.3:
        (path / "abort").write_text("1")
    return "many units and entries"


def set_index(path: Path, chance: random.Random) -> str:
    """One index file, of any size, whose header says anything."""
    for file in sorted((path / "index").iterdir()):
        file.unlink()
    size, header = chance.choice(_INDEX_SIZES), [chance.choice((*_NUMBERS, 5, 100)) for _ in range(6)]
    with (path / "index" / "20261127111826005").open("wb") as made:
        numbers = (number % (1 << bits) for number, bits in zip(header, (64, 64, 64, 64, 32, 32), strict=True))
        made.write(struct.pack(">QQQQII", *numbers))
        made.truncate(size)
    return f"an index file of any size: {size} bytes"


def set_value(path: Path, chance: random.Random) -> str:
    """One value of a file that only reput writes, whose CRC fits."""
    name, content = chance.choice(sorted(_own_files(path).items()))
    places = sorted(_places(content), key=str)
    *steps, last = chance.choice(places)
    inner: Any = content
    for step in steps:
        inner = inner[step]
    inner[last] = chance.choice(_VALUES)
    (path / "config" / name).write_bytes(encode_with_crc(content))
    if name == RECOVERY_FILE:
        (path / "abort").write_text("1")
    return f"a value: {name}"


def _own_files(path: Path) -> dict[str, dict[str, Any]]:
    """Content of the files that only reput writes, of a store that each of them could be of."""
    index = sorted(file.name for file in (path / "index").iterdir())[0]
    batch = {"sinkId": "s", "batchId": 2, "queryId": None}
    commit = {"batch": batch, "beginOffset": 0, "endOffset": 100, "rows": 3, "storeTimestamp": 5}
    part = {"path": str(path / "part"), "rows": 3, "size": 300, "crc": 1}
    intent = {"batch": batch, "beginOffset": 20_000, "storeTimestamp": 1 << 40, "lastStoreTimestamp": 0}
    intent |= {"propertyCrc": False, "parts": [part]}
    settings = settings_of(MessageStoreConfig.from_mapping(SMALL))
    last = {"offset": 0, "storeTimestamp": 5, "headerSize": 100, "headerCrc": 7}
    mark = {"offset": 300, "last": last, "index": {"name": index, "header": [1, 2, 0, 100, 1, 3]}}
    return {
        SHUTDOWN_FILE: {"commitLogEnd": 4000, "indexFileCount": 1, "maxOffsets": {"orders": {"0": 5, "1": 6}}},
        SINKS_FILE: {"commits": {"s": commit}, "broken": {}, "begun": 2, "intent": intent},
        DISPATCH_FILE: {"settings": settings, "marks": [mark, {"offset": 0}]},
        RECOVERY_FILE: {"settings": settings, "mark": mark},
    }


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a JSON value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield (*path, name)
        yield from _places(member, (*path, name))


_WAYS: tuple[Callable[[Path, random.Random], str], ...] = (
    _set_field, _set_field, _set_field, _set_topic, _set_properties, _set_text, _put_in_place, _link_folder, _grow,
    _name, set_many, set_many, set_index, set_value, set_value,
)  # fmt: skip


def run(folder: Path, seed: int) -> Counter[str]:
    """One store, done something to; then everything that looks at stores looks at it, in a process of its own."""
    chance = random.Random(seed)
    source = sample(with_crc=bool(seed % 2), closed=chance.random() < 0.5)
    path = folder / "store"
    shutil.copytree(source.path, path)
    done = chance.choice(_WAYS)(path, chance)
    return Counter({"hostile stores": 1, f"way: {done.partition(':')[0]}": 1}) + look_at(path, source, done)


def look_at(path: Path, source: Sample, done: str) -> Counter[str]:
    """Let everything look at a store that something was `done` to; AssertionError for a broken promise."""
    counts: Counter[str] = Counter()
    last = _open_for_another if done == f"a value: {DISPATCH_FILE}" else _open
    for look in (_read, _audit, _count, _rebuild, _open_to_read, last):
        before = _shape(path)
        try:
            told = in_child(partial(look, path, source), seconds=_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{done}: {look.__name__.strip('_')}: {error}") from None
        assert told.total() == 1
        counts += told
        if look is not last or "refused" in next(iter(told)):
            changed = {name for name, _ in before.items() ^ _shape(path).items()}
            assert not changed, f"{done}: {look.__name__.strip('_')} has changed {sorted(changed)}"
    return counts


def _shape(path: Path) -> dict[str, object]:
    """Mark that shows a change of anything, without reading terabytes."""
    found: dict[str, object] = {}
    for file in sorted(path.rglob("*")):
        status = file.lstat()
        name = str(file.relative_to(path))
        if not name.endswith("lock"):  # a start leaves those behind: taking them away would race with RocketMQ's
            found[name] = status.st_mode, status.st_size, file.is_dir() or status.st_mtime_ns
    return found


def _told(name: str, deed: Callable[[], object]) -> Counter[str]:
    try:
        deed()
    except ReputError:
        return Counter([f"{name}: refused"])
    return Counter([f"{name}: works"])


def _read(path: Path, source: Sample) -> Counter[str]:
    def look() -> None:
        for batch in reput.read_log(path, ["commit_log_offset", "body", "status", "properties", "keys"]):
            for row in batch.to_pylist():
                if row["status"] in (None, "OK"):
                    _check_body(source, row["commit_log_offset"], row["body"])

    return _told("read_log", look)


def _audit(path: Path, source: Sample) -> Counter[str]:
    return _told("audit", lambda: audit(path, runner=LocalRunner(1)))


def _count(path: Path, source: Sample) -> Counter[str]:
    return _told("statistics", lambda: statistics(path, runner=LocalRunner(1)))


def _rebuild(path: Path, source: Sample) -> Counter[str]:
    output = path.parent / "rebuilt"
    return _told("rebuild", lambda: rebuild(path, output, runner=LocalRunner(1), damaged="skip"))


def _open_to_read(path: Path, source: Sample) -> Counter[str]:
    def look() -> None:
        with reput.MessageStore.open(path, read_only=True, **source.options) as store:
            _look(store, source)

    return _told("open to read", look)


def _open(path: Path, source: Sample) -> Counter[str]:
    try:
        store = reput.MessageStore.open(path, **source.options)
    except ReputError:
        return Counter(["open: refused"])

    def look() -> None:
        with store:
            _look(store, source)
            store.put_message(reput.Message("later", b"x"))

    return _told("opened", look)


def _open_for_another(path: Path, source: Sample) -> Counter[str]:
    """A start that lets another process dispatch."""

    def look() -> None:
        options = {name: value for name, value in source.options.items() if name != "bit_maps"}
        with reput.MessageStore.open(path, dispatch="external", **options) as store:
            _look(store, source)

    return _told("opened for another that dispatches", look)


def _look(store: reput.MessageStore, source: Sample) -> None:
    """Every pull, query and search answers, or says what is wrong; what it gives has the body that was put there."""
    for queue in list(store.queues()):
        for offset in (queue.min_offset, queue.max_offset - 1, 0, 1):
            for count, tags in ((8, None), (1000, "a || b")):
                with suppress(ReputError):
                    got = store.get_message(queue.topic, queue.queue_id, offset, count, tags=tags)
                    for message in got.messages():
                        _check_body(source, message.commit_log_offset, bytes(message.body))
            with suppress(ReputError):
                store.offset_by_time(queue.topic, queue.queue_id, offset)
    for topic in TOPICS:
        with suppress(ReputError):
            for messages in store.query_messages(topic, KEYS).values():  # bodies are not compared with CRCs here
                assert all(message.topic == topic and message.body is not None for message in messages)
    for place in (-5, -1, 0, 77, 1 << 40, (1 << 63) - 1):
        with suppress(ReputError):
            store.look_message_by_offset(place)
    with suppress(ReputError):
        store.runtime_info()


def _check_body(source: Sample, commit_log_offset: int, body: bytes) -> None:
    put = source.put.get(commit_log_offset)
    assert put is None or put[2] == body, f"{commit_log_offset}: another body than was put"


PART = Part(
    "hostile", "files made by an enemy: extremes, links, pipes, huge sizes, names, texts", 600, run, ("hostile stores",)
)
