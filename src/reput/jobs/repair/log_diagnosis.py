"""Search of a repair, besides the audit: whole records after damage."""

from __future__ import annotations

import os
from dataclasses import replace

from reput.files import DISK
from reput.formats.java import INT64_MAX
from reput.formats.paths import file_name_to_offset, offset_to_file_name
from reput.formats.record_layout import PHYSICAL_OFFSET
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.job import AuditResult
from reput.jobs.audit.log_findings import checkpoint_findings
from reput.jobs.findings import Finding, is_of_log
from reput.jobs.repair.plan import LogRemainder, LogState
from reput.log.directory import LogFile, StoreDirectory
from reput.log.file_window import WINDOW_BYTES, Window
from reput.log.metadata import read_shutdown

_END_OF_LOG = INT64_MAX
_BLOCK_BYTES = 1 << 20


def look_at_log(directory: StoreDirectory, listing: StoreListing, audited: AuditResult) -> LogState:
    """Sort the findings about the log: those that can be mended in place, and those that cannot. Changes nothing."""
    files = {file.path: file for file in listing.log_files}
    folders = directory.commit_log_folders
    short: list[tuple[str, int]] = []
    foreign: list[str] = []
    broken: list[Finding] = []
    begins: list[int] = []
    reached = -1  # a whole record lies from there on, and so from any offset before it
    for finding in sorted(audited.findings, key=lambda one: one.commit_log_offset or 0, reverse=True):
        file, begin = files.get(finding.path), finding.commit_log_offset
        if not is_of_log(finding, folders):
            continue
        if finding.code == "foreign-file" and not must_stay(listing, finding.path):
            foreign.append(finding.path)
        elif finding.code == "file-size" and file is not None and _is_short_end(listing, file):
            short.append((file.path, file.size))
        elif file is not None and begin is not None and begin > reached and not has_records_from(listing, begin):
            begins.append(begin)
        else:
            reached = max(reached, -1 if file is None or begin is None else begin)
            broken.append(finding)
    end = min(begins, default=audited.log_end)
    tails = tuple(tail for file in listing.log_files if (tail := tail_of(file, end)) is not None) if begins else ()
    checkpoint = tuple(checkpoint_findings(listing, audited.newest_ms)) if begins else ()
    lost = audited.lost_messages
    claims_more = not directory.was_killed and (lost > 0 or _claims_more(directory, end))
    return LogState(folders, tails, tuple(short), tuple(foreign), tuple(broken), lost, checkpoint, claims_more)


def has_records_from(listing: StoreListing, offset: int) -> bool:
    """Whether a whole record, proven with its body CRC, lies anywhere from a commit log offset on."""
    return any(
        _has_records(file.path, file.start_offset, max(offset, file.start_offset), file.end_offset)
        for file in listing.log_files
        if file.end_offset > offset
    )


def must_stay(listing: StoreListing, path: str) -> bool:
    """Whether a foreign file, by its name, may belong to the log all the same.

    It has records of the commit log offset that its name says, or of an offset that no other file has; or a file of the
    log is a link to it; or it is itself a link to a missing disk; or another folder of the log has a file of this name.
    """
    if DISK.is_directory(path):
        return False
    if not DISK.exists(path) or is_linked(listing, path):
        return True
    named = file_name_to_offset(os.path.basename(path))
    if named is not None and _has_bytes(path) and _has_records(path, named, named, named + DISK.file_size(path)):
        return True
    if named in {file.start_offset for file in listing.log_files}:
        return True
    start = _first_offset(path)
    return start >= 0 and not any(other.start_offset <= start < other.end_offset for other in listing.log_files)


def with_own_name(finding: Finding) -> Finding:
    """The finding. If its file has the records of another file name, the text says that name."""
    may_be = finding.code == "foreign-file" or (finding.code == "record-damaged" and not finding.position)
    if not may_be or DISK.is_directory(finding.path) or not DISK.exists(finding.path):
        return finding
    start = _first_offset(finding.path)
    if start < 0 or start == file_name_to_offset(os.path.basename(finding.path)):
        return finding
    text = f"it has the records of {offset_to_file_name(start)}: give it that name back, unless it is a copy"
    return replace(finding, text=f"{finding.text}; {text}")


def _first_offset(path: str) -> int:
    """Commit log offset of a file's first record, if the file has whole records; else -1."""
    if not _has_bytes(path):
        return -1
    with DISK.open(path) as file:
        start, size = int.from_bytes(file.read(PHYSICAL_OFFSET, 8), "big", signed=True), file.size
    return start if 0 <= start < _END_OF_LOG - size and _has_records(path, start, start, start + size) else -1


def _has_bytes(path: str) -> bool:
    """Whether this is a regular file that is not empty: no device, pipe or socket, no file of /proc."""
    return os.path.isfile(path) and DISK.file_size(path) > 0


def is_linked(listing: StoreListing, path: str) -> bool:
    """Whether a file of the log is a link to this file."""
    return DISK.identity(path) in {DISK.identity(file.path) for file in listing.log_files}


def _is_short_end(listing: StoreListing, file: LogFile) -> bool:
    """Whether a file of a wrong length is shorter, and the log ends in it."""
    return DISK.file_size(file.path) < file.size and not has_records_from(listing, file.end_offset)


def _has_records(path: str, start: int, begin: int, end: int) -> bool:
    with DISK.open(path) as file:
        window = Window(file, LogFile(path, start, end - start), WINDOW_BYTES)
        return window.find_proven(begin) is not None  # as the scan of an audit, so that both see the same records


def tail_of(file: LogFile, end: int) -> LogRemainder | None:
    """Tail of a file after the log's end; None if all its bytes there are zero."""
    position, count = max(end - file.start_offset, 0), 0
    with DISK.open(file.path) as opened:
        if position >= file.size or not opened.has_data_from(position):
            return None
        for begin in range(position, file.size, _BLOCK_BYTES):
            block = opened.read(begin, _BLOCK_BYTES)
            count += len(block) - block.count(0)
    return LogRemainder(file.path, position, count)


def _claims_more(directory: StoreDirectory, end: int) -> bool:
    """Whether a clean exit has recorded a later end of the log, so that a start refuses."""
    shutdown = read_shutdown(directory.path, DISK)
    return shutdown is not None and shutdown.commit_log_end > end
