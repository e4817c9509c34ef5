"""Requests of POP, and what their answers say."""

from __future__ import annotations

import time
from typing import Any

from reput.formats.message_ext import MessageExt
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.service.pop.topics import pop_retry_topic_of
from tests.support.broker import Client, messages_of, texts


def pop_command(
    topic: str, group: str = "g", *, poll_ms: int = 0, invisible_ms: int = 60_000, **fields: object
) -> RemotingCommand:
    """A pop of all queues from the first message on."""
    given: dict[str, object] = {
        "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": invisible_ms,
        "pollTime": poll_ms, "bornTime": int(time.time() * 1000), "initMode": 0,
    } | fields  # fmt: skip
    return RemotingCommand(RequestCode.POP_MESSAGE, ext_fields=texts(given))


async def pop(client: Client, topic: str, group: str = "g", **more: Any) -> RemotingCommand:
    """The answer to `pop_command`."""
    return await client.begin_all([pop_command(topic, group, **more)])[0]


def handles(answer: RemotingCommand, group: str = "g") -> list[tuple[MessageExt, str, str]]:
    """Each message of an answer, its real topic and its handle, as a client makes them."""
    fields = answer.ext_fields or {}
    starts = {tuple(part.split(" ")[:2]): part.split(" ")[2] for part in fields["startOffsetInfo"].split(";")}
    found, messages = [], iter(messages_of(answer))
    for part in fields["msgOffsetInfo"].split(";"):
        kind, queue_id, offsets = part.split(" ")
        for offset in offsets.split(","):
            message = next(messages)
            words = [
                starts[kind, queue_id], fields["popTime"], fields["invisibleTime"], fields["reviveQid"], kind,
                "broker-a", queue_id, offset,
            ]  # fmt: skip
            topic = message.topic
            if kind != "0" and not topic.startswith("%RETRY%"):
                topic = pop_retry_topic_of(topic, group, v2=kind == "2")
            found.append((message, topic, " ".join(words)))
    assert next(messages, None) is None, "each message has an offset"
    return found


def handle_fields(topic: str, handle: str, group: str = "g") -> dict[str, object]:
    """The fields with which a handle goes back to the broker."""
    words = handle.split(" ")
    return {"consumerGroup": group, "topic": topic, "queueId": words[6], "extraInfo": handle, "offset": words[7]}


async def ack(client: Client, topic: str, handle: str, group: str = "g") -> RemotingCommand:
    """The answer to the ack of one message."""
    return await client.ask(RequestCode.ACK_MESSAGE, **handle_fields(topic, handle, group))


async def change_invisible_time(
    client: Client, topic: str, handle: str, invisible_ms: int, group: str = "g"
) -> RemotingCommand:
    """The answer to a change."""
    fields = handle_fields(topic, handle, group)
    return await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **fields, invisibleTime=invisible_ms)


def renewed(handle: str, answer: RemotingCommand) -> str:
    """The handle after a change that was answered so."""
    words, fields = handle.split(" "), answer.ext_fields or {}
    words[0], words[1], words[2], words[3] = words[7], fields["popTime"], fields["invisibleTime"], fields["reviveQid"]
    return " ".join(words)
