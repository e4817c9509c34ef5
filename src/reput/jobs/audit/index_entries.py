"""Compare index files with the log: each key of a range of records has its entry, with its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.index_file import HEADER_POSITIONS, PHY_OFFSET, entry_position
from reput.formats.java import INT32_MAX
from reput.jobs.audit.ascending_runs import AscendingRun, EntryFiles, Int64s, Slice
from reput.jobs.audit.index import AuditedIndexFile
from reput.kernels.queues.index_file import IndexKeys, index_keys
from reput.kernels.queues.unit_types import INDEX_ENTRY_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.scan import MAX_ROWS, gaps_of

#: State of an entry: its record's; once more the same; its record's with a wrong time. Other entries lead nowhere.
VERIFIED, REPEATED, WRONG_TIME = range(3)


@dataclass(frozen=True, slots=True)
class KeyTarget:
    """Index files that keys are compared with.

    Attributes:
        files: oldest first, each checked by itself.
        slots: count of hash slots of each file.
        may_follow: whether an older file may have been deleted by retention.
    """

    files: tuple[AuditedIndexFile, ...]
    slots: int
    may_follow: bool

    @property
    def runs(self) -> list[AscendingRun]:
        """Ascending runs of all files."""
        return [run for file in self.files for run in file.runs]


class EntryRanges(NamedTuple):
    """Ranges of consecutive entries of one file, int64[n] each. `files` are numbers into `KeyTarget.files`."""

    files: Int64s
    firsts: Int64s
    counts: Int64s
    states: Int64s


@dataclass(frozen=True, slots=True)
class MissingKeys:
    """`count` adjacent keys without entries, of records from commit log offset `first` to `last`."""

    first: int
    last: int
    count: int

    def joined(self, following: MissingKeys) -> MissingKeys:
        """This range and the following one as one, if no key with an entry is between them."""
        return MissingKeys(self.first, following.last, self.count + following.count)


class WrongTime(NamedTuple):
    """Time in the header of an index file, at `position`, that is not the time of the file's first or last record."""

    file: int
    position: int
    expected: int


class KeyAudit(NamedTuple):
    """Result of comparing the index with the records of one task.

    Attributes:
        last: commit log offset of the last record that has an entry, -1 if no record has one.
        begins_missing: whether no key with an entry comes before the first key without one.
        ends_missing: whether no key with an entry comes after the last key without one.
    """

    entries: EntryRanges
    missing: tuple[MissingKeys, ...]
    wrong_times: tuple[WrongTime, ...]
    last: int
    begins_missing: bool
    ends_missing: bool


class KeyCheck:
    """Compares index entries with the records of one task. `close` returns the result.

    RocketMQ 5.5.0 indexes tags, too: entries that do not fit keys alone may fit keys and tags.
    """

    def __init__(self, target: KeyTarget) -> None:
        files = target.files
        paths = [file.path for file in files]
        self._may_follow = target.may_follow
        self._files = EntryFiles(paths, entry_position(target.slots, 0), INDEX_ENTRY_TYPE, PHY_OFFSET, target.runs)
        self._begins = np.array([file.header.begin_timestamp for file in files], np.int64)
        self._former_ends = np.array([0, *(file.header.end_timestamp for file in files)][: len(files)], np.int64)
        self._with_tags: RecordScanner | None = None
        self._prefers_tags = False
        self._ends = np.array(
            [(0, 0) if file.may_grow else (file.header.index_count - 1, file.header.end_timestamp) for file in files],
            np.int64,
        ).reshape(-1, 2)
        self._wrong_times: list[WrongTime] = []
        self._last = -1
        self._begins_missing = self._ends_missing = False
        self._entries: list[tuple[Int64s, ...]] = []
        self._missing: list[MissingKeys] = []

    def put(self, columns: RecordColumns) -> None:
        """Compare scanned records (`ScanLevel.KEYS`, without tags)."""
        if not columns.rows:
            return
        slices = list(self._files.between(int(columns["commit_log_offset"][0]), columns.next_offset))
        entries = np.concatenate([np.empty(0, INDEX_ENTRY_TYPE), *(chunk.entries for chunk in slices)])
        hashes, offsets = entries["key_hash"].astype(np.int32), entries["phy_offset"].astype(np.int64)
        keys = self._tag_keys(columns) if self._prefers_tags else index_keys(columns)
        if not _are_equal(keys, hashes, offsets):
            with_tags = self._tag_keys(columns)
            self._prefers_tags = _are_equal(with_tags, hashes, offsets)
            if not self._prefers_tags:
                self._take_some(columns, with_tags, slices, hashes, offsets, entries)
                return
            keys = with_tags
        if hashes.size:
            self._last = int(offsets[-1])
            self._ends_missing = False
            self._tell_entries(slices, np.zeros(hashes.size, np.int64), keys.timestamps, entries)

    def close(self) -> KeyAudit:
        """Close the files, and return the result."""
        self._files.close()
        none = np.empty(0, np.int64)
        return KeyAudit(
            EntryRanges(*(np.concatenate(column) for column in zip((none,) * 4, *self._entries, strict=True))),
            tuple(self._missing),
            tuple(self._wrong_times),
            self._last,
            self._begins_missing,
            self._ends_missing,
        )

    def _tag_keys(self, columns: RecordColumns) -> IndexKeys:
        if self._with_tags is None:
            self._with_tags = RecordScanner(MAX_ROWS, level=ScanLevel.KEYS, index_tags=True)
        buffer, skips = columns.buffer[: columns.consumed], gaps_of(columns)
        return index_keys(self._with_tags.scan(buffer, columns.base_offset, skips=skips))

    def _take_some(
        self,
        columns: RecordColumns,
        keys: IndexKeys,
        slices: list[Slice],
        hashes: npt.NDArray[np.int32],
        offsets: Int64s,
        entries: npt.NDArray[np.void],
    ) -> None:
        """Match keys (with tags) and entries that are not in the same order; add missing keys and repeated entries."""
        base = int(columns["commit_log_offset"][0])
        wanted, stored = _joined(keys.hashes, keys.offsets, base), _joined(hashes, offsets, base)
        is_there, _ = _ranked(wanted, stored)
        is_wanted, is_known = _ranked(stored, wanted)
        states = np.where(is_wanted, VERIFIED, np.where(is_known, REPEATED, -1))
        rows = np.searchsorted(columns["commit_log_offset"], offsets, "right") - 1
        timestamps = columns["store_timestamp"][rows]
        self._tell_entries(slices, states, timestamps, entries)
        last = int(keys.offsets[is_there].max(initial=-1))
        missing = np.flatnonzero(~is_there & ~_tag_rows(columns, keys))
        before = np.cumsum(is_there, dtype=np.int64)[missing]
        self._add_missing(keys.offsets[missing], before, int(np.count_nonzero(is_there)))
        self._last = max(self._last, last)

    def _add_missing(self, offsets: Int64s, before: Int64s, entries: int) -> None:
        """Add ranges of a scan's keys without entries.

        Args:
            offsets: of the keys without entries.
            before: for each of them, the count of the scan's keys with an entry before it.
            entries: count of the scan's keys with an entry.
        """
        if not offsets.size:
            self._ends_missing &= not entries
            return
        starts = np.flatnonzero(np.append(True, np.diff(before) != 0))
        counts = np.diff(np.append(starts, offsets.size))
        firsts, lasts = offsets[starts], offsets[starts + counts - 1]
        missing = [MissingKeys(*row) for row in np.stack((firsts, lasts, counts), axis=1).tolist()]
        if not self._missing:
            self._begins_missing = self._last < 0 and before[0] == 0
        elif self._ends_missing and before[0] == 0:
            missing[0] = self._missing.pop().joined(missing[0])
        self._missing += missing
        self._ends_missing = bool(before[-1] == entries)

    def _tell_entries(
        self, slices: list[Slice], states: Int64s, timestamps: Int64s, entries: npt.NDArray[np.void]
    ) -> None:
        files = np.concatenate([np.full(chunk.entries.size, chunk.file, np.int64) for chunk in slices] or [states])
        numbers = np.concatenate(
            [np.arange(chunk.first, chunk.first + chunk.entries.size, dtype=np.int64) for chunk in slices] or [states]
        )
        self._check_headers(slices, states, timestamps)
        seconds = _seconds(timestamps, self._begins[files])
        wrong = (seconds != entries["time_diff"]) & (states == VERIFIED)
        # The time of a file's first entry counts from the end of the file before it; nobody knows what preceded file 0.
        firsts = np.flatnonzero(wrong & (numbers == 1))
        former = self._former_ends[files[firsts]]
        stored = entries["time_diff"][firsts]
        follows = (files[firsts] == 0) & (stored >= 0) & self._may_follow
        right = follows | (stored == _seconds(timestamps[firsts], former)) | (stored == 0)
        wrong[firsts[right]] = False
        states = np.where(wrong, WRONG_TIME, states)
        goes_on = (np.diff(files) == 0) & (np.diff(numbers) == 1) & (np.diff(states) == 0)
        starts = np.flatnonzero(np.append(True, ~goes_on)[: states.size])
        counts = np.diff(np.append(starts, states.size))
        reported = states[starts] >= 0
        self._entries.append(
            tuple(column[reported] for column in (files[starts], numbers[starts], counts, states[starts]))
        )

    def _check_headers(self, slices: list[Slice], states: Int64s, timestamps: Int64s) -> None:
        """Compare the times of a file's first and last entry with its header."""
        begin = 0
        for chunk in slices:
            last, end_time = self._ends[chunk.file].tolist()
            begin_time = int(self._begins[chunk.file])
            for number, field, time in ((1, "BEGINTIMESTAMP", begin_time), (last, "ENDTIMESTAMP", end_time)):
                row, position = begin + number - chunk.first, HEADER_POSITIONS[field]
                if begin <= row < begin + chunk.entries.size and states[row] == VERIFIED and timestamps[row] != time:
                    self._wrong_times.append(WrongTime(chunk.file, position, int(timestamps[row])))
            begin += chunk.entries.size


def _are_equal(keys: IndexKeys, hashes: npt.NDArray[np.int32], offsets: Int64s) -> bool:
    return np.array_equal(keys.hashes, hashes) and np.array_equal(keys.offsets, offsets)


def _tag_rows(columns: RecordColumns, with_tags: IndexKeys) -> npt.NDArray[np.bool_]:
    """bool[keys], the keys that are tags: the last key of a record that has more keys with tags than without."""
    plain = index_keys(columns)
    last = np.append(with_tags.offsets[1:] != with_tags.offsets[:-1], True)[: with_tags.offsets.size]
    counts = np.searchsorted(with_tags.offsets, with_tags.offsets, "right") - np.searchsorted(
        with_tags.offsets, with_tags.offsets
    )
    plain_counts = np.searchsorted(plain.offsets, with_tags.offsets, "right") - np.searchsorted(
        plain.offsets, with_tags.offsets
    )
    tag_rows: npt.NDArray[np.bool_] = last & (counts > plain_counts)
    return tag_rows


def _joined(hashes: npt.NDArray[np.int32], offsets: Int64s, base: int) -> Int64s:
    """Offset and hash as one number: offsets of a scan lie less than 2 GiB apart."""
    joined: Int64s = (offsets - base) << 32 | (hashes.astype(np.int64) & 0xFFFFFFFF)
    return joined


def _ranked(values: Int64s, others: Int64s) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """bool[n] twice: whether a value has its own equal partner among `others`, and whether any of `others` is equal."""
    order, others = np.argsort(values, kind="stable"), np.sort(others)
    ascending = values[order]
    ranks = np.arange(values.size) - np.searchsorted(ascending, ascending)
    counts = np.searchsorted(others, ascending, "right") - np.searchsorted(others, ascending)
    has_partner, has_equal = np.empty(values.size, np.bool_), np.empty(values.size, np.bool_)
    has_partner[order], has_equal[order] = ranks < counts, counts > 0
    return has_partner, has_equal


def _seconds(timestamps: Int64s, begins: Int64s) -> Int64s:
    """Seconds in the field TIMEDIFF of entries (`IndexFile.putKey`)."""
    seconds: Int64s = np.where(begins > 0, np.clip((timestamps - begins) // 1000, 0, INT32_MAX), 0)
    return seconds
