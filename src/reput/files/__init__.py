"""The file layer: the only code of reput that opens, writes, allocates, syncs, renames, unlinks, locks and maps files.

`DISK` is the real disk. A component takes its layer as a parameter, so that a test can pass a layer that loses what was
not synced.
"""

from reput.files.file import File
from reput.files.layer import DISK, Entry, FileLayer, is_hidden
from reput.files.lock import RecordLock
from reput.files.mapping import PAGE_SIZE, Mapping
from reput.files.never_waiting import NeverWaiting, about_to_wait, may_wait

__all__ = [
    "DISK",
    "PAGE_SIZE",
    "Entry",
    "File",
    "FileLayer",
    "Mapping",
    "NeverWaiting",
    "RecordLock",
    "about_to_wait",
    "is_hidden",
    "may_wait",
]
