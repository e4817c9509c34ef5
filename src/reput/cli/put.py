"""`reput put`: store messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from reput.cli.open_store import open_store
from reput.cli.options import BrokerConf, Json, Keys, Properties, Settings, Store, parse_pairs, store_config
from reput.cli.output import write_fields, write_json
from reput.errors import ConfigError, MessageIllegalError, ReputError, StorePoisonedError
from reput.formats.record_layout import MAX_QUEUE_ID


def put(
    store: Store,
    *,
    topic: Annotated[str, typer.Option("--topic", help="The topic of the messages.")],
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="One message with this body.")] = None,
    body_file: Annotated[
        str | None, typer.Option("--body-file", metavar="FILE", help="One message whose body is the file's bytes.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="One message for each line of standard input.")] = False,
    tags: Annotated[str | None, typer.Option("--tags", metavar="TAG", help="The tag of the messages.")] = None,
    keys: Keys,
    properties: Properties,
    queue_id: Annotated[
        int, typer.Option("--queue-id", min=0, max=MAX_QUEUE_ID, metavar="N", help="The queue of the messages.")
    ] = 0,
    settings: Settings,
    broker_conf: BrokerConf = None,
    as_json: Json = False,
) -> None:
    """Store one message, or one for each line of input.

    A missing store is made; an existing store keeps the sizes of its files. An illegal message is refused before
    anything is written. Shows the worst status of all messages, and offsets and message id of the first message. Where
    the disk becomes full, shows how many messages are stored: the first lines of the input.

    Examples:
      reput put /tmp/store --topic orders --body hello --tags paid --key o-1
      seq 3 | reput put /tmp/store --topic orders --stdin --property region=eu
      reput put /tmp/store --topic orders --body hello --set flushDiskType=ASYNC_FLUSH
    """
    from reput.files import DISK
    from reput.formats.message import Message, check_message
    from reput.store.results import PutMessageStatus
    from reput.store.sinks.empty_store import no_empty_store

    config = store_config(settings, broker_conf)
    user_properties = parse_pairs(properties, "--property")
    messages = [
        Message(topic, content, tags=tags, keys=keys, properties=user_properties)
        for content in _bodies(body, body_file, stdin)
    ]
    for line, message in enumerate(messages, start=1):
        try:
            check_message(message, max_message_size=config.max_message_size)
        except MessageIllegalError as error:
            raise MessageIllegalError(f"line {line}: {error}" if stdin else str(error)) from error
    with no_empty_store(store, config, DISK), open_store(store, config=config) as opened:
        try:
            results = opened.put_messages(messages, queue_id=queue_id)
        except ReputError as error:
            _tell_stored(error, len(messages), as_json=as_json)
            raise
    statuses = [result.status for result in results]
    first, last = results[0], results[-1]
    answer = {
        "status": next((status.name for status in statuses if status is not PutMessageStatus.PUT_OK), "PUT_OK"),
        "messages": len(results),
        "queue_offset": first.queue_offset,
        "last_queue_offset": last.queue_offset,
        "commit_log_offset": first.commit_log_offset,
        "message_id": first.message_id,
    }
    if as_json:
        write_json(answer)
    else:
        write_fields(answer)


def _tell_stored(error: ReputError, count: int, *, as_json: bool) -> None:
    """Print how many of the messages are stored, so that whoever sent them can go on after them."""
    answer: dict[str, object] = {"status": "FAILED", "messages": error.stored_messages, "of": count}
    if isinstance(error, StorePoisonedError):
        answer["messages"] = None  # nobody knows
    if as_json:
        write_json(answer)
    else:
        write_fields(answer)


def _bodies(body: str | None, body_file: str | None, stdin: bool) -> Sequence[bytes]:
    """Bodies from one of the three options; raises ConfigError for none or several options, and for empty input."""
    from reput.files import DISK

    if (body is not None) + (body_file is not None) + stdin != 1:
        raise ConfigError("give one of --body, --body-file and --stdin")
    if body is not None:
        return [body.encode("utf-8", "surrogateescape")]
    if body_file is not None:
        return [DISK.read_bytes(body_file)]
    lines = [line.rstrip(b"\r\n") for line in sys.stdin.buffer]
    if not lines:
        raise ConfigError("--stdin: standard input is empty; give a message a line")
    return lines
