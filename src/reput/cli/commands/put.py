"""`reput put`: store messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.display.message_rows import RowFormat, read_messages, standard_input, with_defaults
from reput.cli.display.output import write_fields, write_json
from reput.cli.open_store import open_store
from reput.cli.options import BrokerConf, Json, Keys, Properties, Settings, Store, check_path, parse_pairs, store_config
from reput.errors import ConfigError, MessageIllegalError, ReputError, StorePoisonedError
from reput.formats.record_layout import MAX_QUEUE_ID

if TYPE_CHECKING:
    from reput.formats.message import Message


def put(
    store: Store,
    *,
    topic: Annotated[str, typer.Option("--topic", help="The topic of the messages.")],
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="One message with this body.")] = None,
    body_file: Annotated[
        str | None,
        typer.Option(
            "--body-file", metavar="FILE", callback=check_path, help="One message whose body is the file's bytes."
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="One message for each line or row of standard input.")] = False,
    format: Annotated[
        RowFormat | None,
        typer.Option(
            "--format", help="With --stdin: a line is a body, or a JSON object; or CSV with names of columns."
        ),
    ] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="TAG", help="The tag of the messages, if a row has none.")
    ] = None,
    keys: Keys,
    properties: Properties,
    queue_id: Annotated[
        int, typer.Option("--queue-id", min=0, max=MAX_QUEUE_ID, metavar="N", help="The queue of the messages.")
    ] = 0,
    settings: Settings,
    broker_conf: BrokerConf = None,
    as_json: Json = False,
) -> None:
    """Store one message, or one for each line or row of input.

    JSON objects and rows of CSV are as of `reput produce`: `body` or `body_base64`, and perhaps `tags`, `keys` and
    `properties`. --tags, --key and --property count if a row says nothing else. The topic is --topic's.

    A missing store is made; an existing store keeps the sizes of its files. An illegal message is refused before
    anything is written. Shows the worst status of all messages, and offsets and message id of the first message. If
    the disk becomes full, shows how many messages are stored: the first lines of the input.

    Examples:
      reput put /tmp/store --topic orders --body hello --tags paid --key o-1
      seq 3 | reput put /tmp/store --topic orders --stdin --property region=eu
      echo '{"body": "hello", "keys": ["o-1"]}' | reput put /tmp/store --topic orders --stdin --format json
      reput put /tmp/store --topic orders --body hello --set flushDiskType=ASYNC_FLUSH
    """
    from reput.files import DISK
    from reput.formats.message import check_message
    from reput.remoting.topic_validator import validate_topic
    from reput.store.results import PutMessageStatus
    from reput.store.sinks.empty_store import no_empty_store

    config = store_config(settings, broker_conf)
    added = parse_pairs(properties, "--property")
    numbered = [
        (number, with_defaults(message, tags, keys, added))
        for number, message in _messages(topic, body, body_file, stdin, format)
    ]
    for line, message in numbered:
        try:
            check_message(message, max_message_size=config.max_message_size)
        except MessageIllegalError as error:
            raise MessageIllegalError(f"line {line}: {error}" if stdin else str(error)) from error
    if (remark := validate_topic(topic)) is not None:
        raise ConfigError(f"--topic {topic!r}: no broker serves such a topic: {remark}")
    messages = [message for _, message in numbered]
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


def _messages(
    topic: str, body: str | None, body_file: str | None, stdin: bool, format: RowFormat | None
) -> Sequence[tuple[int, Message]]:
    """Messages of one of the three options, each with the number of its line.

    Raises ConfigError for none or several options, for empty input, and for a line that is no message.
    """
    from reput.files import DISK
    from reput.formats.message import Message

    if (body is not None) + (body_file is not None) + stdin != 1:
        raise ConfigError("give one of --body, --body-file and --stdin")
    if body is not None:
        return [(1, Message(topic, body.encode("utf-8", "surrogateescape")))]
    if body_file is not None:
        return [(1, Message(topic, DISK.read_bytes(body_file)))]
    messages = list(read_messages(standard_input(), format or "lines", topic))
    if not messages:
        raise ConfigError("--stdin: standard input is empty; give a message a line")
    return messages
