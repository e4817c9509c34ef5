"""StoreDirectory: the files of a store directory (docs/formats/store-directory.md), read only.

Only the checkpoint is opened, and nothing is cached: each call lists again, since a live store grows and its retention
removes files. File sizes are read from the files, so no configuration is needed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

from reput.config.arguments import check_path
from reput.config.properties import split_folders
from reput.errors import ConfigError, CorruptIndexFileError, StoreError, StoreFormatError
from reput.files import DISK, Entry, File, FileLayer
from reput.formats.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint
from reput.formats.index_file import HEADER_SIZE, decode_header
from reput.formats.java import INT32_MAX, INT64_MAX
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
    file_name_to_offset,
    is_checked_name,
    is_index_file_name,
    offset_to_file_name,
    queue_folder_id,
)
from reput.log.foreign_parts import ForeignPart, check_is_no_copy, dledger_part, foreign_parts, is_dledger_data
from reput.log.object_storage import ObjectStorage, absolute, check_file_layer, check_is_no_url, check_on_disk
from reput.log.rocksdb.databases import without_database_files

_NAMES_OF_A_STORE = (COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT, ABORT, LOCK, CONFIG)
_FOLDERS_OF_A_STORE = (COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX, CONFIG)
#: Includes what `FileLayer.write_atomically` writes beside a file.
_FILES_OF_A_STORE = (CHECKPOINT, ABORT, f"{ABORT}.tmp", LOCK)
_ENDS_OF_CONFIG_FILES = (".json", ".bak", ".lock", ".tmp")
#: Of a file of a log or queue: its size is an int of Java, and positions in it are int32.
MOST_FILE_BYTES = INT32_MAX
TOO_LONG = f", expected at most {MOST_FILE_BYTES}, which is RocketMQ's limit"
_RESTORE = "restore it from a copy"
_CLOSE_THE_GAP = "restore what is missing, or take what is whole by `reput repair STORE --salvage NEW_STORE --apply`"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a series named by offsets; `start_offset` and `size` in bytes."""

    path: str
    start_offset: int
    size: int
    #: All folders that hold files of the series.
    folders: tuple[str, ...] = field(default=(), compare=False)
    #: Disk space that the file takes: about as much as was written.
    allocated_bytes: int = field(default=0, compare=False)

    @property
    def end_offset(self) -> int:
        """Offset after the file's last byte, at which the next file starts."""
        return self.start_offset + self.size


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one consume queue or batch consume queue, in order; each is `file_size` bytes long."""

    topic: str
    queue_id: int
    paths: tuple[str, ...]
    file_size: int


def usual_size(sizes: Iterable[int], unit_size: int = 1) -> int:
    """The most frequent file size, of whole units if any file has them; 0 without files.

    Of equally frequent sizes the largest counts, since files are cut and never grow.
    """
    counts = Counter(sizes)
    whole = {size: count for size, count in counts.items() if size and size % unit_size == 0} or counts
    return max(whole, key=lambda size: (whole[size], size), default=0)


@dataclass(frozen=True, slots=True)
class IndexFilePath:
    """One index file and its length in bytes."""

    path: str
    size: int


def check_outside(path: str | os.PathLike[str], store: str, *log_folders: str, kind: str = "the store") -> None:
    """Raises ConfigError if `path`, which is to be written, is no path, a URL, or inside a store or its log folders."""
    check_is_no_url(path, "output")
    output = os.path.realpath(os.path.expanduser(path))
    for folder in map(os.path.realpath, (store, *log_folders)):
        if os.path.commonpath([output, folder]) == folder:
            raise ConfigError(f"{os.fspath(path)}: lies inside {kind} {store}; name a place outside of it")


def check_replaceable(path: str) -> None:
    """Raises StoreFormatError if a new folder cannot be renamed to this path: it is a link or a mount point."""
    if os.path.islink(path) or os.path.ismount(path):
        what = "a link" if os.path.islink(path) else "a mount point"
        raise StoreFormatError(f"{path}: is {what}, which cannot be replaced; name a new folder, in it if you like")


class StoreDirectory:
    """A store directory on the disk; read only.

    Args:
        path: the store's root (`storePathRootDir`), or its URL, if the file layer reads URLs (`files_of`).
        commit_log_path: the folder of the commit log if it is not `commitlog` below the root (`storePathCommitLog`);
            several folders are separated by commas.
        files: the file layer.

    Raises ConfigError for a URL that `files` does not read.
    Raises StoreFormatError if `path` is no directory or holds nothing of a store, or copies of one, for a file in place
    of a folder or a folder in place of a file, and for a log that is not a plain commit log
    (`reput.log.foreign_parts`). A store without messages may lack any of its folders.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        commit_log_path: str | os.PathLike[str] | None = None,
        files: FileLayer = DISK,
    ) -> None:
        check_file_layer("files", files)
        if not isinstance(files, ObjectStorage):
            check_on_disk(path)
        self.path = absolute(path)
        self.files = files
        self.commit_log_folders: tuple[str, ...] = (os.path.join(self.path, COMMIT_LOG),)
        _check_directory(files, self.path)
        entries = files.list_directory(self.path)
        for entry in entries:
            if entry.name in (_FILES_OF_A_STORE if entry.is_directory else _FOLDERS_OF_A_STORE):
                _refuse_kind(entry, os.path.join(self.path, entry.name))
            if entry.name in _FILES_OF_A_STORE:
                check_entry(entry, os.path.join(self.path, entry.name))
            if entry.name == CONFIG:
                folder = os.path.join(self.path, CONFIG)
                for config_file in files.list_directory(folder):
                    if config_file.name.endswith(_ENDS_OF_CONFIG_FILES):
                        check_entry(config_file, os.path.join(folder, config_file.name))
        if commit_log_path is not None:
            check_path("commit_log_path", commit_log_path, "the path of a folder, or of several with commas between")
            self.commit_log_folders = named_folders(os.fspath(commit_log_path))
            for folder in self.commit_log_folders:
                _check_directory(files, folder, "mount its disk, or make it if it is a new one")
                check_is_log_folder(files, folder)
                if is_dledger_data(folder):
                    raise StoreFormatError(str(dledger_part(folder, os.path.join(self.path, COMMIT_LOG))))
            return
        check_is_no_copy(self.path, {entry.name for entry in entries})
        if not any(entry.name in _NAMES_OF_A_STORE for entry in entries):
            raise StoreFormatError(
                f"{self.path}: no store: it has no folder {COMMIT_LOG}, nor anything else of a store; "
                "give the directory that a broker calls storePathRootDir"
            )
        for part in self.foreign_parts():
            if part.hides_log:
                raise StoreFormatError(str(part))

    @property
    def name(self) -> str:
        """Name of the directory, without its path."""
        return os.path.basename(self.path)

    @property
    def was_killed(self) -> bool:
        """Whether the file `abort` exists: the store is open for writing now, or its writer was killed."""
        return self.files.exists(os.path.join(self.path, ABORT))

    def foreign_parts(self) -> list[ForeignPart]:
        """Parts of the directory that reput does not read, each with what to do."""
        return foreign_parts(self.files, self.path)

    def check_output(self, path: str | os.PathLike[str]) -> None:
        """Raises ConfigError if `path`, which is to be written, is a URL, or lies among the store's own files."""
        check_outside(path, self.path, *self.commit_log_folders)

    def log_files(self) -> list[LogFile]:
        """The commit log's files in order; empty for a store without messages.

        Raises StoreFormatError for a file with a foreign name, a file whose length differs from the others', and a gap
        between two files: RocketMQ's `MappedFileQueue` does so, or warns. An empty last file is left out: RocketMQ
        deletes it at its next start.
        """
        return numbered_files(self.files, *self.commit_log_folders)

    def topic_folders(self) -> set[str]:
        """Topics that have a folder of queues; whether there is a queue in it is not looked at."""
        folders = [os.path.join(self.path, name) for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)]
        listed = [(path, self.files.list_names(path)) for path in folders if self.files.is_directory(path)]
        return {name for path, names in listed for name in without_database_files(self.files, path, names)}

    def queues(self, topics: Iterable[str] | None = None) -> list[QueueFiles]:
        """The consume queues, sorted by topic and queue id; queue folders without files are left out.

        Raises StoreFormatError as `log_files`. Queue folders whose name is no number are ignored, as in RocketMQ.

        Args:
            topics: only of these topics: the folders of others are not looked at; None: of all.
        """
        return self._queues_in(CONSUME_QUEUE, topics)

    def batch_queues(self, topics: Iterable[str] | None = None) -> list[QueueFiles]:
        """The batch consume queues, in the same form as `queues`."""
        return self._queues_in(BATCH_CONSUME_QUEUE, topics)

    def _queues_in(self, folder: str, topics: Iterable[str] | None) -> list[QueueFiles]:
        listing = []
        remedy = build_again(os.path.join(self.path, folder))
        above = os.path.join(self.path, folder)
        if topics is None:
            folders = self._folders(above)
        else:
            named = [(topic, os.path.join(above, topic)) for topic in topics if is_checked_name(topic)]
            folders = ((topic, path) for topic, path in named if self.files.is_directory(path))
        for topic, topic_path in folders:
            for queue_id, path in self._folders(topic_path):
                if (number := queue_folder_id(queue_id)) is not None:
                    numbered = numbered_files(self.files, path, remedy=remedy)
                    if numbered:
                        paths = tuple(file.path for file in numbered)
                        listing.append(QueueFiles(topic, number, paths, numbered[0].size))
        return sorted(listing, key=lambda queue: (queue.topic, queue.queue_id))

    def check_queue_folders(self) -> None:
        """Raises StoreFormatError for a file in place of a queue's or a topic's folder.

        Readers ignore such a file, but a dispatch could not make the folder. A file with a dot in its name is ignored:
        no topic has one.
        """
        for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT):
            folder = os.path.join(self.path, name)
            for topic in self.files.list_directory(folder) if self.files.is_directory(folder) else ():
                path = os.path.join(folder, topic.name)
                if not topic.is_directory and "." not in topic.name:
                    _refuse_kind(topic, path)
                for queue in self.files.list_directory(path) if topic.is_directory else ():
                    if not queue.is_directory and queue_folder_id(queue.name) is not None:
                        _refuse_kind(queue, os.path.join(path, queue.name))

    def index_files(self) -> list[IndexFilePath]:
        """The index files, oldest first, whatever their names say: by the commit log offset of their first entry.

        Raises StoreFormatError for a file whose name is not 17 digits long.
        """
        folder = os.path.join(self.path, INDEX)
        if not self.files.is_directory(folder):
            return []
        listing = []
        for entry in self.files.list_directory(folder):
            path = os.path.join(folder, entry.name)
            is_named = is_index_file_name(entry.name)
            if is_named:
                check_entry(entry, path)
            if entry.is_directory:
                continue
            if not is_named:
                raise StoreFormatError(f"{path}: no index file: its name is no time of 17 digits; move it away")
            listing.append(IndexFilePath(path, entry.size))
        return in_log_order(listing, self.files)

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint; None without the file."""
        path = os.path.join(self.path, CHECKPOINT)
        if not self.files.exists(path):
            return None
        with self.files.open(path) as file:
            return decode_checkpoint(file.read(0, CHECKPOINT_SIZE))

    def _folders(self, path: str) -> Iterator[tuple[str, str]]:
        """(name, path) of each sub-folder of a folder; nothing if the folder is missing."""
        if self.files.is_directory(path):
            for entry in self.files.list_directory(path):
                if entry.is_directory:
                    yield entry.name, os.path.join(path, entry.name)


def open_listed(files: FileLayer, path: str, *, writable: bool = False) -> File:
    """Open a file of the store that existed when its folder was listed.

    Raises:
        StoreError: The file cannot be opened; the message says so if retention has deleted it since the listing.
    """
    try:
        return files.open(path, writable=writable)
    except StoreError as error:
        if files.exists(path):
            raise
        raise StoreError(
            f"{path}: it was there when the store was listed, and is gone: retention has deleted it (or it was moved "
            "away); read the store again, which begins later now"
        ) from error


def is_gone(error: BaseException) -> bool:
    """Whether an error only says that a file does not exist, for example because retention has deleted it."""
    cause: BaseException | None = error
    while type(cause) is StoreError:
        cause = cause.__cause__
    return isinstance(cause, FileNotFoundError)


def named_folders(text: str) -> tuple[str, ...]:
    """Absolute paths of the folders in a `storePathCommitLog` or `readOnlyCommitLogStorePaths`."""
    return tuple(absolute(folder) for folder in split_folders(text))


def _check_directory(files: FileLayer, path: str, advice: str = "check the path for a slip") -> None:
    if not files.exists(path):
        raise StoreFormatError(f"{path}: no such directory; {advice}")
    if not files.is_directory(path):
        raise StoreFormatError(f"{path}: a file, not a directory; give the directory of a store")


def check_is_log_folder(files: FileLayer, path: str) -> None:
    """Raises StoreFormatError if a folder named as a commit log's has the log in its folder `commitlog`, as a store."""
    below = os.path.join(path, COMMIT_LOG)
    if files.is_directory(below) and _has_numbered(files, below) and not _has_numbered(files, path):
        raise StoreFormatError(f"{path}: the log is not in this folder but in one below it; name {below}")


def _has_numbered(files: FileLayer, folder: str) -> bool:
    return any(file_name_to_offset(name) is not None for name in files.list_names(folder))


def build_again(folder: str) -> str:
    """Advice for damaged queues."""
    return (
        f"queues derive from the log: move {folder} away, and the next start for writing builds them again; "
        "`reput rebuild` builds them elsewhere, of the size that its --set gives"
    )


def numbered_files(files: FileLayer, *folders: str, remedy: str | None = None) -> list[LogFile]:
    """The files of folders that are named by offsets, checked and in order; sub-folders are ignored, as in RocketMQ.

    Args:
        remedy: the advice in an error about missing or damaged files; None: restore them.
    """
    listing = _list_numbered(files, folders)
    if any(following.start_offset > file.end_offset for file, following in pairwise(listing)):
        # Beside a writer a listing may lack a file that was made meanwhile, and have a later one. The second listing
        # has every file up to the last file of the first.
        last = listing[-1].start_offset
        listing = [file for file in _list_numbered(files, folders) if file.start_offset <= last]
    if listing and not listing[-1].size:
        listing.pop()
    if not listing:
        return []
    file_size = _usual_size(listing)
    if file_size > MOST_FILE_BYTES:
        raise StoreFormatError(f"{listing[0].path}: {file_size} bytes long{TOO_LONG}; {remedy or _RESTORE}")
    for file in listing:
        if file.size != file_size or not file_size:
            others = f", but the files beside it {file_size}" if file_size else ""
            raise StoreFormatError(f"{file.path}: {file.size} bytes long{others}; {remedy or _RESTORE}")
        if file.start_offset % file_size:
            raise StoreFormatError(
                f"{file.path}: its name is no multiple of its {file_size} bytes, as it must be; rename it back; or: "
                f"{remedy or _RESTORE}"
            )
    for file, following in pairwise(listing):
        if following.start_offset == file.start_offset:
            raise StoreFormatError(
                f"{file.path}: the same file lies in {os.path.dirname(following.path)}; find out by `reput dump` which "
                "one the log goes on with, and move the other one away"
            )
        if following.start_offset != file.end_offset:
            missing = offset_to_file_name(file.end_offset)
            raise StoreFormatError(
                f"{', '.join(folders)}: after {os.path.basename(file.path)} the file {missing} is expected, but the "
                f"next one is {os.path.basename(following.path)}; {remedy or _CLOSE_THE_GAP}"
            )
    return listing


def _list_numbered(files: FileLayer, folders: tuple[str, ...]) -> list[LogFile]:
    listing = []
    for folder in folders:
        for entry in files.list_directory(folder) if files.is_directory(folder) else ():
            path = os.path.join(folder, entry.name)
            start_offset = file_name_to_offset(entry.name)
            if start_offset is not None:
                check_entry(entry, path)
            if not entry.is_directory:
                if start_offset is None:
                    raise StoreFormatError(f"{path}: a foreign file: its name is no offset of 20 digits; move it away")
                listing.append(LogFile(path, start_offset, entry.size, folders, entry.allocated_bytes))
    return sorted(listing, key=lambda file: file.start_offset)


def check_entry(entry: Entry, path: str) -> None:
    """Raises StoreFormatError for an entry with a file's name that is no regular file."""
    if entry.is_directory or entry.is_broken_link or entry.is_special:
        _refuse_kind(entry, path)


def _refuse_kind(entry: Entry, path: str) -> NoReturn:
    if entry.is_broken_link:
        raise StoreFormatError(f"{path}: a symbolic link that leads nowhere; mount the disk, or remove the link")
    if entry.is_special:
        raise StoreFormatError(
            f"{path}: a device, pipe, socket or link to an empty file lies where a file is expected; move it away"
        )
    kinds = ("folder", "file") if entry.is_directory else ("file", "folder")
    raise StoreFormatError(f"{path}: a {kinds[0]} lies where a {kinds[1]} is expected; move it away")


def _usual_size(listing: Sequence[LogFile]) -> int:
    """The most frequent file size; of two as frequent the one equal to a distance of names, else the larger one."""
    counts = Counter(file.size for file in listing if file.size) or {0: 1}
    distances = {following.start_offset - file.start_offset for file, following in pairwise(listing)}
    return max(counts, key=lambda size: (counts[size], size in distances, size))


def in_log_order(listed: Sequence[IndexFilePath], files: FileLayer) -> list[IndexFilePath]:
    """Index files in the order of their first entries in the log; those without an entry stay last, by name."""

    def begin(listed_file: IndexFilePath) -> int:
        try:
            with files.open(listed_file.path) as file:
                header = decode_header(file.read(0, HEADER_SIZE))
        except (CorruptIndexFileError, StoreError):  # whoever reads its entries is told
            return INT64_MAX
        return header.begin_phy_offset if header.entry_count else INT64_MAX

    return sorted(listed, key=begin) if len(listed) > 1 else list(listed)
