"""Records that have lost their property CRC: with a wrong bit in its name the CRC is a property like any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.counts import counted
from reput.formats.property_crc import PROPERTY_CRC32, PROPERTY_CRC_SIZE
from reput.jobs.findings import Finding
from reput.kernels.records.columns import RecordColumns, RecordStatus
from reput.log.directory import LogFile

Int64s = npt.NDArray[np.int64]

_SIGNS = np.frombuffer(f"{PROPERTY_CRC32}\x01\x02".encode(), np.uint8)
_SIGN_POSITIONS = np.array([*range(len(PROPERTY_CRC32) + 1), PROPERTY_CRC_SIZE - 1])
_SEPARATOR = 2
_DIGITS = slice(len(PROPERTY_CRC32) + 1, PROPERTY_CRC_SIZE - 1)


class PropertyCrcs(NamedTuple):
    """Records with and without a property CRC in a range of the log.

    Attributes:
        without: int64[n, 3], runs of records without a CRC: offset of the first record, end of the last, count.
        first, last: offsets of the first and last record whose CRC fits; -1 if there is no such record.
    """

    without: Int64s
    first: int
    last: int


def find_property_crcs(columns: RecordColumns) -> PropertyCrcs:
    """Find records with and without a property CRC. The scan has checked the CRCs."""
    carries = carries_crc(columns)
    fits = np.flatnonzero(carries & (columns["status"] & RecordStatus.BAD_PROPERTY_CRC == 0))
    offsets = columns["commit_log_offset"]
    first, last = (int(offsets[fits[0]]), int(offsets[fits[-1]])) if fits.size else (-1, -1)
    edges = np.flatnonzero(np.diff(np.concatenate(([True], carries, [True])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    end_offsets = offsets[ends - 1] + columns["store_size"][ends - 1]
    return PropertyCrcs(np.stack([offsets[begins], end_offsets, ends - begins], axis=1).astype(np.int64), first, last)


def joined(ranges: Sequence[PropertyCrcs]) -> PropertyCrcs:
    """Join the results of adjacent ranges, in log order."""
    runs = np.concatenate([np.empty((0, 3), np.int64), *(crcs.without for crcs in ranges)])
    starts = np.flatnonzero(np.append(True, runs[1:, 0] != runs[:-1, 1])[: len(runs)])
    if len(starts) < len(runs):
        ends = runs[np.append(starts[1:], len(runs)) - 1, 1]
        runs = np.stack([runs[starts, 0], ends, np.add.reduceat(runs[:, 2], starts)], axis=1)
    with_some = [crcs for crcs in ranges if crcs.first >= 0]
    return PropertyCrcs(runs, with_some[0].first, with_some[-1].last) if with_some else PropertyCrcs(runs, -1, -1)


def crc_findings(crcs: PropertyCrcs, log_files: Sequence[LogFile], *, is_required: bool) -> Iterator[Finding]:
    """Findings of records without a property CRC: between records with one, or everywhere if `is_required`."""
    between = (crcs.without[:, 0] > crcs.first) & (crcs.without[:, 0] < crcs.last)
    starts = np.array([file.start_offset for file in log_files], np.int64)
    for offset, end, count in crcs.without[between | is_required].tolist():
        file = log_files[int(np.searchsorted(starts, offset, "right")) - 1]
        text = f"no {PROPERTY_CRC32} in {counted(count, 'record')} from commit log offset {offset} to {end}"
        text += "" if is_required else ", while records before and after have one"
        yield Finding("property-crc-missing", file.path, text, offset - file.start_offset, offset, count=count)


def carries_crc(columns: RecordColumns) -> npt.NDArray[np.bool_]:
    """bool[rows], whether the last property of a record is a CRC (`carries_property_crc`)."""
    ends = columns["position"].astype(np.int64) + columns["store_size"]
    has_room = columns["properties_size"] >= PROPERTY_CRC_SIZE
    carries = np.asarray(has_room & (columns.buffer[ends - PROPERTY_CRC_SIZE] == _SIGNS[0]))
    rows = np.flatnonzero(carries)
    begins = ends[rows] - PROPERTY_CRC_SIZE
    tails = columns.buffer[begins[:, None] + np.arange(PROPERTY_CRC_SIZE)]
    has_signs = (tails[:, _SIGN_POSITIONS] == _SIGNS).all(axis=1)
    has_signs &= (columns["properties_size"][rows] == PROPERTY_CRC_SIZE) | (columns.buffer[begins - 1] == _SEPARATOR)
    carries[rows] = has_signs & (tails[:, _DIGITS] - np.uint8(0x30) <= 9).all(axis=1)
    return carries
