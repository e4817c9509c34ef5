"""The end that the log of a closed store has lost: its last clean exit recorded how far the log reached."""

from __future__ import annotations

import os

from reput.errors import StoreError
from reput.formats.paths import offset_to_file_name
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import Damage
from reput.log.directory import StoreDirectory
from reput.log.metadata import read_shutdown
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitStop


def lost_end(directory: StoreDirectory, end: int) -> Damage | None:
    """Damage after the end of the log that was read: bytes that were there at the last clean exit; None for none.

    Nothing is known of a store that is open, whose writer was killed, or that no clean exit of reput's has closed; a
    store that was written to since the read has lost nothing.
    """
    if directory.was_killed:
        return None
    try:
        shutdown = read_shutdown(directory.path, directory.files)
    except StoreError:  # who may read the log alone reads it as it is
        return None
    if shutdown is None:
        return None
    log_files = directory.log_files()
    if shutdown.commit_log_end <= end or not log_files:
        return None
    file = None
    for one in log_files:
        if one.start_offset <= end < one.end_offset:
            split = Split(one, end, one.end_offset, is_record_start=True)
            scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.END, files=directory.files)
            if any(columns.rows for columns in scan):
                return None
            if scan.stop is not SplitStop.BLANK:
                file = one
                break
            end = one.end_offset  # its writer went on in the next file after the read
    folder = os.path.dirname(log_files[-1].path)
    path = os.path.join(folder, offset_to_file_name(end)) if file is None else file.path
    reason = (
        f"expected a record, for the last clean exit left records up to {shutdown.commit_log_end}: restore the file "
        "from a copy, or go on without them by `reput repair`"
    )
    return Damage(path, end, shutdown.commit_log_end, reason)
