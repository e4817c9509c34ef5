"""Listing of a store's files for an audit. A wrong name or size is a finding; other files are read later."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from reput.errors import CorruptMetadataError
from reput.files import DISK, Entry, FileLayer
from reput.formats.access import ACCESS_FILE, decode_access
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.fastjson import decode_fastjson
from reput.formats.kv_config import KV_CONFIG_FILE, decode_kv_config
from reput.formats.metadata import FILE_NAMES, TopicConfig, Topics, decode_metadata
from reput.formats.paths import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    file_name_to_offset,
    is_index_file_name,
    offset_to_file_name,
    queue_folder_id,
)
from reput.formats.shutdown import SHUTDOWN_FILE, decode_shutdown
from reput.formats.sink_commit import SINKS_FILE, decode_sinks
from reput.jobs.audit.topics import topic_findings
from reput.jobs.findings import Finding
from reput.log.directory import MOST_FILE_BYTES, TOO_LONG, LogFile, StoreDirectory, usual_size
from reput.log.metadata import BACKUP_SUFFIX, decode_file, read_shutdown
from reput.log.queue_types import QueueTypes, is_batch_cq
from reput.log.rocksdb.databases import without_database_files
from reput.log.rocksdb.queue_database import DatabaseQueue
from reput.log.rocksdb.queue_files import DatabaseFiles


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """The files of one queue. `starts` are the positions of the files' first bytes in the queue."""

    topic: str
    queue_id: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListedQueues:
    """All queues of one kind.

    Attributes:
        path: folder of the files.
        file_size: size of each file in bytes, 0 without files.
        in_databases: where databases have the units, and there are no files; empty for files.
    """

    path: str
    file_size: int
    queues: tuple[ListedQueue, ...]
    in_databases: tuple[DatabaseQueue, ...] = ()

    @property
    def databases(self) -> str:
        """Folders of the databases, with commas between; empty for files."""
        return ", ".join(sorted({queue.database for queue in self.in_databases}))

    def file_layer(self) -> FileLayer:
        """File layer that reads the files; for databases a new one."""
        return DatabaseFiles(self.path, self.file_size, self.in_databases) if self.in_databases else DISK

    def file_path(self, topic: str, queue_id: int, start: int) -> str:
        """Path of the file of a queue that begins at the position `start` of the queue."""
        return os.path.join(self.path, topic, str(queue_id), offset_to_file_name(start))


@dataclass(frozen=True, slots=True)
class StoreListing:
    """Files of a store, and findings about them.

    Attributes:
        log_files: each with the size that most log files have.
        log_is_whole: no log file is missing, and no name or size is wrong.
        index_files: paths, oldest first, all of `index_file_size` bytes.
        findings: about names, sizes, `config/` and the checkpoint.
    """

    log_files: tuple[LogFile, ...]
    log_is_whole: bool
    queues: ListedQueues
    batch_queues: ListedQueues
    extensions: ListedQueues
    index_files: tuple[str, ...]
    index_file_size: int
    batch_topics: frozenset[str]
    simple_topics: frozenset[str]
    checkpoint: Checkpoint | None
    checkpoint_path: str
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _FileSet:
    """The files of one folder, or of several folders that hold one log."""

    files: list[LogFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def checked(self, size: int, missing: str) -> list[LogFile]:
        """Files that may be read, each with the length `size`. Other files, and gaps between files, become findings."""
        taken: list[LogFile] = []
        if size > MOST_FILE_BYTES:
            self.findings += [Finding("file-size", file.path, f"{file.size} bytes{TOO_LONG}") for file in self.files]
            return taken
        for file in self.files:
            if file.start_offset % size:
                text = f"its name is no multiple of {size} bytes"
                self.findings.append(Finding("foreign-file", file.path, text))
            elif taken and taken[-1].start_offset == file.start_offset:
                text = f"the same file lies in {os.path.dirname(taken[-1].path)}"
                self.findings.append(Finding("foreign-file", file.path, text))
            else:
                if file.size != size:  # checked only for files that belong here: a repair must lengthen no other file
                    text = f"{file.size} bytes, the others have {size}"
                    self.findings.append(Finding("file-size", file.path, text))
                taken.append(LogFile(file.path, file.start_offset, size, file.folders))
        for file, following in pairwise(taken):
            if following.start_offset != file.end_offset:
                begin, end = file.end_offset, following.start_offset
                path = os.path.join(os.path.dirname(file.path), offset_to_file_name(begin))
                count = (end - begin) // size
                text = f"{count} {'file is' if count == 1 else 'files are'} not there: bytes {begin} to {end}"
                offset = begin if missing == "log-file-missing" else None
                self.findings.append(Finding(missing, path, text, commit_log_offset=offset, count=count))
        return taken


def list_store(directory: StoreDirectory) -> StoreListing:
    """List names and sizes of a store's files, and read the small ones.

    Raises StoreError if a folder cannot be listed.
    """
    findings: list[Finding] = []
    log = _numbered(*directory.commit_log_folders)
    log_size = usual_size(file.size for file in log.files)
    log_files = log.checked(log_size, "log-file-missing") if log_size else []
    log_is_whole = not log.findings
    findings += log.findings
    queues = list_queues(os.path.join(directory.path, CONSUME_QUEUE), UNIT_SIZE, findings)
    batch_queues = list_queues(os.path.join(directory.path, BATCH_CONSUME_QUEUE), BATCH_UNIT_SIZE, findings)
    extensions = list_queues(os.path.join(directory.path, CONSUME_QUEUE_EXT), 1, findings)
    index_files, index_file_size = _list_index(os.path.join(directory.path, INDEX), findings)
    types = _queue_types(directory.path, queues, batch_queues, findings)
    findings += _config_findings(os.path.join(directory.path, CONFIG))
    findings += topic_findings(directory.path)
    unread = [foreign for foreign in directory.foreign_parts() if not foreign.is_read]
    findings += [Finding("foreign-part", foreign.path, foreign.text) for foreign in unread]
    checkpoint_path = os.path.join(directory.path, CHECKPOINT)
    checkpoint = _checkpoint(checkpoint_path, bool(log_files), findings)
    had_log = queues.queues or batch_queues.queues or (checkpoint is not None and checkpoint.physic_msg_timestamp > 0)
    if had_log and not log.files and not _numbered(*directory.commit_log_folders).files:  # nor was one made meanwhile
        text = (
            "no log file is here, but queues or checkpoint are: is its disk mounted, or is the log in another folder?"
        )
        findings.append(Finding("log-missing", directory.commit_log_folders[0], text))
    if not log_is_whole:  # without its folders a file finds no later file: the folders are not in order
        log_files = [LogFile(file.path, file.start_offset, file.size) for file in log_files]
    return StoreListing(
        tuple(log_files), log_is_whole, queues, batch_queues, extensions, index_files, index_file_size,
        frozenset(types.batch), types.simple, checkpoint, checkpoint_path, tuple(findings),
    )  # fmt: skip


def _numbered(*folders: str) -> _FileSet:
    """Files of folders whose names are offsets, in order. An empty last file is left out."""
    listed = _FileSet()
    for folder in folders:
        for entry in DISK.list_directory(folder) if DISK.is_directory(folder) else ():
            path, start = os.path.join(folder, entry.name), file_name_to_offset(entry.name)
            if start is not None and (text := _no_file(entry)):
                listed.findings.append(Finding("foreign-file", path, text))
            elif entry.is_directory:
                continue
            elif start is None:
                listed.findings.append(Finding("foreign-file", path, "its name is no offset of 20 digits"))
            else:
                listed.files.append(LogFile(path, start, entry.size, folders))
    listed.files.sort(key=lambda file: file.start_offset)
    if listed.files and not listed.files[-1].size:
        listed.files.pop()
    return listed


def _no_file(entry: Entry) -> str:
    """Text of a finding about an entry that is no regular file; empty for a file."""
    if entry.is_broken_link:
        return "a symbolic link that leads nowhere"
    if entry.is_special:
        return "a device, pipe, socket or link to an empty file lies where a file is expected"
    return "a folder lies where a file is expected" if entry.is_directory else ""


def list_queues(folder: str, unit_size: int, findings: list[Finding]) -> ListedQueues:
    """List the queues in a folder. Wrong names and sizes go to `findings`."""
    entries = DISK.list_directory(folder) if DISK.is_directory(folder) else []
    beside = [entry.name for entry in entries if not entry.is_directory]
    for name in without_database_files(DISK, folder, beside):
        findings.append(Finding("foreign-file", os.path.join(folder, name), "a file among folders of topics"))
    sets = {
        (topic, int(queue_id)): _numbered(path)
        for topic, topic_path in _folders(folder)
        for queue_id, path in _folders(topic_path)
        if queue_folder_id(queue_id) is not None
    }
    size = usual_size((file.size for listed in sets.values() for file in listed.files), unit_size)
    queues = []
    for (topic, queue_id), listed in sorted(sets.items()):
        files = listed.checked(size, "queue-file-missing") if size else []
        findings += listed.findings
        if size % unit_size:
            text = f"{size} bytes, no whole number of units of {unit_size}"
            findings += [Finding("file-size", file.path, text) for file in files]
        if files:
            queues.append(ListedQueue(topic, queue_id, tuple(file.start_offset for file in files)))
    return ListedQueues(folder, size, tuple(queues))


def _list_index(folder: str, findings: list[Finding]) -> tuple[tuple[str, ...], int]:
    sizes: dict[str, int] = {}
    for entry in DISK.list_directory(folder) if DISK.is_directory(folder) else ():
        path, is_named = os.path.join(folder, entry.name), is_index_file_name(entry.name)
        if is_named and (text := _no_file(entry)):
            findings.append(Finding("foreign-file", path, text))
        elif entry.is_directory:
            continue
        elif not is_named:
            findings.append(Finding("foreign-file", path, "its name is no time of 17 digits"))
        elif entry.size:  # a kill leaves empty files
            sizes[path] = entry.size
    usual = usual_size(sizes.values())
    for path, size in sizes.items():
        if size != usual:
            findings.append(Finding("file-size", path, f"{size} bytes, the others have {usual}"))
    return tuple(path for path, size in sizes.items() if size == usual), usual


def _queue_types(root: str, queues: ListedQueues, batch_queues: ListedQueues, findings: list[Finding]) -> QueueTypes:
    """Queue types as by `find_queue_types` and `check_queue_folders`; findings in place of their errors."""
    path = os.path.join(root, CONFIG, FILE_NAMES[Topics])
    table: dict[str, TopicConfig] = {}
    for candidate in (path, path + BACKUP_SUFFIX):
        try:
            topics = decode_file(candidate, lambda data: decode_metadata(Topics, data), DISK)
        except CorruptMetadataError:
            continue  # `_config_findings` reports it
        if topics is not None:
            table = dict(topics.topic_config_table)
            break
    batch = {name for name, topic in table.items() if is_batch_cq(topic)}
    found = {queue.topic for queue in batch_queues.queues}
    if (shutdown := read_shutdown(root, DISK)) is not None:
        found.update(set(shutdown.batch_topics) - {queue.topic for queue in queues.queues})
    types = QueueTypes(batch | (found - table.keys()), frozenset(table.keys() - batch))
    for folder, wrong in ((queues, types.batch), (batch_queues, types.simple)):
        for topic in sorted({queue.topic for queue in folder.queues} & wrong):
            text = f"queue.type in {path}, or another folder of the topic, says otherwise"
            findings.append(Finding("queue-type", os.path.join(folder.path, topic), text, topic=topic))
    return types


def _config_findings(folder: str) -> Iterator[Finding]:
    """Findings of JSON files that cannot be decoded, each as its reader does."""
    for entry in DISK.list_directory(folder) if DISK.is_directory(folder) else ():
        path = os.path.join(folder, entry.name)
        if entry.is_directory or not entry.name.endswith(".json"):
            continue
        if entry.name == SHUTDOWN_FILE:
            if decode_shutdown(DISK.read_spared(path)) is None:
                yield Finding("config-backup", path, "garbled; the next start does without it, and reads more")
            continue
        decode = _DECODERS.get(entry.name, decode_fastjson)
        try:
            decode_file(path, decode, DISK)
        except CorruptMetadataError as error:
            yield Finding(_damage_code(path + BACKUP_SUFFIX, decode), path, error.reason, position=error.offset)


def _decode_sinks(data: bytes) -> object:
    return decode_sinks(data, "")


def _decode_access(data: bytes) -> object:
    try:
        return decode_access(data)
    except ValueError as error:
        raise CorruptMetadataError("", 0, str(error)) from None


_DECODERS: dict[str, Callable[[bytes], object]] = {
    **{name: partial(decode_metadata, kind) for kind, name in FILE_NAMES.items()},
    ACCESS_FILE: _decode_access, KV_CONFIG_FILE: decode_kv_config, SINKS_FILE: _decode_sinks,
}  # fmt: skip


def _damage_code(backup: str, decode: Callable[[bytes], object]) -> str:
    try:
        return "config-damaged" if decode_file(backup, decode, DISK) is None else "config-backup"
    except CorruptMetadataError:
        return "config-damaged"


def _checkpoint(path: str, is_used: bool, findings: list[Finding]) -> Checkpoint | None:
    if not DISK.exists(path):
        if is_used:
            findings.append(Finding("checkpoint-short", path, "there is no checkpoint"))
        return None
    data = DISK.read_bytes(path)
    if len(data) != CHECKPOINT_SIZE:
        findings.append(Finding("checkpoint-short", path, f"{len(data)} bytes instead of {CHECKPOINT_SIZE}"))
    return decode_checkpoint(data)


def _folders(path: str) -> Iterator[tuple[str, str]]:
    """(name, path) of each subfolder of a folder; none if the folder is missing."""
    for entry in DISK.list_directory(path) if DISK.is_directory(path) else ():
        if entry.is_directory:
            yield entry.name, os.path.join(path, entry.name)
