"""A process that opens a store, puts in every way, gets and queries what it has put, and deletes what has expired.

    python -m lab.campaign.soak.writer FILE NAME STORE RATE LIFE

It tells FILE what was acknowledged, and goes on until somebody kills it.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import pyarrow as pa

import reput
from lab.campaign.soak.load import QUEUES, SEVERAL, SINGLE, STORES, TABLES, Pace, body_of
from lab.campaign.soak.telling import Acknowledgement, Teller, check_message
from reput.store.results import PutMessageResult

P = ParamSpec("P")
T = TypeVar("T")
_OK = reput.PutMessageStatus.PUT_OK


class Writer:
    """One life of a store's only writer.

    Attributes:
        recent: What was acknowledged of late; queries look for it.
    """

    def __init__(self, store: reput.MessageStore, teller: Teller, name: str, rate: float) -> None:
        self._store = store
        self._teller = teller
        self._name = name
        self._rate = rate
        self.recent: deque[Acknowledgement] = deque(maxlen=2000)

    def _acknowledge(self, *acknowledged: Acknowledgement) -> None:
        self._teller.tell(*(one.line() for one in acknowledged))
        self.recent.extend(acknowledged)

    def put_single(self, thread: int) -> None:
        """`put_message`: a fifth of the rate a thread."""
        pace, number = Pace(self._rate * 0.2), 0
        while True:
            key = f"{self._name}-s{thread}-{number}"
            queue_id = number % QUEUES
            result = self._unless_refused(self._store.put_message, _message(SINGLE, key), queue_id)
            if result is not None:
                self._tell_puts(SINGLE, queue_id, [key], [result])
            number += 1
            pace.wait(1)

    def put_several(self) -> None:
        """`put_messages`: up to 20 in one call."""
        chance, pace, number = random.Random(self._name), Pace(self._rate * 0.3), 0
        while True:
            count, queue_id = chance.randrange(1, 21), chance.randrange(QUEUES)
            keys = [f"{self._name}-m-{number + place}" for place in range(count)]
            messages = [_message(SEVERAL, key) for key in keys]
            results = self._unless_refused(self._store.put_messages, messages, queue_id)
            if results is not None:
                self._tell_puts(SEVERAL, queue_id, keys, results)
            number += count
            pace.wait(count)

    def _tell_puts(self, topic: str, queue_id: int, keys: list[str], results: list[PutMessageResult]) -> None:
        self._acknowledge(
            *(
                Acknowledgement(result.commit_log_offset, topic, queue_id, result.queue_offset, key)
                for key, result in zip(keys, results, strict=True)
                if result.status is _OK
            )
        )

    def put_tables(self) -> None:
        """`put_arrow`: up to 200 rows; no other thread writes to the topic, so its queue offsets are known ahead."""
        self._store.wait_dispatched(600)
        ends = [self._store.max_offset(TABLES, queue_id) for queue_id in range(QUEUES)]
        chance, pace, number = random.Random(self._name), Pace(self._rate * 0.3), 0
        while True:
            rows = chance.randrange(1, 201)
            keys = [f"{self._name}-t-{number + row}" for row in range(rows)]
            queue_ids = [chance.randrange(QUEUES) for _ in keys]
            columns = {
                "topic": [TABLES] * rows,
                "queue_id": pa.array(queue_ids, pa.int32()),
                "keys": [[key] for key in keys],
                "body": [body_of(key) for key in keys],
            }
            result = self._unless_refused(self._store.put_arrow, pa.table(columns))
            if result is not None:
                acknowledged = []
                for key, queue_id in zip(keys, queue_ids, strict=True):
                    acknowledged.append(
                        Acknowledgement(result.commit_log_offset, TABLES, queue_id, ends[queue_id], key)
                    )
                    ends[queue_id] += 1
                if result.status is _OK:
                    self._acknowledge(*acknowledged)
            number += rows
            pace.wait(rows)

    def _unless_refused(self, put: Callable[P, T], *arguments: P.args, **_: P.kwargs) -> T | None:
        """Answer of a put; None if the disk does not keep up, which a busy machine may say."""
        try:
            return put(*arguments, **_)
        except reput.StoreBusyError:
            self._teller.count("refused")
            return None

    def get(self) -> None:
        """Follow every queue from its end on, as a consumer: no offset is left out, each body is right."""
        store, pace = self._store, Pace(20 * QUEUES)
        queues = [(topic, queue_id) for topic in (SINGLE, SEVERAL, TABLES) for queue_id in range(QUEUES)]
        offsets = {queue: store.max_offset(*queue) for queue in queues}
        while True:
            for queue in queues:
                result = store.get_message(*queue, offsets[queue])
                if result.status is reput.GetMessageStatus.FOUND:
                    for message in result.messages():
                        assert message.queue_offset == offsets[queue], f"{queue}: {offsets[queue]} is left out"
                        check_message(message)
                        offsets[queue] += 1
                    self._teller.count("got", len(result))
                elif store.min_offset(*queue) > offsets[queue]:
                    offsets[queue] = store.min_offset(*queue)
                    self._teller.count("consumer overtaken by retention")
                pace.wait(1)

    def query(self) -> None:
        """Find acknowledged messages by their keys, unless retention took them."""
        chance, pace = random.Random(self._name), Pace(20)
        while True:
            if self.recent:
                wanted = chance.choice(list(self.recent))
                self._store.wait_dispatched(600)
                found = self._store.query_message(wanted.topic, wanted.key)
                if not found and wanted.offset < self._store.min_commit_log_offset:
                    continue
                assert [message.queue_offset for message in found] == [wanted.queue_offset], f"{wanted} is not found"
                assert check_message(found[0]) == wanted.key
                self._teller.count("queried")
            pace.wait(1)

    def delete(self) -> None:
        """By hand, once a second."""
        while True:
            self._teller.count("log files deleted", len(self._store.delete_expired().commit_log_files))
            time.sleep(1)


def _message(topic: str, key: str) -> reput.Message:
    return reput.Message(topic, body_of(key), keys=[key], tags="tag")


def main() -> None:
    told, name, path, rate, life = sys.argv[1:]
    (settings,) = (store for store in STORES if store.name == name)
    teller = Teller(told)
    by_hand = settings.flush_disk_type == "ASYNC_FLUSH"
    try:
        store = reput.MessageStore.open(path, retention=not by_hand, **settings.options)
    except BaseException as error:
        teller.fail(error)
    teller.tell("opened")
    writer = Writer(store, teller, f"{name}-{life}", float(rate))
    for work in (writer.put_several, writer.put_tables, writer.get, writer.query, *([writer.delete] * by_hand)):
        teller.start(work)
    for thread in range(2):
        teller.start(partial(writer.put_single, thread))
    while True:
        time.sleep(1)
        teller.tell_counts()


if __name__ == "__main__":
    main()
