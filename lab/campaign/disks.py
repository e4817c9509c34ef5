"""A disk that becomes full, again and again: a small tmpfs, a limit for file sizes, or a file layer that says so.

Meanwhile puts are refused, or stored; nothing that was acknowledged is lost, nothing dies of a signal; and once there
is space again the same store goes on by itself.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import reput
import reput.store.dispatch.reput
from lab.campaign.cases import Part
from lab.campaign.children import in_child
from reput.errors import StoreFullError
from reput.files import FileLayer
from reput.formats.metadata import TopicConfig
from tests.support.faulty_files import TAKES_SPACE, FaultyFiles, Operation
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, check_store
from tests.support.small_tmpfs import fill, mount_tmpfs

_ROUNDS = 3
_PUTS = 30
_TMPFS_BYTES = 2 << 20
_OPTIONS = SMALL | {"flush_interval_consume_queue": 10, "flush_interval_commit_log": 10}


class _Space:
    """Disk space that is taken away and given back. The file layer's form."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.path = folder / "store"
        self.code = chance.choice((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
        self.part = chance.choice(("", "", "commitlog", "consumequeue", "index", "checkpoint", "config"))
        self.is_full = False

    def files(self) -> FileLayer:
        """The layer of the next store."""
        return FaultyFiles(self._judge)

    def _judge(self, operation: Operation) -> None:
        if self.is_full and operation.kind in TAKES_SPACE and self.part in operation.path[len(str(self.path)) :]:
            raise OSError(self.code, os.strerror(self.code))

    def take(self) -> None:
        self.is_full = True

    def give(self) -> None:
        self.is_full = False


class _Limit(_Space):
    """No file may be longer than a few bytes (RLIMIT_FSIZE); Python ignores the signal that comes with it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(folder, chance)
        self.bytes = chance.choice((0, 100, 300, 600, 4095, 5000))
        assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN

    def files(self) -> FileLayer:
        return FileLayer()

    def take(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.bytes, resource.RLIM_INFINITY))

    def give(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class _Tmpfs(_Space):
    """A file system of its own, filled up by another file but for some pages."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(folder, chance)
        mount_tmpfs(folder, _TMPFS_BYTES)
        self._ballast = folder / "ballast"
        self._pages = chance.choice((0, 0, 1, 2, 3, 7))

    def files(self) -> FileLayer:
        return FileLayer()

    def take(self) -> None:
        fill(self._ballast, self._pages)

    def give(self) -> None:
        self._ballast.unlink(missing_ok=True)


_KINDS: tuple[type[_Space], ...] = (_Space, _Limit, _Tmpfs)


def run(folder: Path, seed: int) -> Counter[str]:
    """A store that meets a full disk some times, opened anew in between, and maybe while it is full."""
    kind = _KINDS[seed % len(_KINDS)]
    life = partial(_live, kind, folder, random.Random(seed))
    return life() if kind is _Space else in_child(life)


def _live(kind: type[_Space], folder: Path, chance: random.Random) -> Counter[str]:
    reput.store.dispatch.reput.RETRY_WAIT_S = 0.01
    try:
        space = kind(folder, chance)
    except OSError as error:
        return Counter({f"not done, {error.strerror}": 1})
    counts: Counter[str] = Counter({f"kind: {kind.__name__.strip('_').lower()}": 1})
    options = _OPTIONS | {"flush_disk_type": chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))}
    acknowledged: list[Acknowledged] = []
    for _ in range(_ROUNDS):
        with _opened(space, options, counts, while_full=chance.random() < 0.3) as store:
            for full in (False, True, False, True, False):
                space.take() if full else space.give()
                counts["times full"] += full
                for _ in range(_PUTS // 5):
                    _put(store, chance, acknowledged, counts, may_refuse=full)
            store.wait_dispatched(timeout=30)
            check_acknowledged(store, acknowledged)
    check_store(space.path)
    counts["acknowledged messages"] = len(acknowledged)
    return counts


def _opened(space: _Space, options: dict[str, Any], counts: Counter[str], *, while_full: bool) -> reput.MessageStore:
    """The store, opened where there is space; before that maybe where there is none."""
    if while_full:
        space.take()
        try:
            reput.MessageStore.open(space.path, files=space.files(), **options).close()
        except StoreFullError:
            counts["starts refused"] += 1
        space.give()
    return reput.MessageStore.open(space.path, files=space.files(), **options)


def _put(
    store: reput.MessageStore,
    chance: random.Random,
    acknowledged: list[Acknowledged],
    counts: Counter[str],
    *,
    may_refuse: bool,
) -> None:
    """One put of any kind; it is refused only while the disk is full, and by the one error that says so."""
    number = counts["puts"]
    counts["puts"] += 1
    ways: tuple[Callable[[reput.MessageStore, str, bytes], list[Acknowledged]], ...] = (
        _single, _single, _later, _several, _batch, _table, _topic,
    )  # fmt: skip
    try:
        acknowledged += chance.choice(ways)(store, f"key-{number}", chance.randbytes(chance.randrange(900)))
    except StoreFullError:
        assert may_refuse, "refused although there is space"
        counts["puts refused"] += 1


def _told(key: str, body: bytes, result: reput.PutMessageResult) -> list[Acknowledged]:
    if result.status is not reput.PutMessageStatus.PUT_OK:
        return []
    return [Acknowledged("orders", 0, result.queue_offset, result.commit_log_offset, key, body)]


def _single(store: reput.MessageStore, key: str, body: bytes) -> list[Acknowledged]:
    return _told(key, body, store.put_message(reput.Message("orders", body, keys=[key])))


def _later(store: reput.MessageStore, key: str, body: bytes) -> list[Acknowledged]:
    return _told(key, body, store.async_put_message(reput.Message("orders", body, keys=[key])).result(30))


def _several(store: reput.MessageStore, key: str, body: bytes) -> list[Acknowledged]:
    keys = [f"{key}-{n}" for n in range(3)]
    results = store.put_messages([reput.Message("orders", body, keys=[one]) for one in keys])
    return [one for key, result in zip(keys, results, strict=True) for one in _told(key, body, result)]


def _batch(store: reput.MessageStore, key: str, body: bytes) -> list[Acknowledged]:
    keys = [f"{key}-{n}" for n in range(3)]
    result = store.put_batch([reput.Message("orders", body, keys=[one]) for one in keys])
    if result.status is not reput.PutMessageStatus.PUT_OK:
        return []
    places = enumerate(zip(keys, result.commit_log_offsets, strict=True))
    return [Acknowledged("orders", 0, result.queue_offset + n, at, one, body) for n, (one, at) in places]


def _table(store: reput.MessageStore, key: str, body: bytes) -> list[Acknowledged]:
    """Rows of a table that is refused may be there, whole: they count for nothing."""
    store.put_arrow(pa.table({"topic": ["tables"] * 5, "body": [body] * 5}))
    return []


def _topic(store: reput.MessageStore, key: str, body: bytes) -> list[Acknowledged]:
    store.update_topic(TopicConfig(key))
    assert key in store.topics
    return []


PART = Part(
    "disks",
    "a disk that is full for a while: tmpfs, file size limit, file layer",
    400,
    run,
    ("times full", "puts refused", "acknowledged messages"),
)
