"""`reput query`: find messages by key, by message id, or by commit log offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.geometry import IndexNumbers, index_numbers
from reput.cli.messages import write_messages
from reput.cli.nothing_found import no_key, no_record
from reput.cli.options import CommitLogPath, Json, Keys, Store, parse_time, reading_config
from reput.cli.output import complain, damage_status
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.formats.message import MessageExt


def query(
    store: Store,
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="The topic that the keys belong to.")] = None,
    keys: Keys,
    begin: Annotated[
        int | None, typer.Option("--begin", metavar="TIME", parser=parse_time, help="Stored at this time or later.")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--end", metavar="TIME", parser=parse_time, help="Stored at this time or earlier.")
    ] = None,
    max_num: Annotated[
        int, typer.Option("--max-num", min=1, metavar="N", help="Messages of a key at the most, the newest.")
    ] = 32,
    message_id: Annotated[str | None, typer.Option("--message-id", metavar="ID", help="An offset message id.")] = None,
    commit_log_offset: Annotated[
        int | None, typer.Option("--commit-log-offset", metavar="N", help="Where the record starts in the log.")
    ] = None,
    commit_log_path: CommitLogPath = None,
    settings: IndexNumbers,
    as_json: Json = False,
) -> int:
    """Find messages by key, message id or log offset.

    Nothing is changed. A time is ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970 UTC. With --json
    one line a message.

    Examples:
      reput query /tmp/store --topic orders --key o-1 --key o-2 --begin 2026-01-01
      reput query /tmp/store --commit-log-offset 0
    """
    from reput.formats.message import decode_message_id
    from reput.store.message_store import MessageStore

    ways = (topic is not None or bool(keys)) + (message_id is not None) + (commit_log_offset is not None)
    if ways != 1 or (topic is None) == bool(keys):
        raise ConfigError("give --topic with one --key or more, or --message-id, or --commit-log-offset")
    with MessageStore.open(
        store, read_only=True, config=reading_config(commit_log_path, max_num, index_numbers(settings))
    ) as opened:
        messages: list[MessageExt] = []
        if topic is not None:
            of_keys = opened.query_messages(topic, keys, max_num=max_num, begin=begin or 0, end=end)
            found = {message.commit_log_offset: message for messages in of_keys.values() for message in messages}
            messages = [found[offset] for offset in sorted(found)]
            if missing := [key for key in keys if not of_keys[key]]:
                complain(no_key(opened, topic, missing))
        elif message_id is not None:
            message = opened.view_message(message_id)
            messages = [message] if message is not None else []
            if not messages:
                complain(no_record(opened, f"message id {message_id}", decode_message_id(message_id)[1]))
        elif commit_log_offset is not None:
            message = opened.look_message_by_offset(commit_log_offset)
            messages = [message] if message is not None else []
            if not messages:
                complain(no_record(opened, f"offset {commit_log_offset}", commit_log_offset))
        if messages:
            write_messages(messages, as_json=as_json)
        return damage_status(opened.recovery.damage)
