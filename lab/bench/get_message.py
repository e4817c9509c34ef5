"""Gets: messages as views, as objects of which body, tags and keys are read, and as Arrow."""

from __future__ import annotations

import random
from collections.abc import Callable, Sized

from lab.bench import messages
from lab.bench.apache import NAME, OpenStore
from lab.bench.figures import Figure, Goal, Other, seconds_of
from lab.bench.setting import Setting
from reput import FlushDiskType, MessageStore, MessageStoreConfig
from reput.kernels.records.record_batch import SCHEMA

#: With RocketMQ's limits of one pull out of the way of pulls of 1 000.
_CONFIG = MessageStoreConfig(
    flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    max_transfer_count_on_message_in_memory=1_000,
    max_transfer_bytes_on_message_in_memory=4 << 20,
)


#: RocketMQ's decode compares no CRC, and `status` is what asks for one.
_UNCHECKED = [name for name in SCHEMA.names if name != "status"]
#: By figure, what RocketMQ does beside it: messages a pull, decoded or not, and how many times as fast ours should be.
_APACHE: dict[str, tuple[int, bool, float | None]] = {
    "get of 32 as views": (32, False, 2),
    "get of 32, body, tags and keys of each": (32, True, None),
    "get of 1000 as Arrow": (1000, True, 2.5),
}


def measure(setting: Setting) -> list[Figure]:
    """Microseconds a call, at random places of ten queues."""
    if setting.apache is None:
        return _measure(setting, None)
    with setting.apache.open(setting.apache_stock()) as apache:
        return _measure(setting, apache)


def _measure(setting: Setting, apache: OpenStore | None) -> list[Figure]:
    with MessageStore.open(setting.stock(), config=_CONFIG) as store:
        get = store.get_message
        calls: list[tuple[Figure, int, int, Callable[[int, int], Sized]]] = [
            (
                Figure("get of 32 as views", "us a call", goal=Goal(most=5)), 32, 40_000,
                lambda queue, offset: get(messages.TOPIC, queue, offset, 32),
            ),
            (
                Figure("get of 32, body, tags and keys of each", "us a call"), 32, 1_000,
                lambda queue, offset: [
                    (m.body, m.tags, m.keys) for m in get(messages.TOPIC, queue, offset, 32).messages()
                ],
            ),
            (
                Figure("get of 1000 as Arrow", "us a call", note="all columns but status"), 1000, 200,
                lambda queue, offset: get(messages.TOPIC, queue, offset, 1000).to_arrow(_UNCHECKED),
            ),
        ]  # fmt: skip
        figures = {figure.name: figure for figure, *_ in calls}
        figures["get of 32 as views"].note = "bound by the interpreter"
        memcpy = "memcpy, one thread"
        figures["get of 1000 as Arrow"].limit = (memcpy, 1e9 / setting.records_limit(memcpy)[1])
        for figure, size, count, call in calls:
            for _ in range(setting.repeats):
                figure.values.append(_us_a_call(store, size, setting.count(count), call))
                if apache is not None and figure.name in _APACHE:
                    _pull_from_apache(figure, apache, setting.count(count))
        return [figure for figure, *_ in calls]


def _pull_from_apache(figure: Figure, apache: OpenStore, calls: int) -> None:
    """The same pull by RocketMQ: its buffers are views too; decoded means every field of every message."""
    size, decode, least = _APACHE[figure.name]
    figure.other = figure.other or Other(NAME, least=least)
    figure.add_other(apache.get(calls, size, decode=decode))


def _us_a_call(store: MessageStore, size: int, count: int, call: Callable[[int, int], Sized]) -> float:
    """Time `call(queue_id, offset)`, which gets `size` messages, at random offsets that have twice as many behind them.

    Raises:
        AssertionError: It got fewer, where pulls that end with their log file do not count.
    """
    choose = random.Random(7)
    last = max(store.max_offset(messages.TOPIC, 0) - 2 * size, 1)
    places = [(choose.randrange(messages.QUEUES), choose.randrange(last)) for _ in range(count)]

    def run() -> None:
        for queue_id, offset in places:
            call(queue_id, offset)

    found = sum(len(call(queue_id, offset)) for queue_id, offset in places)  # this round does not count
    if found < 0.9 * size * count and last > 1:
        raise AssertionError(f"{count} pulls of {size} messages got {found}")
    return seconds_of(run) / count * 1e6
