"""What a backup takes of a store that may be live: where its log ends, its JSON files, the queues without a message.

No lock is taken. What is looked at first may be older than the log's end that is found later, and never newer: a
consumer's offset leads to a message that is in the backup, and so does a sink's commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reput.errors import CorruptMetadataError, StoreError, StoreFormatError
from reput.files import FileLayer
from reput.formats.checkpoint import decode_checkpoint
from reput.formats.fastjson import decode_fastjson
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
)
from reput.formats.shutdown import SHUTDOWN_FILE, decode_shutdown
from reput.formats.sink_commit import SINKS_FILE, STAGING, Sinks, encode_sinks
from reput.jobs.rebuild.geometry import find_sizes, has_queue_files
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import DISPATCH_FILE, DISPATCHER_LOCK, RECOVERY_FILE
from reput.log.metadata import BACKUP_SUFFIX
from reput.log.positions import LogPosition
from reput.log.scan import OnDamage, scan_split
from reput.log.sink_commits import read_sinks
from reput.log.splits import Split
from reput.log.tail import LogTail

#: What a restore makes anew, and what belongs to a process that runs.
_DERIVED = {CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT, ABORT, LOCK, STAGING}
#: Of a store's state, not of what it holds; a restored store looks for itself.
_CONFIG_OF_STATE = {SHUTDOWN_FILE, DISPATCH_FILE, DISPATCHER_LOCK, RECOVERY_FILE, SINKS_FILE}
_INDEX_SIZES = ("max_hash_slot_num", "max_index_num")
_QUEUE_SIZE = "mapped_file_size_consume_queue"
#: What a rebuild must know, beside the log.
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
    """A store at one moment.

    Attributes:
        end: Where its log ends: behind the last whole record that no start takes back.
        config: The JSON files below `config/` by name.
        damaged: The names of those that cannot be read; their bytes are taken as they are.
        losses: What says that the log was longer, each as the end of a sentence.
    """

    end: LogPosition
    config: Mapping[str, bytes]
    damaged: tuple[str, ...]
    losses: tuple[str, ...]


def look_at_source(directory: StoreDirectory) -> SourceState:
    """The store now.

    Raises:
        CorruptRecordError: The last log file is damaged: a record proves itself behind one that does not.
        CorruptMetadataError: Nothing says which batches of sinks are in the log.
        StoreError: A file cannot be read, or retention has deleted it meanwhile.
    """
    files, root = directory.files, directory.path
    while True:
        sinks = read_sinks(files, root)
        config, damaged = _read_config_files(directory)
        closed_end, flushed_ms = _known_end(directory)
        end = _log_end(directory, sinks)
        if read_sinks(files, root) == sinks:  # else a batch of a sink may be in the log, and not in its commits
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
    """Those of `SIZES` that the files tell: sizes of derived files, and what queues have beside units.

    Where records were not dispatched yet, or queues are lost, those of queues and index are left out: a store of other
    sizes than the broker's is of no use. Of a store without a record they are RocketMQ's defaults: nothing is built.
    """
    is_untold = has_records and not has_queue_files(directory)
    for index in (True, False):
        try:
            config, _ = find_sizes(directory, {}, index=index)
        except StoreFormatError:  # all that it looks at is derived: whoever restores may say it
            continue
        untold = _INDEX_SIZES if not index else (_QUEUE_SIZE, *_INDEX_SIZES) if is_untold else ()
        return {name: getattr(config, name) for name in SIZES if name not in untold}
    return {}


def left_out(directory: StoreDirectory) -> list[str]:
    """Names in the store directory that no backup has and no restore makes: what reput does not know."""
    files, root = directory.files, directory.path
    names = [entry.name for entry in files.list_directory(root) if entry.name not in {*_DERIVED, COMMIT_LOG, CONFIG}]
    folder = os.path.join(root, CONFIG)
    for entry in files.list_directory(folder) if files.is_directory(folder) else ():
        is_known = entry.name in _CONFIG_OF_STATE or entry.name.endswith((BACKUP_SUFFIX, ".tmp"))
        if entry.is_directory or not (is_known or entry.name.endswith(_JSON)):
            names.append(f"{CONFIG}/{entry.name}")
    return names


def _log_end(directory: StoreDirectory, sinks: Sinks) -> LogPosition:
    tail = LogTail(directory)
    end = tail.latest()
    for _ in range(_LOOKS):  # damage is told by a walk that begins at it; a log that grows has none there
        begin, end = end, tail.advance(end)
        if begin.offset == end.offset:
            break
    if directory.was_killed or sinks.intent is not None:
        return end
    # Nobody writes: the last record counts although none follows it (see `LogTail.advance`).
    for file in directory.log_files():
        if file.start_offset <= end.offset < file.end_offset:
            split = Split(file, end.offset, file.end_offset, is_record_start=True)
            scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.END, files=directory.files)
            for columns in scan:
                end = LogPosition(columns.next_offset, tail.last_record(file, columns))
    return end


def _known_end(directory: StoreDirectory) -> tuple[int, int]:
    """Where the last clean exit has left the log's end, and the store time (ms) of what was on the disk; 0 for unknown.

    What cannot be read says nothing: both only spare a start some work.
    """
    files, root = directory.files, directory.path
    shutdown = (
        None if directory.was_killed else decode_shutdown(_read(os.path.join(root, CONFIG, SHUTDOWN_FILE), files))
    )
    flushed_ms = decode_checkpoint(_read(os.path.join(root, CHECKPOINT), files)).physic_msg_timestamp
    return shutdown.commit_log_end if shutdown is not None else 0, flushed_ms


def _newest_ms(directory: StoreDirectory, end: LogPosition, flushed_ms: int) -> int:
    """The latest store time (ms) of the log's records; `flushed_ms` where one is that late, or may have been."""
    log_files = directory.log_files()
    if end.last is None and log_files and log_files[0].start_offset:  # retention has deleted them
        return flushed_ms
    if end.last is not None and end.last.store_timestamp >= flushed_ms:
        return flushed_ms
    newest = 0  # not the last one's: a clock may have been set back
    for file in log_files:
        split = Split(file, file.start_offset, min(file.end_offset, end.offset), is_record_start=True)
        if split.begin < split.end:
            scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.END, files=directory.files)
            newest = max([newest, *(int(columns["store_timestamp"].max()) for columns in scan)])
    return newest


def _read_config_files(directory: StoreDirectory) -> tuple[dict[str, bytes], list[str]]:
    """The JSON files by name, and the names of those that are damaged, as is their backup."""
    files, folder = directory.files, os.path.join(directory.path, CONFIG)
    if not files.is_directory(folder):
        return {}, []
    listed = (
        entry.name.removesuffix(BACKUP_SUFFIX) for entry in files.list_directory(folder) if not entry.is_directory
    )
    names = dict.fromkeys(name for name in listed if name.endswith(_JSON) and name not in _CONFIG_OF_STATE)
    found, damaged = {}, []
    for name in names:
        path = os.path.join(folder, name)
        data = _whole_json(path, files)
        if data is None and (data := _read(path, files)):
            damaged.append(name)
        if data:  # an empty one says as much as none, to RocketMQ, too
            found[name] = data
    return found, damaged


def _whole_json(path: str, files: FileLayer) -> bytes | None:
    """The file's bytes, or its backup's: RocketMQ writes one after the other in place, so one of the two is whole.

    Read again where neither is: a writer may have gone from one to the other meanwhile.
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
    """A small file; empty where it is missing, if only for the moment in which its writer replaces it."""
    try:
        return files.read_bytes(path)
    except StoreError:
        if files.exists(path):
            raise
        return b""
