"""Finding messages by key: one key a call, and a thousand; each hit is verified against the record's text."""

from __future__ import annotations

import random

from lab.bench import messages
from lab.bench.apache import OpenStore
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.setting import Setting
from reput import MessageStore

_KEYS_A_CALL = 1_000
_LINES_A_KEY = 5


def measure(setting: Setting) -> list[Figure]:
    """Keys a second, random ones out of the whole store."""
    one = Figure("query_message, one key a call", "keys/s", goal=Goal(least=200_000), note="bound by the interpreter")
    many = Figure(f"query_messages, {_KEYS_A_CALL} keys a call", "keys/s", goal=Goal(least=2_000_000))
    many.limit = ("random cache lines", setting.limits["random cache lines"] / _LINES_A_KEY)
    many.note = f"{_LINES_A_KEY} lines a key: slot, entry, and of the record head, topic and properties"
    if setting.apache is None:
        _measure(setting, one, many, None)
    else:
        one.other, many.other = setting.apache.other(least=2), setting.apache.other(least=20)
        many.note += "; RocketMQ takes one key a call"
        with setting.apache.open(setting.apache_stock()) as apache:
            _measure(setting, one, many, apache)
    return [one, many]


def _measure(setting: Setting, one: Figure, many: Figure, apache: OpenStore | None) -> None:
    count = setting.count(200_000)
    with MessageStore.open(setting.stock(), flush_disk_type="ASYNC_FLUSH") as store:
        choose = random.Random(7)
        for _ in range(setting.repeats):
            keys = [messages.key(choose.randrange(setting.stock_count)) for _ in range(count)]
            few = keys[: count // 10]
            _in_thousands(store, keys)  # so that no page of the maps is touched for the first time below
            with stopwatch() as watch:
                _one_by_one(store, few)
            one.values.append(len(few) / watch.seconds)
            with stopwatch() as watch:
                _in_thousands(store, keys)
            many.values.append(count / watch.seconds)
            if apache is not None:
                rate = apache.query(len(few), setting.stock_count)
                for figure in (one, many):
                    figure.add_other(rate)


def _one_by_one(store: MessageStore, keys: list[str]) -> None:
    for key in keys:
        if len(store.query_message(messages.TOPIC, key)) != 1:
            raise AssertionError(f"{key} was not found once")


def _in_thousands(store: MessageStore, keys: list[str]) -> None:
    for i in range(0, len(keys), _KEYS_A_CALL):
        found = store.query_messages(messages.TOPIC, keys[i : i + _KEYS_A_CALL])
        if found.offsets.size != len(found):
            raise AssertionError("a key was not found once")
