"""Messages that either side can put: made once, in the words of reput.interop.Puts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa

import reput
from reput.formats.message_batch import encode_batch
from reput.formats.metadata import TopicConfig
from reput.formats.multi_dispatch import INNER_MULTI_DISPATCH
from reput.formats.properties import KEYS, TAGS, UNIQ_KEY

Fields = dict[str, Any]
Kind = TypeVar("Kind", bound=reput.Message)
TOPICS = ("order", "payment", "%RETRY%group")
#: Its queues are batch consume queues, which RocketMQ has since 5.0.
BATCH_TOPIC = TopicConfig("batched", attributes={"queue.type": "BatchCQ"})
WITH_BATCH_TOPIC = (*TOPICS, BATCH_TOPIC.topic_name, BATCH_TOPIC.topic_name)
#: What messages of `lmq_messages` name.
LIGHT_QUEUES = (None, "%LMQ%a", "%LMQ%b,%LMQ%a", "%LMQ%b,%LMQ%支付")
TAG_TEXTS = ("create", "支付", "🚀", "Aa", "BB", None)
HOSTS = ("127.0.0.1:40000", "10.255.0.1:65535", "[2001:db8::1]:40000")


def message(choices: random.Random, number: int, topics: Sequence[str] = TOPICS) -> Fields:
    """One in which every field that a producer sets varies, with collisions of tags and keys, and empty bodies."""
    properties = {"region": f"r{number % 5}"} if number % 4 == 0 else {}
    if tag := choices.choice(TAG_TEXTS):
        properties[TAGS] = tag
    keys = [choices.choice(["Aa", "BB", "polygenelubricants", f"ORDER_{number % 70}"]) for _ in range(number % 4)]
    if keys:
        properties[KEYS] = " ".join(keys)
    if number % 3:
        properties[UNIQ_KEY] = f"7F0000010001{42:08X}{number:012X}"
    return {
        "topic": choices.choice(topics),
        "queue_id": choices.randrange(3),
        "body": choices.randbytes(choices.choice([0, 1, 100, 900])).hex(),
        "properties": properties,
        "flag": choices.choice([0, 1, -1]),
        "sys_flag": 0,
        "reconsume_times": number % 17,
        "born_timestamp": 1_700_000_000_000 + number,
        "born_host": choices.choice(HOSTS),
        "prepared_transaction_offset": 0,
    }


def messages(count: int, seed: int = 0, topics: Sequence[str] = TOPICS) -> list[Fields]:
    choices = random.Random(seed)
    return [message(choices, number, topics) for number in range(count)]


def lmq_messages(count: int, seed: int = 0) -> list[Fields]:
    """Messages of which most name light queues; retry and system topics' name them in vain, except in 4.9.7."""
    fields = messages(count, seed, (*TOPICS, "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"))
    for number, one in enumerate(fields):
        if names := LIGHT_QUEUES[number % len(LIGHT_QUEUES)]:
            one["properties"][INNER_MULTI_DISPATCH] = names
    return fields


def batches(count: int, seed: int = 0, topics: Sequence[str] = TOPICS) -> list[Fields]:
    """Messages in batches of one to ten; a batch of one as its message is."""
    fields, choices = messages(count, seed, topics), random.Random(seed)
    puts = []
    while fields:
        size = choices.randrange(1, 11)
        puts.append(batch(fields[:size]) if size > 1 else fields[0])
        del fields[:size]
    return puts


def inner_batches(count: int, seed: int = 0) -> list[Fields]:
    """Such batches, and many of them go to a topic with batch consume queues; where they have an id, as one record."""
    return batches(count, seed, WITH_BATCH_TOPIC)


def batch(items: Sequence[Fields]) -> Fields:
    """The messages as one batch: they share what a batch has once, and it has the first one's properties."""
    first = items[0]
    is_one_record = first["topic"] == BATCH_TOPIC.topic_name and UNIQ_KEY in first["properties"]
    return first | {
        "inner_batch" if is_one_record else "batch": [
            {name: item[name] for name in ("body", "flag", "properties")} for item in items
        ]
    }


def put(store: reput.MessageStore, fields: Sequence[Fields]) -> None:
    """Messages and batches, each as one put."""
    for one in fields:
        if one.keys() & {"batch", "inner_batch"}:
            store.put_batch(as_batch(one), one["queue_id"])
        else:
            store.put_message(as_message(one), one["queue_id"])


def as_message(fields: Fields) -> reput.Message:
    """The same for reput; the queue is an argument of a put there."""
    return _as(reput.Message, fields)


def as_batch(fields: Fields) -> reput.MessageExtBatch:
    """A batch for reput."""
    items = fields.get("batch") or fields["inner_batch"]
    body = encode_batch([as_message(fields | item) for item in items])
    return _as(reput.MessageExtBatch, fields | {"body": body.hex()})


def _as(kind: type[Kind], fields: Fields) -> Kind:
    properties = dict(fields["properties"])
    return kind(
        fields["topic"],
        bytes.fromhex(fields["body"]),
        tags=properties.pop(TAGS, None),
        keys=properties.pop(KEYS, "").split(),
        unique_key=properties.pop(UNIQ_KEY, None),
        properties=properties,
        flag=fields["flag"],
        sys_flag=fields["sys_flag"],
        born_timestamp=fields["born_timestamp"],
        born_host=fields["born_host"],
        reconsume_times=fields["reconsume_times"],
        prepared_transaction_offset=fields["prepared_transaction_offset"],
    )


def as_table(rows: Sequence[Fields]) -> pa.Table:
    """The same for put_arrow."""
    made = [as_message(fields) for fields in rows]
    columns: dict[str, pa.Array] = {
        "topic": pa.array([one.topic for one in made]),
        "queue_id": pa.array([fields["queue_id"] for fields in rows], pa.int32()),
        "body": pa.array([one.body for one in made], pa.binary()),
        "tags": pa.array([one.tags for one in made], pa.string()),
        "keys": pa.array([list(one.keys) for one in made], pa.list_(pa.string())),
        "unique_key": pa.array([one.unique_key for one in made], pa.string()),
    }
    return pa.table(columns)
