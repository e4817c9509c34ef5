"""Rejoin: make a former master ready to follow the new one, by giving up the records that the new one does not have.

Two logs of one history are equal up to some byte, and different from there on, as each record has its own offset and
store time. So the last log file whose first bytes are equal is found by halving, and compared byte by byte from there.
What the store has after the last common record is kept beside the log and cut off, and a repair brings queues and index
in step with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reput.client.instance.session_credentials import SessionCredentials
from reput.errors import ReplicationError, StoreFormatError
from reput.files import DISK, FileLayer
from reput.files.truncate import truncate_files
from reput.jobs.rebuild.originals import keep_tail
from reput.jobs.rebuild.swap import locked
from reput.jobs.repair.repair_job import RepairResult, repair
from reput.jobs.runner import Runner
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory
from reput.log.failed_sync import watched
from reput.log.scan import find_end, scan_split
from reput.log.splits import Split
from reput.progress import Progress
from reput.replication.ha_stream import HAStream
from reput.replication.master import Master, MasterLog, ha_address
from reput.transport.tls import ClientTls

#: Bytes of a file that are compared to see whether it is the master's.
_FIRST_BYTES = 64 << 10
_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Messages of one topic that the master does not have; times in ms since 1970 UTC."""

    topic: str
    messages: int
    bytes: int
    first_store_timestamp: int
    last_store_timestamp: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Difference of a store from its new master: the end of the common records, and the records after it.

    Attributes:
        common_offset: Commit log offset after the last common record.
        end_offset: Commit log offset after the store's last record.
        master: Where the master's log begins and ends.
        topics: What the store has after the last common record.
        kept: Files with the bytes that were given up; none before.
        repair: What was done to queues and index; None before.
    """

    common_offset: int
    end_offset: int
    master: MasterLog
    topics: tuple[GivenUp, ...]
    kept: tuple[str, ...] = ()
    repair: RepairResult | None = None


def rejoin(
    store_path: str | os.PathLike[str],
    master: str,
    *,
    apply: bool = False,
    credentials: SessionCredentials | None = None,
    tls: ClientTls | None = None,
    runner: Runner,
    progress: Progress | None = None,
    files: FileLayer = DISK,
    **settings: Any,
) -> Rejoin:
    """Compare the log of a closed store with that of a running broker; with `apply` give up what is not common.

    A call that was killed, and is made again, ends the same.

    Args:
        store_path: The store.
        master: The broker, "host:port".
        apply: Keep the records that only the store has beside its log, in `commitlog.broken`, and cut them off; then
            repair queues and index.
        credentials: Sign what the broker is asked; None for none.
        tls: How to talk TLS to it; None for the plain protocol. The HA port is always plain.
        runner: Of the repair.
        progress: Of the repair.
        files: The file layer.
        settings: Of the repair: file sizes and more, if the store's files do not tell them.

    Raises:
        ReplicationError: The logs have nothing in common, or their files have different sizes. Nothing was changed.
        RemotingError: The broker cannot be asked. Nothing was changed.
        StoreFormatError: No store, or one without messages.
        StoreLockedError: With `apply`: another process has the store open.
        CorruptRecordError: Damage in the store's log: repair it first.
    """
    directory = StoreDirectory(store_path, files=files)
    asked = Master(master, tls=tls, credentials=credentials)
    if not apply:
        return _compare(directory, asked, files)
    with locked(directory.path), watched(directory.path, files):
        found = _compare(directory, asked, files)
        series = [(file.path, file.start_offset) for file in directory.log_files()]
        kept = tuple(truncate_files(files, series, found.common_offset, keep=keep_tail))
    repaired = repair(directory.path, apply=True, runner=runner, progress=progress, **settings)
    return Rejoin(found.common_offset, found.end_offset, found.master, found.topics, kept, repaired)


def _compare(directory: StoreDirectory, master: Master, files: FileLayer) -> Rejoin:
    log_files = directory.log_files()
    if not log_files:
        raise StoreFormatError(f"{directory.path}: no messages: a slave begins with the whole log of its master")
    address = master.address
    try:
        config, log = master.config(), master.log()
    finally:
        master.close()
    size = config.get("mappedFileSizeCommitLog", str(log_files[0].size))
    if size != str(log_files[0].size):
        raise ReplicationError(
            f"{directory.path}: log files of {log_files[0].size} bytes, and {address} has log files of {size}: "
            "its log cannot be followed"
        )
    end = _end(log_files, files)
    upper = min(end, log.max_offset)
    logs = _Logs(files, ha_address(address, config), upper)
    both = [file for file in log_files if log.min_offset <= file.start_offset < upper]
    common = _whole_records(log_files, _common(logs, both), files) if both else 0
    if not both or common == both[0].start_offset:
        raise ReplicationError(
            f"{directory.path}: the log of {log_files[0].start_offset} to {end} has no record in common with that of "
            f"{address}, {log.min_offset} to {log.max_offset}: nothing can be kept; follow into a new store"
        )
    return Rejoin(common, end, log, tuple(_given_up(log_files, common, files)))


def _end(log_files: list[LogFile], files: FileLayer) -> int:
    """Offset after the last record; the files after it may be empty, if a cut was killed."""
    for file in reversed(log_files):
        end = find_end(file, files)
        if end > file.start_offset:
            return end
    return log_files[0].start_offset


class _Logs:
    """The store's log and the master's, up to the end of the shorter one."""

    def __init__(self, files: FileLayer, ha: str, upper: int) -> None:
        self._files, self._ha, self.upper = files, ha, upper

    def first_difference(self, file: LogFile, begin: int, end: int) -> int | None:
        """Offset of the first byte of [begin, end) in a file of ours that differs; None if all are equal."""
        end = min(end, self.upper)
        with self._files.open(file.path) as opened:
            for offset, theirs in self._of_master(begin, end):
                ours = opened.read(offset - file.start_offset, len(theirs))
                if ours != theirs:
                    return offset + _first_difference(ours, theirs)
        return None

    def _of_master(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Offset and bytes of the master's log in [begin, end), in pieces. Byte 0, which cannot be asked for, is 0."""
        if begin == 0 and end:
            yield 0, b"\0"
            begin = 1
        if begin >= end:
            return
        stream = HAStream(self._ha, waits_for_bytes=True)
        try:
            stream.report(begin)
            while begin < end:
                for offset, body in stream.frames(_WAIT_S):
                    if offset != begin:
                        raise ReplicationError(f"{stream.address}: goes on at {offset}, expected {begin}")
                    taken = bytes(body[: end - begin])
                    if taken:
                        yield begin, taken
                        begin += len(taken)
                    if begin == end:
                        return
                stream.release()
        finally:
            stream.close()


def _first_difference(ours: bytes, theirs: bytes) -> int:
    """The first place where two texts differ; they do."""
    low, high = 0, len(theirs)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ours[:middle] == theirs[:middle] else (low, middle)
    return low


def _common(logs: _Logs, both: list[LogFile]) -> int:
    """Offset of the first byte that differs, or of the end of the shorter log."""
    low, high = -1, len(both)
    while high - low > 1:
        middle = (low + high) // 2
        file = both[middle]
        differs = logs.first_difference(file, file.start_offset, file.start_offset + _FIRST_BYTES) is not None
        low, high = (low, middle) if differs else (middle, high)
    for file in both[max(low, 0) :]:
        difference = logs.first_difference(file, file.start_offset, file.end_offset)
        if difference is not None:
            return difference
    return logs.upper


def _whole_records(log_files: list[LogFile], offset: int, files: FileLayer) -> int:
    """Offset after the last record that ends at or before an offset."""
    file = next(one for one in reversed(log_files) if one.start_offset < offset or one is log_files[0])
    end = file.start_offset
    scan = scan_split(Split(file, file.start_offset, offset, True), level=ScanLevel.HEADER, files=files)
    for columns in scan:
        ends = columns["commit_log_offset"] + columns["store_size"]
        whole = ends[ends <= offset]
        if whole.size:
            end = int(whole[-1])
    return offset if offset == file.end_offset else end


def _given_up(log_files: list[LogFile], common: int, files: FileLayer) -> Iterator[GivenUp]:
    found: dict[str, GivenUp] = {}
    for file in log_files:
        if file.end_offset <= common:
            continue
        begin = max(file.start_offset, common)
        for columns in scan_split(Split(file, begin, file.end_offset, True), level=ScanLevel.QUEUES, files=files):
            for number, (name, _) in enumerate(columns.queues()):
                topic, rows = name.decode(errors="replace"), columns["queue"] == number
                times = columns["store_timestamp"][rows]
                one = GivenUp(topic, times.size, int(columns["store_size"][rows].sum()), int(times[0]), int(times[-1]))
                found[topic] = _sum(found.get(topic), one)
    yield from sorted(found.values(), key=lambda one: -one.messages)


def _sum(before: GivenUp | None, one: GivenUp) -> GivenUp:
    if before is None:
        return one
    return GivenUp(
        one.topic, before.messages + one.messages, before.bytes + one.bytes,
        min(before.first_store_timestamp, one.first_store_timestamp),
        max(before.last_store_timestamp, one.last_store_timestamp),
    )  # fmt: skip
