"""Check one index file by itself: putting its entries again must give its header, slots and chains."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reput.counts import counted
from reput.files import DISK, File
from reput.formats.index_file import (
    ENTRY_SIZE,
    HEADER_POSITIONS,
    HEADER_SIZE,
    SLOT_VALUE,
    IndexHeader,
    decode_header,
    entry_position,
    slot_position,
)
from reput.jobs.audit.ascending_runs import MAX_RUNS, AscendingRun, RunFinder
from reput.jobs.findings import Finding
from reput.kernels.queues.index_file import SLOT_COUNT, IndexKeys, IndexTable
from reput.kernels.queues.unit_types import INDEX_ENTRY_TYPE

_BLOCK_ENTRIES = 256 << 10
#: Limit of broken chains that are reported for a file; the text says how many there are.
_SHOWN_CHAINS = 8


@dataclass(frozen=True, slots=True)
class IndexFileItem:
    """One index file. It `may_grow` if it has a writer now, or had one at a kill."""

    number: int
    path: str
    slots: int
    max_entries: int
    may_grow: bool


@dataclass(frozen=True, slots=True)
class AuditedIndexFile:
    """Result of `check_index_file`: the file's header, the runs of its entries, and findings."""

    path: str
    may_grow: bool
    header: IndexHeader
    runs: tuple[AscendingRun, ...]
    findings: tuple[Finding, ...]


def check_index_file(item: IndexFileItem) -> AuditedIndexFile:
    """Task: check one index file."""
    with DISK.open(item.path) as file:
        return _Check(item, file).run()


def order_findings(files: Sequence[AuditedIndexFile]) -> Iterator[Finding]:
    """Findings of index files, given in the order of their entries in the log, whose names have another order.

    Two files with entries of the same records are out of order, too: one of them is a copy.
    """
    filled = [file for file in files if file.header.entry_count]
    for before, file in pairwise(filled):
        name, name_before = os.path.basename(file.path), os.path.basename(before.path)
        begin, end = file.header.begin_phy_offset, before.header.end_phy_offset
        if name < name_before:
            text = f"its entries begin at commit log offset {begin}, after {name_before}, which has a later name"
            yield Finding("index-order", file.path, text)
        elif begin < end:
            text = f"its entries begin at commit log offset {begin}, and {name_before}'s entries end only at {end}"
            yield Finding("index-order", file.path, text)


class _Check:
    def __init__(self, item: IndexFileItem, file: File) -> None:
        self._item = item
        self._file = file
        self._findings: list[Finding] = []
        self._broken: list[tuple[int, int, int]] = []
        self._broken_count = 0

    def run(self) -> AuditedIndexFile:
        item = self._item
        header = decode_header(self._file.read(0, HEADER_SIZE))
        count = min(max(header.index_count, 1), item.max_entries)
        if header.index_count > item.max_entries or header.index_count < 0:
            self._wrong_header("INDEXCOUNT", header.index_count, f"at most {item.max_entries}")
        table, finder = IndexTable(item.slots, count), RunFinder(item.number)
        while table.count < count:
            first = table.count
            size = min(count - first, _BLOCK_ENTRIES) * ENTRY_SIZE
            data = self._file.read(entry_position(item.slots, first), size)
            entries = np.frombuffer(data, INDEX_ENTRY_TYPE, len(data) // ENTRY_SIZE)
            if not entries.size:
                break
            offsets = entries["phy_offset"].astype(np.int64)
            finder.add(offsets)
            keys = IndexKeys(entries["key_hash"].astype(np.int32), offsets, np.zeros(offsets.size, np.int64))
            made = table.put(keys, 0)[1].view(INDEX_ENTRY_TYPE)
            self._compare_chains(first, entries, made)
        self._compare_slots(table)
        if count > 1 and not item.may_grow:
            self._compare_header(header, table)
        self._tell_chains()
        runs = [replace(run, first=run.first + 1) for run in finder.runs]
        if len(runs) > MAX_RUNS:
            text = f"the commit log offsets of its {counted(count - 1, 'entry')} fall back more than {MAX_RUNS} times"
            self._findings.append(Finding("index-entry-wrong", item.path, text, count=count - 1))
            runs = []
        return AuditedIndexFile(item.path, item.may_grow, header, tuple(runs), tuple(self._findings))

    def _compare_chains(self, first: int, entries: npt.NDArray[np.void], made: npt.NDArray[np.void]) -> None:
        wrong = np.flatnonzero(entries["slot_value"] != made["slot_value"])
        self._broken_count += wrong.size
        for i in wrong[:_SHOWN_CHAINS].tolist():
            position = entry_position(self._item.slots, first + i) + SLOT_VALUE
            self._broken.append((position, int(made["slot_value"][i]), int(entries["slot_value"][i])))

    def _compare_slots(self, table: IndexTable) -> None:
        found = np.empty(table.slot_table.size, np.uint8)
        self._file.read_into(HEADER_SIZE, found.data)
        if np.array_equal(found, table.slot_table):
            return
        slots, made = found.view(">i4").astype(np.int64), table.slot_table.view(">i4").astype(np.int64)
        wrong = slots != made
        if self._item.may_grow:  # slots of entries that were put meanwhile
            wrong &= slots < table.count
        self._broken_count += int(np.count_nonzero(wrong))
        for slot in np.flatnonzero(wrong)[:_SHOWN_CHAINS].tolist():
            self._broken.append((slot_position(slot), int(made[slot]), int(slots[slot])))

    def _tell_chains(self) -> None:
        for position, expected, found in self._broken[:_SHOWN_CHAINS]:
            text = f"leads to entry {found}, expected {expected}"
            if self._broken_count > _SHOWN_CHAINS:
                text += f"; one of {self._broken_count} in this file"
            self._findings.append(Finding("index-chain-broken", self._item.path, text, position=position))

    def _compare_header(self, header: IndexHeader, table: IndexTable) -> None:
        made = IndexHeader(*table.header.tolist())
        for name, found, expected in (
            ("BEGINPHYOFFSET", header.begin_phy_offset, made.begin_phy_offset),
            ("ENDPHYOFFSET", header.end_phy_offset, made.end_phy_offset),
            ("HASHSLOTCOUNT", header.hash_slot_count, int(table.header[SLOT_COUNT])),
            ("INDEXCOUNT", header.index_count, made.index_count),
        ):
            if found != expected:
                self._wrong_header(name, found, str(expected))

    def _wrong_header(self, name: str, found: int, expected: str) -> None:
        text, position = f"{name} is {found}, expected {expected}", HEADER_POSITIONS[name]
        self._findings.append(Finding("index-header-wrong", self._item.path, text, position=position))
