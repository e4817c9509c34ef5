"""Appending message objects, a thousand a call, with live dispatch running: of one topic, and of fifty in turn."""

from __future__ import annotations

import time

from lab.bench import messages
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput import Message, MessageStore

_MESSAGES_A_CALL = 1_000
_TOPICS = 50


def measure(setting: Setting) -> list[Figure]:
    """Until appended, and until dispatched; the objects are made before, as RocketMQ's encoded batches are."""
    payload = messages.body(0)
    puts = [messages.message(i, payload=payload) for i in range(setting.count(200_000))]
    figures = [
        Figure(f"put_messages, {_MESSAGES_A_CALL} a call, {state}", "msg/s")
        for state in ("appended, dispatch running", "appended and dispatched")
    ]
    if setting.apache is not None:
        figures[0].other, figures[1].other = setting.apache.other(), setting.apache.other(least=5)
    for _ in range(setting.repeats):
        path = setting.folder("put")
        for figure, seconds in zip(figures, _put(path, puts), strict=True):
            figure.values.append(len(puts) / seconds)
        if setting.apache is not None:
            with setting.apache.open(setting.folder("put")) as store:
                answer = store.put(len(puts), batch=setting.apache.batch)
            for figure, state in zip(figures, ("appended", "dispatched"), strict=True):
                figure.add_other(len(puts) / answer[state])
    setting.remove(path)
    return [*figures, _measure_in_turn(setting, payload)]


def _measure_in_turn(setting: Setting, payload: bytes) -> Figure:
    """The thread that puts alone: fifty topics make dispatch dearer too, which is not what is asked here."""
    puts = [messages.message(i, payload=payload) for i in range(setting.count(50_000))]
    for i, message in enumerate(puts):
        message.topic = f"{messages.TOPIC}-{i % _TOPICS}"
    queue_ids = [i // _TOPICS % messages.QUEUES for i in range(_MESSAGES_A_CALL)]
    figure = Figure(
        f"put_messages, {_MESSAGES_A_CALL} a call, {_TOPICS} topics in turn", "us a message", goal=Goal(most=1.2)
    )
    figure.note = "processor time of the thread that puts"
    for _ in range(setting.repeats):
        path = setting.folder("put")
        with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
            store.put_messages(puts[:_MESSAGES_A_CALL], queue_ids[: len(puts)])  # its queues are there then
            store.wait_dispatched()
            start = time.thread_time()
            for first in range(0, len(puts), _MESSAGES_A_CALL):
                some = puts[first : first + _MESSAGES_A_CALL]
                store.put_messages(some, queue_ids[: len(some)])
            figure.values.append((time.thread_time() - start) / len(puts) * 1e6)
    setting.remove(path)
    return figure


def _put(path: str, puts: list[Message]) -> tuple[float, float]:
    """Seconds until all are appended, and until they are dispatched."""
    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        store.put_messages(puts[:100])
        store.wait_dispatched()
        start = time.perf_counter()
        for first in range(0, len(puts), _MESSAGES_A_CALL):
            queue_id = first // _MESSAGES_A_CALL % messages.QUEUES
            store.put_messages(puts[first : first + _MESSAGES_A_CALL], queue_id)
        appended = time.perf_counter() - start
        store.wait_dispatched(timeout=600)
        return appended, time.perf_counter() - start
