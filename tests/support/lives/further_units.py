"""Lives of a store with consume queue extensions and light message queues."""

from __future__ import annotations

from pathlib import Path

import reput
from reput.errors import StoreError
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    abandon,
    wait_dispatched,
)
from tests.support.further_units import BOTH, check_files
from tests.support.invariants import Acknowledged, check_acknowledged

OPTIONS = BOTH | {"sync_flush_timeout": 2000, "flush_interval_consume_queue": 20}
MESSAGES = 14
NAMES = ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%a,%LMQ%c")


def put(store: reput.MessageStore, number: int) -> Acknowledged:
    key, body = f"key-{number}", bytes([number]) * (250 + 40 * (number % 5))
    message = reput.Message(
        "orders", body, keys=[key], tags="ab"[: number % 3], properties={"INNER_MULTI_DISPATCH": NAMES[number % 3]}
    )
    result = store.put_message(message, number % 2)
    assert result.status is reput.PutMessageStatus.PUT_OK
    return Acknowledged("orders", number % 2, result.queue_offset, result.commit_log_offset, key, body)


def live(path: Path, files: FaultyFiles) -> tuple[list[Acknowledged], StoreError | None]:
    """Open, put, close; up to the first error or crash. Returns what was acknowledged, and the error."""
    acknowledged: list[Acknowledged] = []
    store = error = None
    try:
        store = reput.MessageStore.open(path, files=files, **OPTIONS)
        for number in range(MESSAGES):
            acknowledged.append(put(store, number))
        wait_dispatched(store, files)
        store.close()
    except Crash:
        pass
    except StoreError as found:
        error = found
    if store is not None:
        abandon(store, files)
    files.abandon()
    return acknowledged, error


def check_next_life(path: Path, acknowledged: list[Acknowledged]) -> None:
    """A healthy start brings all back; light queues go on behind the last message; all files are as the log says."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        check_acknowledged(store, acknowledged)
        put(store, 200)
        store.wait_dispatched()
        counts = {name: store.max_offset(name, 0) for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c")}
        assert counts["%LMQ%a"] > len(acknowledged)
        for name, count in counts.items():
            messages = [store.get_message(name, 0, offset, 1).messages()[0] for offset in range(count)]
            for offset, message in enumerate(messages):
                names = message.properties["INNER_MULTI_DISPATCH"].split(",")
                offsets = message.properties["INNER_MULTI_QUEUE_OFFSET"].split(",")
                assert offsets[names.index(name)] == str(offset)
    check_files(path)
