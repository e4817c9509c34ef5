"""Plan of a recovery: what a start will change in a directory, decided before it changes anything.

Here queues and index are loaded into memory, and it is found out how far they are right. A start refuses a store here
at the latest, so a refused store stays as it was. There are two exceptions: a start that takes long writes a mark,
which is put back (`reput.store.recovery.marks`); and after a failed sync the bytes that are read are written again
(`reput.log.failed_sync`).
"""

from __future__ import annotations

from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import FileLayer
from reput.log.dispatch_marks import DispatchMark
from reput.log.sink_commits import read_sinks
from reput.progress import Progress
from reput.store.dispatch.check import check_dispatch
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.parts import Loaded
from reput.store.queues.tables import QueueTables
from reput.store.recovery.listing import EVERYTHING, DirectoryListing, find_end, last_used_file
from reput.store.recovery.log_end import check_against_queues, queues_are_complete, start_file
from reput.store.recovery.marks import RecoveryMarks, fits
from reput.store.recovery.sink_intent import UnfinishedBatch, find_unfinished_batch
from reput.store.recovery.verification import Verification
from reput.store.recovery_report import LogEnd


class RecoveryPlan(NamedTuple):
    """Plan of a start.

    Attributes:
        end: The end that the log is to have.
        unfinished: What is to be done about an unfinished batch of a sink; None if there is no such batch.
        sync_from: Commit log offset from which on bytes may be in the page cache only.
        dispatch_from: Commit log offset of the first record to dispatch; the log's end if no record is.
        batch_topics: Topics whose records show that they have batch consume queues, though no configuration says so.
        verified_records: Records before `dispatch_from` whose units and index entries are what dispatch would write.
    """

    end: LogEnd
    unfinished: UnfinishedBatch | None
    sync_from: int
    dispatch_from: int
    batch_topics: frozenset[str]
    verified_records: int


class _TrustedEnd(NamedTuple):
    """End of what is known to be right in a killed store, without a look at records and units.

    Attributes:
        offset: Commit log offset. The log is whole before it, and the queues have all units of the records before it.
        timestamp: Store time (ms) of the record before `offset`; 0 if it is not known.
        mark: The mark of an interrupted start, if the log fits it.
        is_lost: Whether an interrupted start left a mark that the log does not fit: queues and index may hold anything.
    """

    offset: int
    timestamp: int = 0
    mark: DispatchMark | None = None
    is_lost: bool = False


def plan_recovery(
    path: str,
    config: MessageStoreConfig,
    files: FileLayer,
    listing: DirectoryListing,
    loaded: Loaded,
    marks: RecoveryMarks,
    progress: Progress,
) -> RecoveryPlan:
    """Load queues and index, find the log's end, and find the records to dispatch again.

    Raises what `MessageStore.open` raises for a store that cannot be opened.
    """
    log, queues, index = loaded.log, loaded.queues, loaded.index
    trusted = _load(loaded, listing)
    if listing.has_failed_sync:
        _write_again(loaded, trusted, progress)
    has_intent = read_sinks(files, path).intent is not None
    has_lost_queues = trusted.is_lost or _has_lost_queues(queues, listing)
    verification = None
    # No verification where whole records may be cut off with an unfinished batch: their units would count as right.
    if listing.was_killed and not has_intent and not has_lost_queues:
        begin = trusted.offset if trusted.mark is not None else _before_index(trusted.offset, log, index)
        verification = Verification(queues, index, config, begin, marks.write_if_due)
    end = find_end(
        log, queues.last_record_offset, listing, config, progress, verification, (trusted.offset, trusted.timestamp)
    )
    unfinished = find_unfinished_batch(files, path, log, end)
    if unfinished is not None:
        end = unfinished.log_end
    if not listing.was_killed:
        shut_down_at = listing.shutdown.commit_log_end if listing.shutdown else -1
        check_against_queues(log, end, max(queues.max_physical_offset, shut_down_at))
        queues.raise_min_offsets(log.min_offset)  # before anything changes: it reads all queues, which may fail
    if index is not None and not index.judge(end.offset):
        verification = None
    if verification is not None:
        begin = verification.offset
    else:
        begin = _dispatch_from(loaded, listing, end, trusted, has_lost_queues=has_lost_queues)
    checked = check_dispatch(log, queues, min(begin, end.offset), end.offset, progress)
    records = verification.records if verification is not None else 0
    return RecoveryPlan(end, unfinished, trusted.offset, checked.begin, checked.batch_topics, records)


def _load(loaded: Loaded, listing: DirectoryListing) -> _TrustedEnd:
    """Load queues and index as far as they can be trusted."""
    log, queues, index = loaded.log, loaded.queues, loaded.index
    trusted = _find_trusted_end(log, listing)
    safe_timestamp = listing.checkpoint.index_msg_timestamp if listing.was_killed else None
    if index is not None:
        try:
            index.load(listing.index_files, safe_timestamp=-1 if trusted.is_lost else safe_timestamp, mark=trusted.mark)
        except StoreError:
            if trusted.mark is None:
                raise
            trusted = _TrustedEnd(log.min_offset, is_lost=True)
            index.load(listing.index_files, safe_timestamp=-1)
    guess = listing.shutdown.max_offsets if listing.shutdown and not listing.was_killed else {}
    queues.load(listing.queues, listing.batch_queues, trusted.offset if listing.was_killed else EVERYTHING, guess)
    queues.simple.built_timestamp = trusted.timestamp
    return trusted


def _write_again(loaded: Loaded, trusted: _TrustedEnd, progress: Progress) -> None:
    """Write again what is read after the trusted end, so that it is on the disk before the start relies on it.

    A reader sees no byte change. `_load` relied only on bytes before the trusted end.
    """
    loaded.log.queue.write_again_from(trusted.offset, progress)
    loaded.queues.write_again()
    if loaded.index is not None:
        loaded.index.write_again()


def _find_trusted_end(log: CommitLog, listing: DirectoryListing) -> _TrustedEnd:
    if listing.mark is None:
        return _TrustedEnd(start_file(log, listing.checkpoint))
    if not fits(listing.mark, log):
        return _TrustedEnd(log.min_offset, is_lost=True)
    offset, last = listing.mark.point.offset, listing.mark.point.last
    return _TrustedEnd(offset, last.store_timestamp if last is not None else 0, listing.mark)


def _has_lost_queues(queues: QueueTables, listing: DirectoryListing) -> bool:
    """Whether a queue's folder vanished; the records that a start looks at need not show that by a gap."""
    expected = listing.shutdown.max_offsets if listing.shutdown else {}
    return not (listing.queues or listing.batch_queues) or any(queues.find(*key) is None for key in expected)


def _before_index(begin: int, log: CommitLog, index: IndexService | None) -> int:
    """The lesser of `begin` and the commit log offset of the first record whose keys may be missing in the index."""
    return begin if index is None else min(begin, max(index.restart_offset, log.min_offset))


def _dispatch_from(
    loaded: Loaded, listing: DirectoryListing, end: LogEnd, trusted: _TrustedEnd, *, has_lost_queues: bool
) -> int:
    """Commit log offset at which dispatch begins if no record was verified."""
    log, queues, index = loaded.log, loaded.queues, loaded.index
    shutdown = listing.shutdown
    if not listing.was_killed and shutdown is not None and shutdown.commit_log_end == end.offset:
        begin = end.offset if queues_are_complete(shutdown, queues) else log.min_offset
        has_all_files = shutdown.index_file_count == len(listing.index_files)
        return begin if has_all_files else _before_index(begin, log, index)
    if has_lost_queues:
        return log.min_offset
    if listing.was_killed:
        return _before_index(trusted.offset, log, index)
    last_file = min(last_used_file(log), end.offset - end.offset % log.queue.file_size)
    return _before_index(last_file, log, index)
