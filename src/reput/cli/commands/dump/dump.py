"""`reput dump`: show the files of a store as they are, one line a record, unit or entry."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reput.cli.display.nothing_found import unknown_queue
from reput.cli.display.output import write_error, write_json, write_line
from reput.cli.index_numbers import IndexNumbers, index_numbers
from reput.cli.options import CommitLogPath, Json, Store
from reput.cli.start import begin_work
from reput.formats.java import INT64_MAX

if TYPE_CHECKING:
    from reput.log.directory import StoreDirectory

_NO_END = INT64_MAX
#: Fields of a record in a line of text.
_RECORD_NAMES = (
    *("status", "commit_log_offset", "store_size", "topic", "queue_id", "queue_offset", "tags", "keys"),
    *("store_timestamp", "born_timestamp", "body", "body_base64", "damage", "path", "hex"),
)


def dump(
    store: Store,
    *,
    what: Annotated[
        Literal["log", "queue", "index", "checkpoint"], typer.Option("--what", help="The kind of file to show.")
    ] = "log",
    begin_offset: Annotated[
        int | None, typer.Option("--begin-offset", metavar="N", help="log: commit log offset; queue: queue offset.")
    ] = None,
    end_offset: Annotated[
        int | None, typer.Option("--end-offset", metavar="N", help="Only records or units before this offset.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="log, queue: only this topic.")] = None,
    queue_id: Annotated[
        int | None, typer.Option("--queue-id", metavar="N", help="log, queue: only this queue.")
    ] = None,
    key_hash: Annotated[
        int | None, typer.Option("--key-hash", min=0, metavar="N", help="index: only the chain of this hash's slot.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Maximum number of lines.")] = None,
    as_hex: Annotated[bool, typer.Option("--hex", help="Also the bytes, in hexadecimal.")] = False,
    settings: IndexNumbers,
    commit_log_path: CommitLogPath = None,
    as_json: Json = False,
) -> int:
    """Show the files of a store as they are.

    These are log records, consume queue units, index entries, or the checkpoint. Nothing is changed. Bodies are shown
    as stored: as text if they are UTF-8, else as base64; --json shows all fields of a record. Damage is a line of its
    own among the others, and makes the exit status 1. Index files may not have their count of slots: then give --set
    maxHashSlotNum=N.

    Examples:
      reput dump /tmp/store --topic orders --limit 10
      reput dump /tmp/store --what queue --topic orders --queue-id 0 --json
      reput dump /tmp/store --what index --key-hash 1024
      reput dump /tmp/store --what checkpoint
    """
    from reput.cli.commands.dump.checkpoint import checkpoint_lines
    from reput.cli.commands.dump.index import index_lines
    from reput.cli.commands.dump.queue import queue_lines
    from reput.config.message_store import MessageStoreConfig
    from reput.log.directory import StoreDirectory

    numbers = index_numbers(settings)
    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    begin, end = begin_offset or 0, _NO_END if end_offset is None else end_offset
    if what == "log":
        from reput.cli.commands.dump.log import log_lines

        begin_work()
        lines = log_lines(directory, begin, end, topic, queue_id, as_hex=as_hex)
    elif what == "queue":
        lines = queue_lines(directory, begin, end, topic, queue_id, as_hex=as_hex)
    elif what == "index":
        lines = index_lines(directory, key_hash, MessageStoreConfig(**numbers), as_hex=as_hex)
    else:
        lines = checkpoint_lines(directory, as_hex=as_hex)
    is_empty, is_damaged = True, False
    for line in islice(lines, limit):
        is_empty = False
        is_damaged = is_damaged or "damage" in line
        if as_json:
            write_json(line)
        else:
            write_line({name: line[name] for name in _RECORD_NAMES if name in line} if what == "log" else line)
    if is_empty:
        write_error(_nothing(what, directory, topic, queue_id))
    return int(is_damaged)


def _nothing(what: str, directory: StoreDirectory, topic: str | None, queue_id: int | None) -> str:
    """Text for the user if there is no line."""
    if what == "index":
        return f"{directory.path}: no index files" if not directory.index_files() else "this hash leads to no entry"
    queues = [*directory.queues(), *directory.batch_queues()]
    hint = unknown_queue(topic, queue_id, queues) if topic is not None and queues else None
    if hint is not None:
        return hint
    if what == "queue":
        return "no unit is in use there" if queues else f"{directory.path}: no consume queues; --what log shows the log"
    files = directory.log_files()
    if not files:
        return f"{directory.path}: no commit log files"
    last = files[-1].end_offset - 1
    return f"no such record; the files of the log have the offsets {files[0].start_offset} to {last}, used or not"
