"""State of a store that may be live, for a backup: the end of its log, its JSON files, and its file sizes.

No lock is taken. JSON files are read before the log's end is searched, so they may be older than the end, but never
newer: consumer offsets and sinks' commits lead to messages that are in the backup.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reput.errors import CorruptMetadataError, StoreError, StoreFormatError
from reput.files import FileLayer
from reput.formats.backup import LastBackedUp
from reput.formats.checkpoint import decode_checkpoint
from reput.formats.fastjson import decode_fastjson
from reput.formats.metadata import FILE_NAMES, TimerMetrics, TransactionMetrics
from reput.formats.paths import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    TIMER_CHECK,
    TIMER_LOG,
    TIMER_WHEEL,
)
from reput.formats.shutdown import SHUTDOWN_FILE
from reput.formats.sink_commit import SINKS_FILE, STAGING, Sinks, encode_sinks
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import (
    BATCH_LOCK,
    DISPATCH_FILE,
    DISPATCHER_LOCK,
    FORMER_BATCH_LOCK,
    RECOVERY_FILE,
    WORK_FOLDER,
)
from reput.log.geometry.build_sizes import find_sizes, has_queue_files
from reput.log.metadata import BACKUP_SUFFIX, read_shutdown
from reput.log.resume_points import LastRecord, ResumePoint
from reput.log.scan import OnDamage, scan_split
from reput.log.sink_commits import read_sinks
from reput.log.splits import Split
from reput.log.tail import LogTail

#: Files that a restore makes anew, and files of a running process.
_DERIVED = {CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT, ABORT, LOCK, STAGING}
#: Files of the state of this store's files; they do not fit a restored store, whose start looks at its own files.
_CONFIG_OF_STATE = {
    SHUTDOWN_FILE, DISPATCH_FILE, DISPATCHER_LOCK, BATCH_LOCK, FORMER_BATCH_LOCK, RECOVERY_FILE, SINKS_FILE,
}  # fmt: skip
#: Units and counts of messages that wait, which are in the log.
_MADE_ANEW = {
    TIMER_WHEEL, TIMER_LOG, TIMER_CHECK, f"{CONFIG}/{FILE_NAMES[TimerMetrics]}",
    f"{CONFIG}/{FILE_NAMES[TransactionMetrics]}",
}  # fmt: skip
_INDEX_SIZES = ("max_hash_slot_num", "max_index_num")
_QUEUE_SIZE = "mapped_file_size_consume_queue"
#: Keys of the configuration that a rebuild needs, besides the log.
SIZES = (
    _QUEUE_SIZE,
    "mapper_file_size_batch_consume_queue",
    *_INDEX_SIZES,
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "enable_lmq",
)
_JSON = ".json"
_READS = _LOOKS = 3


@dataclass(frozen=True, slots=True)
class SourceState:
    """State of a store at one moment.

    Attributes:
        end: end of the log, after the last whole record that no start takes back.
        config: the JSON files below `config/` by name.
        damaged: names of files that cannot be decoded; their bytes are taken as they are.
        losses: reasons to believe that the log was longer, each as the end of a sentence.
    """

    end: ResumePoint
    config: Mapping[str, bytes]
    damaged: tuple[str, ...]
    losses: tuple[str, ...]


def look_at_source(directory: StoreDirectory) -> SourceState:
    """Read the state of a store as it is now.

    Raises:
        CorruptRecordError: the last log file is damaged: a whole record comes after bytes that are none.
        CorruptMetadataError: the file of sinks' commits is damaged, and so is its backup.
        StoreError: a file cannot be read, or retention has deleted it meanwhile.
    """
    files, root = directory.files, directory.path
    while True:
        sinks = read_sinks(files, root)
        config, damaged = read_config_files(directory)
        closed_end, flushed_ms = _known_end(directory)
        end = _log_end(directory, sinks)
        if read_sinks(files, root) == sinks:  # else the log may have a batch of a sink that `sinks` lacks
            break
    if files.exists(os.path.join(root, CONFIG, SINKS_FILE)):
        is_cut = sinks.intent is not None and end.offset <= sinks.intent.begin_offset
        config[SINKS_FILE] = encode_sinks(replace(sinks, intent=None) if is_cut else sinks)
    losses = []
    if closed_end > end.offset:
        losses.append(f"the last clean exit left records up to {closed_end}")
    if sinks.intent is None and (newest_ms := _newest_ms(directory, end, flushed_ms)) < flushed_ms:
        losses.append(
            f"the checkpoint says that records up to store time {flushed_ms} ms were on the disk, and the newest is of "
            f"{newest_ms}"
        )
    return SourceState(end, config, tuple(damaged), tuple(losses))


def stored_sizes(directory: StoreDirectory, *, has_records: bool) -> dict[str, int | bool]:
    """Values of `SIZES` that the store's files tell: sizes of derived files, extensions, light queues.

    If records were not dispatched yet, or queues are lost, the sizes of queues and index are unknown and left out: a
    store with other sizes than the broker's is of no use. Without records they are RocketMQ's defaults.
    """
    is_untold = has_records and not has_queue_files(directory)
    for index in (True, False):
        try:
            config, _ = find_sizes(directory, {}, index=index)
        except StoreFormatError:  # two sizes are equally frequent: a restore must be given the size
            continue
        untold = _INDEX_SIZES if not index else (_QUEUE_SIZE, *_INDEX_SIZES) if is_untold else ()
        return {name: getattr(config, name) for name in SIZES if name not in untold}
    return {}


def left_out(directory: StoreDirectory) -> list[str]:
    """Names in the store directory that no backup has, and no restore makes; `why_left_out` has the reasons."""
    files, root = directory.files, directory.path
    names = [entry.name for entry in files.list_directory(root) if entry.name not in {*_DERIVED, COMMIT_LOG, CONFIG}]
    folder = os.path.join(root, CONFIG)
    for entry in files.list_directory(folder) if files.is_directory(folder) else ():
        is_known = entry.name in _CONFIG_OF_STATE or entry.name.endswith((BACKUP_SUFFIX, ".tmp", _JSON))
        if entry.name != WORK_FOLDER and (entry.is_directory or not is_known):
            names.append(f"{CONFIG}/{entry.name}")
    return names


def why_left_out(name: str) -> str:
    """Reason why no backup has a name of `left_out`."""
    return "a broker makes it anew" if name in _MADE_ANEW else "reput does not know it"


def unreadable_config(store: str, file_name: str) -> str:
    """Finding: a JSON file that is damaged together with its backup."""
    return (
        f"{store}/config/{file_name}: neither the file nor its backup can be read; it is copied as it is: mend the "
        "store with `reput repair`, and call again"
    )


def backed_up(last: LastRecord) -> LastBackedUp:
    """The last record of a log, as a manifest names it."""
    return LastBackedUp(last.offset, last.store_timestamp, last.header_size, last.header_crc)


def resume_point(end: int, last: LastBackedUp | None) -> ResumePoint:
    """The end of a backed up log."""
    if last is None:
        return ResumePoint(end)
    return ResumePoint(end, LastRecord(last.offset, last.store_timestamp, last.header_size, last.header_crc))


def _log_end(directory: StoreDirectory, sinks: Sinks) -> ResumePoint:
    tail = LogTail(directory)
    end = tail.latest()
    for _ in range(_LOOKS):  # a walk that begins at damage raises; where the log has grown, it goes on
        begin, end = end, tail.advance(end)
        if begin.offset == end.offset:
            break
    if directory.was_killed or sinks.intent is not None:
        return end
    # No process writes: the last record counts although no record comes after it (see `LogTail.advance`).
    for file in directory.log_files():
        if file.start_offset <= end.offset < file.end_offset:
            split = Split(file, end.offset, file.end_offset, is_record_start=True)
            scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.END, files=directory.files)
            for columns in scan:
                end = ResumePoint(columns.next_offset, tail.last_record(file, columns))
    return end


def _known_end(directory: StoreDirectory) -> tuple[int, int]:
    """End of the log at the last clean exit, and the checkpoint's store time (ms) of the log; 0 for unknown.

    A file that cannot be decoded counts as missing: both files only spare a start some work.
    """
    files, root = directory.files, directory.path
    shutdown = None if directory.was_killed else read_shutdown(root, files)
    flushed_ms = decode_checkpoint(_read(os.path.join(root, CHECKPOINT), files)).physic_msg_timestamp
    return shutdown.commit_log_end if shutdown is not None else 0, flushed_ms


def _newest_ms(directory: StoreDirectory, end: ResumePoint, flushed_ms: int) -> int:
    """Latest store time (ms) of the log's records; `flushed_ms` if a record is that late, or may have been."""
    log_files = directory.log_files()
    if end.last is None and log_files and log_files[0].start_offset:  # retention has deleted the records
        return flushed_ms
    if end.last is not None and end.last.store_timestamp >= flushed_ms:
        return flushed_ms
    newest = 0  # of all records, not of the last one: a clock may have been set back
    for file in log_files:
        split = Split(file, file.start_offset, min(file.end_offset, end.offset), is_record_start=True)
        if split.begin < split.end:
            scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.END, files=directory.files)
            newest = max([newest, *(int(columns["store_timestamp"].max()) for columns in scan)])
    return newest


def read_config_files(directory: StoreDirectory) -> tuple[dict[str, bytes], list[str]]:
    """JSON files by name, and the names of files that are damaged together with their backup."""
    files, folder = directory.files, os.path.join(directory.path, CONFIG)
    if not files.is_directory(folder):
        return {}, []
    listed = (
        entry.name.removesuffix(BACKUP_SUFFIX) for entry in files.list_directory(folder) if not entry.is_directory
    )
    names = dict.fromkeys(name for name in listed if name.endswith(_JSON) and name not in _CONFIG_OF_STATE)
    config, damaged = {}, []
    for name in names:
        path = os.path.join(folder, name)
        data = _whole_json(path, files)
        if data is None and (data := _read(path, files)):
            damaged.append(name)
        if data:  # an empty file counts as missing, for RocketMQ, too
            config[name] = data
    return config, damaged


def _whole_json(path: str, files: FileLayer) -> bytes | None:
    """Bytes of the file, or of its backup; None if both are damaged. RocketMQ writes one after the other in place.

    So one of the two is whole at any moment. Both are read again if neither was whole: a writer may have finished
    one and begun the other between the reads.
    """
    for _ in range(_READS):
        for candidate in (path, path + BACKUP_SUFFIX):
            data = _read(candidate, files)
            try:
                if data and decode_fastjson(data) is not None:
                    return data
            except CorruptMetadataError:
                pass
    return None


def _read(path: str, files: FileLayer) -> bytes:
    """Read a small file; empty if it is missing, also for the moment in which its writer replaces it."""
    try:
        return files.read_bytes(path)
    except StoreError:
        if files.exists(path):
            raise
        return b""
