"""Transactions: what was committed comes, what was rolled back never, and who says nothing is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar

from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.formats.record_layout import SysFlag
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import Client, texts, with_topic
from tests.support.invariants import Record
from tests.support.kinds.kind import Kind, NewClient, number_of

_TOPIC, _GROUP, _PRODUCER_GROUP, _QUEUES, _PRODUCERS = "payments", "billing", "payers", 2, 2
_COMMIT, _ROLLBACK, _UNKNOWN = int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_ROLLBACK), 0
#: By the number of a key: how its transaction ends, and what its producer says of it at once; None: nothing.
_ENDS = (
    (_COMMIT, _COMMIT), (_ROLLBACK, _ROLLBACK), (_COMMIT, None), (_ROLLBACK, None),
    (_COMMIT, _COMMIT), (_ROLLBACK, _UNKNOWN), (_COMMIT, _UNKNOWN), (_COMMIT, _COMMIT),
)  # fmt: skip
#: After the answer to an end nobody is asked again, but for questions that are on their way: one each round of the
#: broker that its client did not look.
_MOST_ON_THEIR_WAY = 10


class Transactions(Kind):
    """Producers of transactions, and a group that consumes what is committed."""

    KEYS: ClassVar[dict[str, object]] = {
        "transactionTimeOut": 300, "transactionCheckInterval": 200, "transactionCheckMax": 10_000,
        "transactionOpBatchInterval": 50,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._begun: set[str] = set()
        self._asked: set[str] = set()
        self._come: set[str] = set()
        #: Ends that were sent, answered or not; commits that were answered; in this life, questions after an answer.
        self._ends: Counter[str] = Counter()
        self._committed: set[str] = set()
        self._asked_again: dict[str, int] = {}

    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        self._asked_again = {}
        member = await new_client()
        await with_topic(member, _TOPIC, _QUEUES)
        works = [self.consume(member, _GROUP, _TOPIC, queue_id, self._take) for queue_id in range(_QUEUES)]
        for number in range(_PRODUCERS):
            client = await new_client()
            await client.heartbeat(f"{self.life}-{number}", producers=[_PRODUCER_GROUP])
            works += [self._produce(client, number), self._answer_checks(client)]
        return works

    async def _produce(self, client: Client, number: int) -> None:
        async for key in self.keys(number):
            properties = {"TRAN_MSG": "true", "PGROUP": _PRODUCER_GROUP, "UNIQ_KEY": f"id-{key}"}
            queue_id = number_of(key) % _QUEUES
            answer = await self.send(
                client, _TOPIC, key, queueId=queue_id, sysFlag=int(SysFlag.TRANSACTION_PREPARED), properties=properties
            )
            self._begun.add(key)
            fields = answer.ext_fields or {}
            _, offset = decode_message_id(fields["msgId"])
            said = _ENDS[number_of(key) % len(_ENDS)][1]
            if said is not None:
                half = {"tranStateTableOffset": fields["queueOffset"], "commitLogOffset": offset}
                await self._end(client, key, said, half, one_way=number_of(key) % 16 < 8)
            self.told()

    async def _end(self, client: Client, key: str, how: int, half: dict[str, Any], *, one_way: bool) -> None:
        """Say how a transaction ended: as Apache's producers one-way, or waiting for the answer."""
        fields = {
            "producerGroup": _PRODUCER_GROUP, "commitOrRollback": how, "msgId": f"id-{key}",
            "transactionId": f"id-{key}", **half,
        }  # fmt: skip
        self._ends[key] += how == _COMMIT
        one_way = one_way or how == _UNKNOWN  # which has no answer
        flag = ONE_WAY_FLAG if one_way else 0
        (begun,) = client.begin_all([RemotingCommand(RequestCode.END_TRANSACTION, flag=flag, ext_fields=texts(fields))])
        if not one_way:
            answer = await begun
            assert answer.code == ResponseCode.SUCCESS, answer
            self._asked_again.setdefault(key, 0)
            if how == _COMMIT:
                self._committed.add(key)

    async def _answer_checks(self, client: Client) -> None:
        while True:
            command = await client.next_request()
            if command.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            key, fields = self._key_of(MessageExt(command.body)), command.ext_fields or {}
            if key in self._asked_again:
                self._asked_again[key] += 1
                again = self._asked_again[key]
                assert again <= _MOST_ON_THEIR_WAY, f"{key}: asked {again} times after its end was answered"
            self._asked.add(key)
            self.counts["transactions checked"] += 1
            half = {name: fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
            end = _ENDS[number_of(key) % len(_ENDS)][0]
            await self._end(client, key, end, half | {"fromTransactionCheck": True}, one_way=False)
            self.told()

    @staticmethod
    def _key_of(message: MessageExt) -> str:
        (key,) = message.keys
        return key

    async def _take(self, message: MessageExt) -> None:
        (key,) = message.keys
        assert _ENDS[number_of(key) % len(_ENDS)][0] == _COMMIT, f"{key} was rolled back, and comes"
        assert self._ends[key], f"{key} comes, and nobody has committed it"
        self._come.add(key)

    def missing(self) -> set[str]:
        ends = {key: _ENDS[number_of(key) % len(_ENDS)] for key in self._begun}
        unasked = {key for key, (end, said) in ends.items() if said != end} - self._asked
        return unasked | {key for key, (end, _) in ends.items() if end == _COMMIT} - self._come

    def check(self, records: list[Record]) -> None:
        super().check(records)
        copies = Counter(record.row["keys"].decode() for record in records if record.queue[0] == _TOPIC)
        for key, count in copies.items():
            assert count <= self._ends[key], f"{key} is there {count} times, and was committed {self._ends[key]} times"
        lost = self._committed - copies.keys()
        assert not lost, f"{len(lost)} were committed and are lost, as {min(lost)}"
        self.counts["transactions committed"] = len(copies)
