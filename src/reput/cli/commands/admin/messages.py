"""`reput admin send`, `peek`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.admin_options import DEFAULT_NAMESRV, Config, Namesrv, ask
from reput.cli.display.messages import write_messages
from reput.cli.display.output import write_error, write_fields, write_json
from reput.cli.options import Json, check_times, parse_pairs, parse_time

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.client.instance.send_result import SendResult

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


def send(
    topic: _Topic,
    body: Annotated[str, typer.Argument(metavar="BODY", help="The message's body, in UTF-8.")],
    *,
    tags: Annotated[str | None, typer.Option("--tags", help="Its tag.")] = None,
    keys: Annotated[list[str] | None, typer.Option("--key", help="A key; may be given again.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="May be given again.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Send a message to a topic that is there, and show its offset.

    Example:
      reput admin send orders hello --tags paid --key o-1
    """
    from reput.admin.topics import check_topic
    from reput.client import Producer
    from reput.formats.message import Message

    message = Message(
        topic, body.encode(), tags=tags, keys=tuple(keys or ()), properties=parse_pairs(properties or [], "--property")
    )

    async def work(client: AdminClient) -> SendResult:
        await check_topic(client, topic)
        async with Producer(namesrv, group="reput-admin", credentials=client.credentials, tls=client.tls) as producer:
            return await producer.send(message)

    result, status = ask(namesrv, config, work)
    fields = {
        "status": result.status.name, "message_id": result.message_id, "offset_message_id": result.offset_message_id,
        "broker": result.queue.broker_name, "queue_id": result.queue.queue_id, "queue_offset": result.queue_offset,
    }  # fmt: skip
    if as_json:
        write_json(fields)
    else:
        write_fields(fields)
    return status


def peek(
    topic: _Topic,
    *,
    queue_id: Annotated[int | None, typer.Option("--queue-id", min=0, metavar="N", help="Only this queue.")] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, metavar="N", help="From this queue offset on; with --queue-id.")
    ] = None,
    begin: Annotated[
        int | None, typer.Option("--time", metavar="TIME", parser=parse_time, help="Stored at this time or later.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=1, max=1000, metavar="N", help="Maximum number of messages.")
    ] = 10,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Show messages of a topic without consuming them: the newest ones, or those from an offset or a time on.

    Example:
      reput admin peek orders --time 2026-11-23T16:52:00Z --count 20
    """
    from reput.admin import messages as admin

    check_times(begin, None)
    found, status = ask(
        namesrv,
        config,
        lambda client: admin.peek(client, topic, queue_id=queue_id, offset=offset, time_ms=begin, count=count),
    )
    if not found and not status:
        write_error(f"topic {topic!r} has no such message; `reput admin topic {topic}` shows its offsets")
    write_messages(found, as_json=as_json, of_one_queue=False)
    return status
