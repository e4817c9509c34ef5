"""Appending message objects, a thousand a call, with live dispatch running."""

from __future__ import annotations

import time

from lab.bench import messages
from lab.bench.figures import Figure
from lab.bench.setting import Setting
from reput import Message, MessageStore

_MESSAGES_A_CALL = 1_000


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
    return figures


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
