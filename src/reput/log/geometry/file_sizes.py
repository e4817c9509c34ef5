"""Sizes of a store's files, found from the files: bytes of log and queue files, slots and entries of index files.

All files of a kind have one size, RocketMQ's configuration, and queue files hold whole units. A file of another size
was cut, or comes from elsewhere: whoever uses the files must refuse it, who builds them anew reports it (`OddSize`).

A single queue with a single file shows no other size than its own. A cut between two of its units is therefore only
visible where the units end (`reput.store.recovery.missing_units`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.errors import StoreFormatError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.paths import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    INDEX,
    file_name_to_offset,
    is_index_file_name,
    queue_folder_id,
)
from reput.log.directory import IndexFilePath, QueueFiles, StoreDirectory, build_again, usual_size
from reput.log.geometry.index_geometry import entries_of, fitting_slots, index_geometry
from reput.log.queue_extensions import queue_extensions, subfolders


class OddSize(Enum):
    """Treatment of a derived file whose size cannot be right.

    REFUSE: StoreFormatError.
    REPORT: the file does not count, and a finding tells so; StoreFormatError only if two sizes are equally likely.
    """

    REFUSE = auto()
    REPORT = auto()


class QueueKind(NamedTuple):
    """Kind of queue: its folder, the bytes of a unit, and the configuration key of the file size."""

    folder: str
    unit_size: int
    key: str

    def size_in(self, queues: Sequence[QueueFiles], config: MessageStoreConfig) -> int:
        """The size that most files of queues of this kind have; without files the configured size."""
        return usual_size(queue.file_size for queue in queues) or int(getattr(config, self.key))


SIMPLE = QueueKind(CONSUME_QUEUE, UNIT_SIZE, "mapped_file_size_consume_queue")
BATCH = QueueKind(BATCH_CONSUME_QUEUE, BATCH_UNIT_SIZE, "mapper_file_size_batch_consume_queue")

#: The numbers of an index file.
INDEX_KEYS = ("max_hash_slot_num", "max_index_num")


class FileSizes(NamedTuple):
    """Sizes of a store's files.

    Attributes:
        values: by configuration key (snake_case), for the kinds of files that the store has; and whether its queues
            have extensions.
        findings: texts about files that do not count.
    """

    values: dict[str, Any]
    findings: list[str]


def find_file_sizes(
    directory: StoreDirectory,
    config: MessageStoreConfig,
    odd: OddSize = OddSize.REFUSE,
    *,
    index: bool = True,
    given: Collection[str] = (),
) -> FileSizes:
    """Find the sizes of a store's derived files.

    Args:
        directory: The store.
        config: Its slots and entries are kept if the index files fit them and prove no others.
        odd: What happens to files of another size. With REPORT, a kind without files has the size of `config`.
        index: Whether index files are looked at.
        given: Keys that need not be found, since the user gives their values.

    Raises:
        StoreFormatError: Files of one kind have several sizes, or the index files do not determine their numbers.
    """
    found, findings, refuses = dict[str, Any](), list[str](), odd is OddSize.REFUSE
    for kind in (SIMPLE, BATCH):
        if kind.key not in given:
            size = _only_size(directory, kind) if refuses else _likely_size(directory, kind, config, findings)
            if size:
                found[kind.key] = size
    extensions = queue_extensions(directory.path, directory.files)
    if extensions:
        found["enable_consume_queue_ext"] = True
        found["mapped_file_size_consume_queue_ext"] = usual_size(extension.file_size for extension in extensions)
    if index and not {*INDEX_KEYS} & {*given}:
        numbers = config.max_hash_slot_num, config.max_index_num
        if not refuses:
            found |= zip(INDEX_KEYS, _likely_index_geometry(directory, numbers, findings), strict=True)
        elif index_files := directory.index_files():
            found |= zip(INDEX_KEYS, index_geometry(index_files, *numbers, directory.files), strict=True)
    return FileSizes({key: size for key, size in found.items() if key not in given}, findings)


def find_writer_sizes(directory: StoreDirectory, config: MessageStoreConfig) -> dict[str, Any]:
    """Find the sizes that a writer of this store must have, of log files too, so that nobody need name them.

    They are as `FileSizes.values`.

    Raises StoreFormatError as `find_file_sizes`, and for a log that has gaps or files of several sizes.
    """
    log_files = directory.log_files()
    found = find_file_sizes(directory, config, index=config.message_index_enable).values
    if log_files:
        found["mapped_file_size_commit_log"] = log_files[0].size
    return found


def is_queue_size_proven(queues: Sequence[QueueFiles]) -> bool:
    """Whether the size of queue files is certain: more than one file has it, or it is RocketMQ's default."""
    default = MessageStoreConfig().mapped_file_size_consume_queue
    return sum(len(queue.paths) for queue in queues) != 1 or queues[0].file_size == default


def check_queue_sizes(queues: Sequence[QueueFiles], kind: QueueKind, root: str, configured: int | None = None) -> None:
    """Check the sizes of a store's queue files of one kind.

    Args:
        queues: All queues of that kind.
        kind: The kind.
        root: The store's directory.
        configured: The size that the files must have; None: the size that most of them have.

    Raises:
        StoreFormatError: A file does not hold whole units, differs from most, or does not have the configured size.
    """
    usual, name = usual_size(queue.file_size for queue in queues), camel_case(kind.key)
    advice = build_again(os.path.join(root, kind.folder))
    for queue in queues:
        path, size = queue.paths[0], queue.file_size
        if size % kind.unit_size:
            raise StoreFormatError(
                f"{path}: {size} bytes long, expected a multiple of {kind.unit_size}, the bytes of a unit; it was cut, "
                f"or comes from elsewhere; {advice}"
            )
        if size != usual:
            raise StoreFormatError(
                f"{path}: {size} bytes long, but the files of most queues {usual}; it was cut, or comes from "
                f"elsewhere; {advice}"
            )
    if configured not in (None, usual) and queues:
        raise StoreFormatError(
            f"{queues[0].paths[0]}: {usual} bytes, but {name} is {configured}; give {name}={usual} "
            f"(to a command: --set) if the store was written with it; if not, the file was cut: {advice}"
        )


def queue_files(directory: StoreDirectory, kind: QueueKind) -> list[QueueFiles]:
    """Queue files of a kind, a `QueueFiles` for each file, whatever their sizes. Empty files are left out."""
    files = directory.files
    return [
        QueueFiles(topic, int(queue_id), (f"{path}/{entry.name}",), entry.size)
        for topic, topic_path in subfolders(files, os.path.join(directory.path, kind.folder))
        for queue_id, path in subfolders(files, topic_path)
        if queue_folder_id(queue_id) is not None
        for entry in files.list_directory(path)
        if not entry.is_directory and entry.size and file_name_to_offset(entry.name) is not None
    ]


def _only_size(directory: StoreDirectory, kind: QueueKind) -> int:
    """Size of the queue files of a kind, 0 without files; every file must have it."""
    queues = directory.queues() if kind is SIMPLE else directory.batch_queues()
    check_queue_sizes(queues, kind, directory.path)
    return usual_size(queue.file_size for queue in queues)


def _likely_size(directory: StoreDirectory, kind: QueueKind, config: MessageStoreConfig, findings: list[str]) -> int:
    """Size of the queue files of a kind: the most frequent size among files whose size can be right."""
    queues, advice = queue_files(directory, kind), _advice(kind.key)
    likely = [
        queue
        for queue in queues
        if queue.file_size % kind.unit_size == 0 and int(os.path.basename(queue.paths[0])) % queue.file_size == 0
    ]
    size = kind.size_in(likely, config)
    counts = Counter(queue.file_size for queue in likely)
    if sum(count == counts[size] for count in counts.values()) > 1:
        examples = {queue.file_size: queue.paths[0] for queue in reversed(likely)}
        raise StoreFormatError(
            f"{' and '.join(f'{path}: {size} bytes long' for size, path in sorted(examples.items()))}, and there are "
            f"as many files of each size: give the broker's own with {advice}"
        )
    origin = "as most of the others are" if likely else "which is RocketMQ's default"
    findings += [
        f"{queue.paths[0]}: {queue.file_size} bytes long: it was cut, or is of another broker; what belongs there is "
        f"built in files of {size} bytes, {origin}; {advice} gives another size"
        for queue in queues
        if queue.file_size != size
    ]
    return size


def _likely_index_geometry(directory: StoreDirectory, numbers: tuple[int, int], findings: list[str]) -> tuple[int, int]:
    """Slots and entries of the store's index files, from a file of the most frequent size; without files `numbers`.

    Of equally frequent sizes the longest counts: files that were cut are shorter.
    """
    folder, advice = os.path.join(directory.path, INDEX), _advice(*INDEX_KEYS)
    found = [
        IndexFilePath(os.path.join(folder, entry.name), entry.size)
        for entry in (directory.files.list_directory(folder) if directory.files.is_directory(folder) else ())
        if not entry.is_directory and entry.size and is_index_file_name(entry.name)
    ]
    counts = Counter(entry.size for entry in found)
    found.sort(key=lambda entry: (-counts[entry.size], -entry.size))
    ambiguous: IndexFilePath | None = None
    pair, size, origin = numbers, 0, "RocketMQ's defaults"
    for entry in found:
        fitting = fitting_slots(entry, *numbers, directory.files)
        if fitting.size == 1:
            pair = int(fitting[0]), entries_of(entry.size, int(fitting[0]))
            size, origin = entry.size, f"as in {os.path.basename(entry.path)}"
            break
        if fitting.size and ambiguous is None:
            ambiguous = entry
    if ambiguous is not None and not size:
        raise StoreFormatError(
            f"{ambiguous.path}: {ambiguous.size} bytes, which several pairs of slots and entries explain: give the "
            f"broker's own with {advice}"
        )
    findings += [
        f"{entry.path}: {entry.size} bytes long: it was cut or damaged, or is of another broker; the index is built "
        f"with {pair[0]} slots and {pair[1]} entries a file, {origin}; {advice} give others"
        for entry in sorted(found, key=lambda entry: entry.path)
        if entry.size != size
    ]
    return pair


def _advice(*keys: str) -> str:
    """Names of options for a size, on the command line and in a call."""
    return f"{' '.join(f'--set {camel_case(key)}=N' for key in keys)} ({', '.join(keys)})"
