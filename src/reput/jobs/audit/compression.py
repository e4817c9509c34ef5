"""Records whose flags and bodies disagree on a compression: no CRC covers SYSFLAG (`CompressionType`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.formats.record_layout import SysFlag
from reput.jobs.record_faults import record_damage
from reput.kernels.records.columns import RecordColumns
from reput.log.damages import Damage

_FLAGS = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK
#: First bytes of a frame. zlib's are checked by their sum (RFC 1950).
_MAGICS = {SysFlag.COMPRESSION_LZ4: b"\x04\x22\x4d\x18", SysFlag.COMPRESSION_ZSTD: b"\x28\xb5\x2f\xfd"}


def wrong_compressions(path: str, columns: RecordColumns) -> list[Damage]:
    """Records of the file `path` that are not compressed as their flags say, as damage.

    A flag without such a body is wrong, and so is a kind without the flag if the body is of that kind. An empty body
    has no compression.
    """
    rows = np.flatnonzero((columns["sys_flag"] & _FLAGS != 0) & (columns["body_size"] > 0))
    damages: list[Damage] = []
    for flags in np.unique(columns["sys_flag"][rows] & _FLAGS).tolist():
        some = rows[columns["sys_flag"][rows] & _FLAGS == flags]
        begins = _begins_as(columns, some, flags & SysFlag.COMPRESSION_MASK)
        if flags & SysFlag.COMPRESSED:
            wrong, reason = some[~begins], "the flags say that the body is compressed, and it does not begin so"
        else:
            wrong, reason = some[begins], "the body is compressed, and the flags say that it is not"
        damages += [record_damage(path, columns, row, reason) for row in wrong.tolist()]
    return damages


def _begins_as(columns: RecordColumns, rows: npt.NDArray[np.intp], kind: int) -> npt.NDArray[np.bool_]:
    """bool[rows], whether a body begins as one of a kind of compression."""
    magic = _MAGICS.get(kind)
    first = np.zeros((rows.size, 4), np.uint8)
    for i in range(4):
        is_there = columns["body_size"][rows] > i
        first[is_there, i] = columns.buffer[columns["body_position"][rows[is_there]] + i]
    if magic is not None:
        return np.asarray((first == np.frombuffer(magic, np.uint8)).all(axis=1))
    if kind in (0, SysFlag.COMPRESSION_ZLIB):  # clients before 4.9.3 wrote no kind
        head = first.astype(np.int32)
        return np.asarray((head[:, 0] & 15 == 8) & (head[:, 0] >> 4 <= 7) & ((head[:, 0] * 256 + head[:, 1]) % 31 == 0))
    return np.zeros(rows.size, np.bool_)
