"""Services of a broker between clients: locks of queues, resets of offsets, requests and replies, broadcasts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.remoting.codes import RequestCode, ResponseCode
from tests.support.broker import Client, consumer, messages_of, send_command, with_topic
from tests.support.invariants import Record
from tests.support.kinds.kind import Kind, NewClient, now_ms, number_of

_TOPIC, _QUEUES, _PRODUCERS = "orders", 3, 2
_ORDERLY, _BROADCAST, _REPLYING = "orderly", "broadcast", "replying"
_REPLIES = "DefaultCluster_REPLY_TOPIC"
_NONE_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
#: A member that holds a queue frees it after so many pulls.
_PULLS = 5


class ClientCalls(Kind):
    """Two members of a group that consumes in order, one of which is reset; a broadcast; requests with replies."""

    def __init__(self) -> None:
        super().__init__()
        self._acknowledged: dict[tuple[int, int], str] = {}
        self._in_order: dict[int, int] = {}
        self._holders: dict[int, str] = {}
        self._broadcast: dict[int, int] = {}
        self._replies: dict[str, asyncio.Future[bytes]] = {}
        self._stored: dict[int, str] = {}

    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        self._holders, self._replies = {}, {}
        asker, replier = await new_client(), await new_client()
        for topic in (_TOPIC, "questions"):
            await with_topic(asker, topic, _QUEUES)
        await asker.heartbeat(f"{self.life}-asker", producers=["askers"])
        works = [self._ask(asker, f"{self.life}-asker"), self._hear_replies(asker)]
        works += [self.consume(replier, _REPLYING, "questions", 0, self._replier(replier))]
        for number in range(2):
            member = await new_client()
            await member.heartbeat(f"{self.life}-{number}", consumer(_ORDERLY, _TOPIC))
            works += [self._consume_in_order(member, f"{self.life}-{number}", queue_id) for queue_id in range(_QUEUES)]
        client = await new_client()
        works += [self._consume_as_broadcast(client, queue_id) for queue_id in range(_QUEUES)]
        return works + [self._produce(await new_client(), number) for number in range(_PRODUCERS)]

    async def _produce(self, client: Client, number: int) -> None:
        async for key in self.keys(number):
            queue_id = number_of(key) % _QUEUES
            answer = await self.send(client, _TOPIC, key, queueId=queue_id)
            self._acknowledged[queue_id, int((answer.ext_fields or {})["queueOffset"])] = key
            self.told()
            if number == 0 and number_of(key) % 40 == 0:
                await self._reset(client, queue_id)

    # -- locks and resets

    async def _consume_in_order(self, client: Client, name: str, queue_id: int) -> None:
        """Consume while the queue is ours, from where the group is; then let the other member have it."""
        fields: dict[str, object] = {"consumerGroup": _ORDERLY, "topic": _TOPIC, "queueId": queue_id}
        while True:
            if not await self._locked(client, name, queue_id):
                await asyncio.sleep(0.02)
                continue
            answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
            offset = int((answer.ext_fields or {}).get("offset", 0))
            for _ in range(_PULLS):
                offset = await self._pull_in_order(client, queue_id, offset)
                await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=offset, **fields)
            del self._holders[queue_id]
            await client.ask(RequestCode.UNLOCK_BATCH_MQ, _queues_body(name, queue_id))

    async def _locked(self, client: Client, name: str, queue_id: int) -> bool:
        answer = await client.ask(RequestCode.LOCK_BATCH_MQ, _queues_body(name, queue_id))
        if not json.loads(answer.body)["lockOKMQSet"]:
            return False
        holder = self._holders.setdefault(queue_id, name)
        assert holder == name, f"queue {queue_id} was given to {name}, and {holder} has it"
        return True

    async def _pull_in_order(self, client: Client, queue_id: int, offset: int) -> int:
        """The offset behind what one pull gives: none is left out of what the group has not consumed."""
        reached = self._in_order.get(queue_id, 0)
        assert offset <= reached, f"queue {queue_id}: goes on at {offset}, the group has consumed {reached}"
        answer = await client.pull(_TOPIC, offset, queueId=queue_id, group=_ORDERLY, hold_ms=100)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:  # an operator has reset it
            self.counts["resets that a pull was told"] += 1
            return int((answer.ext_fields or {})["nextBeginOffset"])
        for message in [] if answer.code in _NONE_YET else messages_of(answer):
            assert message.queue_offset == offset, f"queue {queue_id}: {message.queue_offset}, not {offset}"
            self.saw(message)
            offset += 1
        self._in_order[queue_id] = max(offset, reached)
        self.consumed[_ORDERLY, _TOPIC, queue_id] = self._in_order[queue_id]
        self.told()
        return offset

    async def _reset(self, client: Client, queue_id: int) -> None:
        """Let the group go back by a few messages."""
        offset = max(0, self._in_order.get(queue_id, 0) - 5)
        answer = await client.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic=_TOPIC, group=_ORDERLY, queueId=queue_id, offset=offset,
            timestamp=-1, isForce=True,
        )  # fmt: skip
        assert answer.code == ResponseCode.SUCCESS, answer

    # -- a broadcast: the broker keeps no offsets of it

    async def _consume_as_broadcast(self, client: Client, queue_id: int) -> None:
        while True:
            offset = self._broadcast.get(queue_id, 0)
            answer = await client.pull(_TOPIC, offset, queueId=queue_id, group=_BROADCAST, hold_ms=2000)
            for message in [] if answer.code in _NONE_YET else messages_of(answer):
                assert message.queue_offset == offset, f"queue {queue_id}: {message.queue_offset}, not {offset}"
                self.saw(message)
                offset += 1
            self._broadcast[queue_id] = offset
            self.told()

    # -- requests and replies

    async def _ask(self, client: Client, name: str) -> None:
        """Ask, and wait for what the one who consumes says; its answer came here first."""
        number = 0
        while True:
            number += 1
            key = f"{self.life}-question-{number}"
            self._replies[key] = asyncio.get_running_loop().create_future()
            properties = {"REPLY_TO_CLIENT": name, "CORRELATION_ID": key, "TTL": "3000", "MSG_TYPE": "request"}
            await self.send(client, "questions", key, queueId=0, properties=properties)
            assert await client.until_gone(self._replies[key]) == _reply_to(key)
            self.counts["replies"] += 1

    async def _hear_replies(self, client: Client) -> None:
        while True:
            command = await client.next_request()
            if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
                key = command.body.decode().removeprefix("re: ")
                if key in self._replies and not self._replies[key].done():
                    self._replies[key].set_result(command.body)
                client.send(command.response(ResponseCode.SUCCESS))

    def _replier(self, client: Client) -> Any:
        async def reply(message: MessageExt) -> None:
            (key,) = message.keys
            names = "REPLY_TO_CLIENT", "CORRELATION_ID", "TTL"
            properties = {name: message.properties[name] for name in names} | {"MSG_TYPE": "reply", "KEYS": f"re-{key}"}
            command = send_command(
                _REPLIES,
                _reply_to(key),
                code=RequestCode.SEND_MESSAGE_V2,
                properties=properties,
                bornTimestamp=now_ms(),
            )
            command.code = RequestCode.SEND_REPLY_MESSAGE_V2
            (begun,) = client.begin_all([command])
            answer = await begun
            if not key.startswith(f"{self.life}-"):
                return  # who asked is gone
            assert answer.code == ResponseCode.SUCCESS, answer
            _, offset = decode_message_id((answer.ext_fields or {})["msgId"])
            self._stored[offset] = f"re-{key}"

        return reply

    # -- what must hold

    def missing(self) -> set[str]:
        return {
            key
            for (queue_id, offset), key in self._acknowledged.items()
            if offset >= min(self._in_order.get(queue_id, 0), self._broadcast.get(queue_id, 0))
        }

    def check(self, records: list[Record]) -> None:
        super().check(records)
        keys = {record.offset: record.row["keys"].decode() for record in records}
        assert self._stored.items() <= keys.items(), "a reply is lost"


def _reply_to(key: str) -> bytes:
    return f"re: {key}".encode()


def _queues_body(name: str, queue_id: int) -> bytes:
    queues = [{"topic": _TOPIC, "brokerName": "broker-a", "queueId": queue_id}]
    return json.dumps({"consumerGroup": _ORDERLY, "clientId": name, "mqSet": queues}).encode()
