"""`reput get`: read a queue as a consumer does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.display.messages import write_messages
from reput.cli.display.nothing_found import no_message
from reput.cli.display.output import damage_status, write_error, write_fields, write_status
from reput.cli.index_numbers import IndexNumbers, index_numbers
from reput.cli.open_store import open_store
from reput.cli.options import CommitLogPath, Json, Store, check_output_file, reading_config
from reput.errors import CorruptRecordError

if TYPE_CHECKING:
    from reput.formats.message_ext import MessageExt
    from reput.store.reads.get_result import GetMessageResult


def get(
    store: Store,
    *,
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    queue_id: Annotated[int, typer.Option("--queue-id", min=0, metavar="N", help="The queue.")] = 0,
    offset: Annotated[int, typer.Option("--offset", metavar="N", help="The queue offset to begin at.")] = 0,
    max_num: Annotated[int, typer.Option("--max-num", min=1, metavar="N", help="Maximum number of messages.")] = 32,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")
    ] = None,
    raw: Annotated[
        str | None,
        typer.Option(
            "--raw",
            metavar="FILE",
            callback=check_output_file,
            help="Write the records' bytes to a file; an existing file is replaced.",
        ),
    ] = None,
    commit_log_path: CommitLogPath = None,
    settings: IndexNumbers,
    as_json: Json = False,
) -> int:
    """Read messages of a queue, as a consumer does.

    Shows RocketMQ's status, the offset of the next pull, and the messages. Nothing is changed. With --json the messages
    go to standard output, one a line, and the status to standard error. A damaged record ends the messages, and makes
    the exit status 1.

    Example:
      reput get /tmp/store --topic orders --queue-id 0 --offset 0 --max-num 10 --tags 'paid || shipped'
    """
    from reput.files import DISK
    from reput.log.directory import StoreDirectory
    from reput.store.results import GetMessageStatus

    if raw is not None:
        StoreDirectory(store, commit_log_path=commit_log_path).check_output(raw)
    config = reading_config(commit_log_path, max_num, index_numbers(settings))
    with open_store(store, read_only=True, config=config) as opened:
        pulls = [opened.get_message(topic, queue_id, offset, max_num, tags)]
        # A pull ends at the end of a log file; continue as a consumer does.
        while pulls[-1].status is GetMessageStatus.FOUND and (left := max_num - sum(map(len, pulls))):
            pulls.append(opened.get_message(topic, queue_id, pulls[-1].next_begin_offset, left, tags))
        if raw is not None:
            DISK.write_atomically(raw, b"".join(record for pull in pulls for record in pull.raw()))
        status = {
            "status": pulls[0].status.name,
            "next_begin_offset": pulls[-1].next_begin_offset,
            "min_offset": pulls[-1].min_offset,
            "max_offset": pulls[-1].max_offset,
        }
        hint, damage = None, None
        if pulls[0].status is not GetMessageStatus.FOUND:
            hint = no_message(opened, pulls[0].status, topic, queue_id, offset, tags)
        if as_json:
            write_status(status | ({"hint": hint} if hint else {}))
        else:
            write_fields(status)
            if hint:
                write_error(hint)
        if hint is None:
            messages, damage = _whole_messages(pulls)
            write_messages(messages, as_json=as_json, of_one_queue=True)
        return max(damage_status(damage), damage_status(opened.recovery.damage))


def _whole_messages(pulls: Sequence[GetMessageResult]) -> tuple[list[MessageExt], CorruptRecordError | None]:
    """Messages up to the first damaged one, and its damage."""
    from reput.formats.message_ext import MessageExt

    messages: list[MessageExt] = []
    for pull in pulls:
        try:
            messages += pull.messages()
        except CorruptRecordError as damage:
            whole = pull.positions[: pull.pairs[:, 0].tolist().index(damage.offset)]
            return [*messages, *(MessageExt(pull.buffer, position) for position in whole.tolist())], damage
    return messages, None
