"""Stores to be damaged: small, with every kind of file and of record, closed or killed; and all that one answers."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import reput
from reput.formats.metadata import TopicConfig
from reput.formats.record_layout import SysFlag
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.further_units import bit_maps
from tests.support.invariants import SMALL

TOPICS = ("orders", "refunds")
KEYS = [f"k{number}" for number in range(21)]


class Sample(NamedTuple):
    """A store, not to be changed, or only for a moment; `options` open it."""

    path: Path
    options: dict[str, Any]
    #: Commit log offset -> topic, queue id and body of each message that was put, but for those of inner batches.
    put: dict[int, tuple[str, int, bytes]]


@cache
def sample(*, with_crc: bool, closed: bool) -> Sample:
    """Made once a process. One with CRCs of whole records has consume queue extensions, too."""
    folder = tempfile.mkdtemp(prefix="reput-campaign-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options = SMALL | {"enabled_append_prop_crc": with_crc, "enable_multi_dispatch": True, "enable_lmq": True}
    if with_crc:
        options |= {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 128, "bit_maps": bit_maps}
    made = Sample(Path(folder) / "store", options, {})
    files = FaultyFiles()
    store = reput.MessageStore.open(made.path, files=files, **options)
    _fill(store, made.put)
    store.close()
    if not closed:
        abandon(reput.MessageStore.open(made.path, files=files, **options), files)
    return made


def _fill(store: reput.MessageStore, put: dict[int, tuple[str, int, bytes]]) -> None:
    store.update_topic(TopicConfig("batches", attributes={"queue.type": "BatchCQ"}))
    store.update_topic(TopicConfig("orders", order=True))
    kinds = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK, SysFlag.TRANSACTION_COMMIT)
    for number in range(21):
        topic = TOPICS[number % 2]
        properties = {"region": "eu"} if number % 5 else {"INNER_MULTI_DISPATCH": "%LMQ%a"}
        message = reput.Message(
            topic, bytes([number]) * (number * 5), tags=("", "a", "b")[number % 3], properties=properties,
            keys=[KEYS[number]] if number % 4 else [], born_host="[2001:db8::1]:4711" if number == 7 else None,
            sys_flag=int(kinds[number - 10]) if 10 <= number < 13 else 0, flag=number,
        )  # fmt: skip
        result = store.put_message(message, number // 2 % 2)
        put[result.commit_log_offset] = topic, number // 2 % 2, bytes(message.body)
        if number % 8 == 5:
            items = [reput.Message("batches", bytes([number, item]) * 20) for item in range(3)]
            store.put_batch(reput.MessageExtBatch.of(items, unique_key="U"))


def answers(store: reput.MessageStore) -> list[object]:
    """All that an open store gives to those who read it: every queue, offset, key and time."""
    found: list[object] = [sorted((name, str(topic)) for name, topic in store.topics.items())]
    for queue in sorted(store.queues(), key=lambda one: (one.topic, one.queue_id)):
        name, queue_id = queue.topic, queue.queue_id
        times = [store.offset_by_time(name, queue_id, when) for when in (0, 1 << 42)]
        found.append((name, queue_id, queue.min_offset, queue.max_offset, times))
        for tags in (None, "a"):
            offset = queue.min_offset
            while offset < queue.max_offset:
                got = store.get_message(name, queue_id, offset, tags=tags)
                found.append((got.status.name, got.next_begin_offset, [_said(one) for one in got.messages()]))
                assert got.next_begin_offset > offset, "a pull that does not move on"
                offset = got.next_begin_offset
    begin = store.earliest_time()  # not the present, from which the first messages go farther and farther away
    found.append(store.query_messages(TOPICS[0], KEYS, begin=begin, end=begin + 60_000).offsets.size)
    for topic in TOPICS:
        found.append({key: [_said(one) for one in hits] for key, hits in store.query_messages(topic, KEYS).items()})
    return found


def _said(message: Any) -> tuple[object, ...]:
    return (
        message.commit_log_offset, message.queue_offset, message.topic, bytes(message.body), message.keys,
        message.tags, sorted(pair for pair in message.properties.items() if pair[0] != "__CRC32#"),
    )  # fmt: skip


def log_answers(path: Path) -> pa.Table:
    """Every column of every record."""
    return reput.read_log(path).read_all()


def contents(path: Path, leave_out: tuple[str, ...] = ("lock",)) -> dict[str, str]:
    """Path -> SHA-256 of each file, or where a link leads."""
    return {
        str(file.relative_to(path)): str(file.readlink())
        if file.is_symlink()
        else hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if (file.is_symlink() or file.is_file()) and file.name not in leave_out
    }
