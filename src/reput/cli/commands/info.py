"""`reput info`: show a store and its state on one screen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from reput.cli.display.output import (
    iso_time,
    number_text,
    write_error,
    write_fields,
    write_json,
    write_table,
    write_text,
)
from reput.cli.index_numbers import IndexNumbers, index_numbers
from reput.cli.open_store import open_store
from reput.cli.options import CommitLogPath, Json, Store, reading_config
from reput.counts import counted
from reput.errors import CorruptMetadataError, CorruptStoreError

if TYPE_CHECKING:
    from reput.config.message_store import MessageStoreConfig
    from reput.log.directory import StoreDirectory

#: Limits of queues and groups, so that all fits on a screen.
_SHOWN_QUEUES, _SHOWN_GROUPS = 16, 8
#: Of a lock file: RocketMQ's lock, and the one that tells a process of reput's.
_LOCK_BYTES = ("0", "1")


def info(store: Store, *, commit_log_path: CommitLogPath = None, settings: IndexNumbers, as_json: Json = False) -> int:
    """Show state, sizes, offsets, times, queues and consumer groups of a store.

    Nothing is changed. Damage of queues or index, with which the store cannot be opened, is reported, and makes the
    exit status 1. With missing log files, or a log file of a wrong length, nothing can be shown, and the exit status is
    2. --json shows the whole snapshot, under RocketMQ's names in `runtime_info`; values that only the writing process
    counts are null.

    Examples:
      reput info /tmp/store
      reput info /tmp/store --json
    """
    from reput.log.directory import StoreDirectory
    from reput.log.foreign_parts import without_warnings
    from reput.log.metadata import read_epochs

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    answer = _directory_facts(directory)
    try:
        with without_warnings():
            answer |= _store_facts(store, reading_config(commit_log_path, numbers=index_numbers(settings)))
    except CorruptStoreError as damage:  # a damaged index file, with which the store does not open
        answer["findings"] = [str(damage)]
    try:
        answer["epochs"] = [epoch._asdict() for epoch in read_epochs(directory.path, directory.files)]
    except CorruptMetadataError as damage:
        answer["findings"].append(str(damage))
    if as_json:
        write_json(answer)
    else:
        _write(answer)
    for finding in answer["findings"]:
        write_error(finding)
    return 1 if answer["findings"] else 0


def _directory_facts(directory: StoreDirectory) -> dict[str, Any]:
    """Facts from names and sizes of files, the checkpoint and the dispatch marks."""
    from reput.formats.paths import CONFIG
    from reput.log.dispatch_marks import DISPATCHER_LOCK, read_marks

    log_files, index_files, checkpoint = directory.log_files(), directory.index_files(), directory.checkpoint()
    apparent, allocated = _disk_use(directory, directory.path)
    for folder in directory.commit_log_folders:
        if not folder.startswith(directory.path + "/"):
            uses = (apparent, allocated), _disk_use(directory, folder)
            apparent, allocated = (a + b for a, b in zip(*uses, strict=True))
    holder = lock_holder(directory)
    marks = read_marks(directory.path, directory.files)
    return {
        "path": directory.path,
        "locked_by_process": holder,
        "was_killed": directory.was_killed and holder is None,
        "dispatched_to": marks[0].point.offset if marks else None,
        "dispatched_by_process": lock_holder(directory, CONFIG, DISPATCHER_LOCK) if marks else None,
        "commit_log_files": len(log_files),
        "commit_log_file_size": log_files[0].size if log_files else None,
        "index_files": len(index_files),
        "checkpoint": checkpoint._asdict() if checkpoint is not None else None,
        "apparent_bytes": apparent,
        "allocated_bytes": allocated,
        "min_commit_log_offset": None,
        "max_commit_log_offset": None,
        "earliest_timestamp": None,
        "latest_timestamp": None,
        "epochs": [],
        "queues": [],
        "runtime_info": None,
        "retention": None,
        "foreign_parts": [str(part) for part in directory.foreign_parts()],
        "findings": [],
    }


def _store_facts(path: str, config: MessageStoreConfig) -> dict[str, Any]:
    """Facts from reading the log and the queues."""
    with open_store(path, read_only=True, config=config) as store:
        earliest, latest = store.earliest_time(), store.latest_time()
        runtime = store.runtime_info()
        expired = store.delete_expired(dry_run=True)
        return {
            "min_commit_log_offset": store.min_commit_log_offset,
            "max_commit_log_offset": store.max_commit_log_offset,
            "earliest_timestamp": earliest if earliest >= 0 else None,
            "latest_timestamp": latest if latest >= 0 else None,
            "queues": [
                {
                    "topic": queue.topic,
                    "queue_id": queue.queue_id,
                    "min_offset": queue.min_offset,
                    "max_offset": queue.max_offset,
                }
                for queue in store.queues()
            ],
            "runtime_info": runtime.to_dict(),
            "retention": {
                "disk_used_percent": expired.disk_used_percent,
                "expired_files": len(expired.commit_log_files),
                "expired_bytes": expired.bytes_freed,
                "delete_when": store.config.delete_when,
                "file_reserved_time_h": store.config.file_reserved_time,
            },
            "findings": list(runtime.findings),
        }


def _write(answer: dict[str, Any]) -> None:
    holder, checkpoint, queues = answer["locked_by_process"], answer["checkpoint"], answer["queues"]
    runtime = answer["runtime_info"]
    state = "closed cleanly"
    if holder is not None:
        state = open_text(holder)
    elif answer["was_killed"]:
        state = "its writer was killed; the next one recovers it"
    retention = answer["retention"]
    write_fields(
        {
            "store": answer["path"],
            "state": state,
            "commit log files": answer["commit_log_files"],
            **_log_fields(answer),
            "index files": _index_text(answer["index_files"], runtime),
            "queues": len(queues),
            "messages in queues": number_text(sum(queue["max_offset"] - queue["min_offset"] for queue in queues)),
            "bytes, holes counted": number_text(answer["apparent_bytes"]),
            "bytes on the disk": number_text(answer["allocated_bytes"]),
            **(_runtime_fields(runtime) if runtime else {}),
            **({} if answer["dispatched_to"] is None else {"external dispatch": _dispatch_text(answer)}),
            **({"epochs": _epochs_text(answer["epochs"])} if answer["epochs"] else {}),
            **({"retention": _retention_text(retention)} if retention else {}),
            **(
                {
                    f"flushed {name}": iso_time(checkpoint[f"{key}_msg_timestamp"] or None) or _NOT_FLUSHED[name]
                    for name, key in _CHECKPOINT.items()
                }
                if checkpoint
                else {"checkpoint": "none"}
            ),
        }
    )
    for part in answer["foreign_parts"]:
        write_text(part)
    if queues:
        columns = [name.replace("_", " ") for name in queues[0]]  # headings wrap at blanks
        write_table(columns, [list(queue.values()) for queue in queues[:_SHOWN_QUEUES]], one_line=("topic",))
    if len(queues) > _SHOWN_QUEUES:
        write_text(f"and {counted(len(queues) - _SHOWN_QUEUES, 'more queue')}: see --json")
    groups = runtime["groups"] if runtime else []
    if groups:
        groups = sorted(groups, key=lambda group: group["fallBehindMessages"], reverse=True)
        rows = [list(group.values()) for group in groups[:_SHOWN_GROUPS]]
        write_table(["group", "topic", "lag in messages", "lag in ms"], rows, one_line=("group", "topic"))
    if len(groups) > _SHOWN_GROUPS:
        write_text(f"and {counted(len(groups) - _SHOWN_GROUPS, 'more group')}: see --json")


def _log_fields(answer: dict[str, Any]) -> dict[str, Any]:
    begin, end = answer["min_commit_log_offset"], answer["max_commit_log_offset"]
    size = answer["commit_log_file_size"]
    if begin is not None and begin == end:
        stored = "nothing yet" if not end else "nothing any more"
    else:
        stored = _span(iso_time(answer["earliest_timestamp"]), iso_time(answer["latest_timestamp"]))
    return {
        **({} if size is None else {"commit log file bytes": number_text(size)}),
        "commit log offsets": _span(begin, end),
        "stored": stored,
    }


def _index_text(count: int, runtime: dict[str, Any] | None) -> str:
    files = runtime["indexFiles"] if runtime else []
    return f"{count}, with {number_text(sum(file['used'] for file in files))} entries" if files else str(count)


def _runtime_fields(runtime: dict[str, Any]) -> dict[str, Any]:
    return {
        "disk": f"{runtime['commitLogDiskRatio']:.0%} used, {number_text(runtime['diskFreeBytes'])} bytes free",
        "dispatch lag": f"{number_text(runtime['dispatchBehindBytes'])} bytes",
    }


def _dispatch_text(answer: dict[str, Any]) -> str:
    process, end = answer["dispatched_by_process"], answer["dispatched_to"]
    lag = max((answer["max_commit_log_offset"] or 0) - end, 0)
    who = "nobody now; start `reput dispatch`" if process is None else f"process {process}"
    return f"up to offset {end}, lag {number_text(lag)} bytes, by {who}"


def _epochs_text(epochs: list[dict[str, int]]) -> str:
    return f"{len(epochs)}, the last is {epochs[-1]['epoch']} from offset {epochs[-1]['start_offset']}"


def _span(first: object, last: object) -> str:
    return " to ".join("unknown" if end in (None, "") else str(end) for end in (first, last))


def _retention_text(retention: dict[str, Any]) -> str:
    files = counted(retention["expired_files"], "log file has", "log files have")
    return (
        f"{files} expired ({retention['file_reserved_time_h']} h, or a full disk), {retention['expired_bytes']} bytes; "
        f"deleted at hour {retention['delete_when']} if a store is opened with retention; the disk is "
        f"{retention['disk_used_percent']} % full"
    )


_CHECKPOINT = {"log": "physic", "queues": "logics", "index": "index"}
#: Texts if the checkpoint has no time. Its time of the index is the last full index file's.
_NOT_FLUSHED = {
    "log": "never",
    "queues": "no time yet: written once a minute, and at a close",
    "index": "no index file is full yet",
}


def _disk_use(directory: StoreDirectory, path: str) -> tuple[int, int]:
    """Bytes of all files below a folder: (with holes, without holes)."""
    apparent = allocated = 0
    for entry in directory.files.list_directory(path):
        if entry.is_directory:
            inner = _disk_use(directory, os.path.join(path, entry.name))
            apparent, allocated = apparent + inner[0], allocated + inner[1]
        else:
            apparent, allocated = apparent + entry.size, allocated + entry.allocated_bytes
    return apparent, allocated


def open_text(holder: int) -> str:
    """Text about a store that a process has open, of the number that `lock_holder` tells."""
    return f"open for writing by process {holder}" if holder > 0 else "open for writing"


def lock_holder(directory: StoreDirectory, *names: str) -> int | None:
    """Process that holds the store's lock, or the lock file `names` below the store; None without a holder.

    -1 for one that is not known: it has copied the store while it had it open, by which the telling lock goes.

    Read from Linux's list of locks, by inode and bytes of `RecordLock`, without opening the lock file. The list's
    device numbers are not used: on some file systems `stat` has other ones.
    """
    from reput.formats.paths import LOCK

    path = os.path.join(directory.path, *(names or (LOCK,)))
    if not directory.files.exists(path):
        return None
    _, inode = directory.files.identity(path)
    with directory.files.open("/proc/locks") as locks:
        lines = locks.read(0, 1 << 20).decode().splitlines()
    holder = None
    for line in lines:
        match line.split():
            case [_, "POSIX", _, "WRITE", process, file_id, begin, end] if (
                file_id.rpartition(":")[2] == str(inode) and begin == end in _LOCK_BYTES
            ):
                return int(process)
            case [_, "OFDLCK", _, "WRITE", _, file_id, "0", "0"] if file_id.rpartition(":")[2] == str(inode):
                holder = -1
    return holder
