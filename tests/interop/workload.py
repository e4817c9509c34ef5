"""Messages that either side can put: made once, in the words of reput.interop.Puts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import reput
from reput.formats.properties import KEYS, TAGS, UNIQ_KEY

Fields = dict[str, Any]
TOPICS = ("order", "payment", "%RETRY%group")
TAG_TEXTS = ("create", "支付", "🚀", "Aa", "BB", None)
HOSTS = ("127.0.0.1:40000", "10.255.0.1:65535", "[2001:db8::1]:40000")


def message(choices: random.Random, number: int) -> Fields:
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
        "topic": choices.choice(TOPICS),
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


def messages(count: int, seed: int = 0) -> list[Fields]:
    choices = random.Random(seed)
    return [message(choices, number) for number in range(count)]


def batch(items: Sequence[Fields]) -> Fields:
    """The messages as one of putMessages: they share what a batch has once."""
    return items[0] | {"batch": [{name: item[name] for name in ("body", "flag", "properties")} for item in items]}


def inner_batch(items: Sequence[Fields]) -> Fields:
    """The messages as one record, which topics with batch queues have."""
    made = batch(items)
    return made | {"inner_batch": made.pop("batch")}


def as_message(fields: Fields) -> reput.Message:
    """The same for reput; the queue is an argument of a put there."""
    properties = dict(fields["properties"])
    return reput.Message(
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
