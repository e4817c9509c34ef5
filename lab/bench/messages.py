"""The messages that everything is measured with.

A body of 256 bytes, a unique key, a tag out of four, one key, two other properties; one topic, ten queues. A record of
them takes 455 bytes and has two index keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput import Message

TOPIC = "orders"
QUEUES = 10
TAGS = ("paid", "sent", "held", "void")
BODY_SIZE = 256
RECORD_SIZE = 455
#: Index keys of each.
KEYS = 2
_PROPERTIES = {"region": "eu", "tenant": "acme-trading"}
_UNIQUE_PREFIX = "7F0000010001AABBCCDD0000"
_KEY_PREFIX = "order-"
_DIGITS = 8
_FORMAT = f"%0{_DIGITS}d"
_BATCH_ROWS = 65_536


def unique_key(number: int) -> str:
    """The UNIQ_KEY of message `number`."""
    return _UNIQUE_PREFIX + _FORMAT % number


def key(number: int) -> str:
    """The only entry of KEYS of message `number`."""
    return _KEY_PREFIX + _FORMAT % number


def body(number: int) -> bytes:
    """256 bytes that differ from message to message."""
    return np.random.default_rng(number).bytes(BODY_SIZE)


def message(number: int, *, payload: bytes) -> Message:
    """Message `number` for `put_message`."""
    digits = _FORMAT % number  # no calls: making a message is part of what is measured
    return Message(TOPIC, payload, TAGS[number & 3], (_KEY_PREFIX + digits,), _PROPERTIES, 0, _UNIQUE_PREFIX + digits)


def table(rows: int, *, first: int = 0, body_size: int = BODY_SIZE) -> pa.Table:
    """Messages `first` .. `first + rows` as a table for `put_arrow`, in batches of 65 536 rows."""
    bodies = np.random.default_rng(first).bytes(min(rows, _BATCH_ROWS) * body_size)
    batches = [
        _batch(start, min(_BATCH_ROWS, first + rows - start), bodies, body_size)
        for start in range(first, first + rows, _BATCH_ROWS)
    ]
    return pa.Table.from_batches(batches)


def _batch(first: int, rows: int, bodies: bytes, body_size: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + rows)
    every = np.arange(rows + 1, dtype=np.int32)
    names = pa.array(list(_PROPERTIES)).take(pa.array(np.tile(np.arange(2), rows)))
    values = pa.array(list(_PROPERTIES.values())).take(pa.array(np.tile(np.arange(2), rows)))
    offsets = pa.py_buffer((every * np.int32(body_size)).tobytes())
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([TOPIC]).take(pa.array(np.zeros(rows, np.int32))),
            "queue_id": pa.array((numbers % QUEUES).astype(np.int32)),
            "tags": pa.array(TAGS).take(pa.array(numbers & 3)),
            "unique_key": _numbered(_UNIQUE_PREFIX, numbers),
            "keys": pa.ListArray.from_arrays(pa.array(every), _numbered(_KEY_PREFIX, numbers)),
            "properties": pa.MapArray.from_arrays(pa.array(2 * every), names, values),
            "body": pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(bodies)]),
        }
    )


def _numbered(prefix: str, numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    """`prefix` with each number in eight digits behind it."""
    width = len(prefix) + _DIGITS
    text = np.empty((numbers.size, width), np.uint8)
    text[:, : len(prefix)] = np.frombuffer(prefix.encode(), np.uint8)
    powers = 10 ** np.arange(_DIGITS - 1, -1, -1)
    text[:, len(prefix) :] = numbers[:, None] // powers % 10 + ord("0")
    offsets = np.arange(numbers.size + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(numbers.size, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text.tobytes()))
