"""What a start will do to a directory, found out before it does any of it.

Only memory changes here: queues and index are loaded, and know how far they are right. All that a start can refuse it
refuses here, so that a store that is refused stays as it was. (But for a mark of a start that takes long, which is put
back: `reput.store.recovery.marks`; and behind a failed sync the disk gets what is read: `reput.log.failed_sync`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import FileLayer
from reput.log.dispatch_marks import DispatchMark
from reput.log.sink_commits import read_sinks
from reput.store.dispatch.check import check_dispatch
from reput.store.dispatch.redispatch import Progress
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables
from reput.store.recovery.listing import EVERYTHING, DirectoryListing, find_end, last_used_file
from reput.store.recovery.log_end import check_against_queues, queues_are_complete, start_file
from reput.store.recovery.marks import RecoveryMarks, holds
from reput.store.recovery.sink_intent import Unfinished, find_unfinished
from reput.store.recovery.verification import Verification
from reput.store.recovery_report import LogEnd


@dataclass(frozen=True, slots=True)
class Loaded:
    """Log, queues and index of a directory."""

    log: CommitLog
    queues: QueueTables
    index: IndexService | None


class RecoveryPlan(NamedTuple):
    """What is to be done.

    Attributes:
        end: Where the log is to end.
        unfinished: What is to be done about a sink's batch.
        sync_from: Commit log offset; what lies behind it may be in the page cache alone.
        dispatch_from: Commit log offset of the first record to be dispatched; the log's end where none is.
        batch_topics: Topics of records that turned out to have batch consume queues.
        verified_records: Records before `dispatch_from` that have what dispatch would write.
    """

    end: LogEnd
    unfinished: Unfinished | None
    sync_from: int
    dispatch_from: int
    batch_topics: frozenset[str]
    verified_records: int


class _TrustedPart(NamedTuple):
    """Up to where a killed store is known to be right.

    Attributes:
        offset: Commit log offset: the log is whole before it, and queues have it.
        timestamp: Store time of the record before it; 0 where it is not known.
        mark: What an interrupted start left, where it counts.
        is_lost: Such a start has left something that does not count: queues and index may be anything.
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
    """Load queues and index, look for the log's end, and for the records to dispatch again.

    Raises what `MessageStore.open` raises of a store that cannot be opened.
    """
    log, queues, index = loaded.log, loaded.queues, loaded.index
    trusted = _load(loaded, listing)
    if listing.has_failed_sync:
        _write_again(loaded, trusted, progress)
    has_intent = read_sinks(files, path).intent is not None
    has_lost_queues = trusted.is_lost or _has_lost_queues(queues, listing)
    verification = None
    # Nothing is compared where records that prove themselves may be cut off: their units would count as right.
    if listing.was_killed and not has_intent and not has_lost_queues:
        begin = trusted.offset if trusted.mark is not None else _before_index(trusted.offset, log, index)
        verification = Verification(queues, index, config, begin, marks.pass_by)
    end = find_end(
        log, queues.last_record_offset, listing, config, progress, verification, (trusted.offset, trusted.timestamp)
    )
    unfinished = find_unfinished(files, path, log, end)
    if unfinished is not None:
        end = unfinished.log_end
    if not listing.was_killed:
        shut_down_at = listing.shutdown.commit_log_end if listing.shutdown else -1
        check_against_queues(log, end, max(queues.max_physical_offset, shut_down_at))
        queues.raise_min_offsets(log.min_offset)  # before anything changes: it reads all queues, and one may refuse
    if index is not None and not index.judge(end.offset):
        verification = None
    if verification is not None:
        begin = verification.offset
    else:
        begin = _dispatch_from(loaded, listing, end, trusted, has_lost_queues=has_lost_queues)
    checked = check_dispatch(log, queues, min(begin, end.offset), end.offset, progress)
    records = verification.records if verification is not None else 0
    return RecoveryPlan(end, unfinished, trusted.offset, checked.begin, checked.batch_topics, records)


def _load(loaded: Loaded, listing: DirectoryListing) -> _TrustedPart:
    """Load queues and index as far as they can be trusted."""
    log, queues, index = loaded.log, loaded.queues, loaded.index
    trusted = _trusted_part(log, listing)
    safe_timestamp = listing.checkpoint.index_msg_timestamp if listing.was_killed else None
    if index is not None:
        try:
            index.load(listing.index_files, safe_timestamp=-1 if trusted.is_lost else safe_timestamp, mark=trusted.mark)
        except StoreError:
            if trusted.mark is None:
                raise
            trusted = _TrustedPart(log.min_offset, is_lost=True)
            index.load(listing.index_files, safe_timestamp=-1)
    guess = listing.shutdown.max_offsets if listing.shutdown and not listing.was_killed else {}
    queues.load(listing.queues, listing.batch_queues, trusted.offset if listing.was_killed else EVERYTHING, guess)
    queues.simple.built_timestamp = trusted.timestamp
    return trusted


def _write_again(loaded: Loaded, trusted: _TrustedPart, progress: Progress) -> None:
    """Let the disk have what is read behind what is known to be right, before anybody goes by it.

    No byte changes that a reader sees. What `_load` has gone by lies before.
    """
    loaded.log.queue.write_again_from(trusted.offset, progress)
    loaded.queues.write_again()
    if loaded.index is not None:
        loaded.index.write_again()


def _trusted_part(log: CommitLog, listing: DirectoryListing) -> _TrustedPart:
    if listing.mark is None:
        return _TrustedPart(start_file(log, listing.checkpoint))
    if not holds(listing.mark, log):
        return _TrustedPart(log.min_offset, is_lost=True)
    offset, last = listing.mark.position.offset, listing.mark.position.last
    return _TrustedPart(offset, last.store_timestamp if last is not None else 0, listing.mark)


def _has_lost_queues(queues: QueueTables, listing: DirectoryListing) -> bool:
    """Whether a folder vanished: then the records from where a start begins need not show it by a gap."""
    known = listing.shutdown.max_offsets if listing.shutdown else {}
    return not (listing.queues or listing.batch_queues) or any(queues.find(*key) is None for key in known)


def _before_index(begin: int, log: CommitLog, index: IndexService | None) -> int:
    """An offset, or that of the first record whose keys may be missing, where that is an earlier one."""
    return begin if index is None else min(begin, max(index.restart_offset, log.min_offset))


def _dispatch_from(
    loaded: Loaded, listing: DirectoryListing, end: LogEnd, trusted: _TrustedPart, *, has_lost_queues: bool
) -> int:
    """Where dispatch begins of which nothing was compared."""
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
