"""A store with a made-up day in it: what an online shop says to itself, its log written record by record."""

import os
from pathlib import Path

import numpy as np

from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import BLANK_SIZE

FILE_SIZE = 2 << 20
#: Topic, its part of the messages, bytes of a body, hour of the day at which most come.
TOPICS = (
    ("orders", 0.30, 420, 19),
    ("payments", 0.22, 260, 19),
    ("page-views", 0.28, 120, 14),
    ("stock", 0.10, 180, 6),
    ("invoices", 0.05, 2200, 22),
    ("mails", 0.03, 900, 9),
    ("returns", 0.02, 350, 11),
)
_DAY_MS = 24 * 3_600_000
#: 2026-05-04, a Monday.
_MIDNIGHT_MS = 1_777_852_800_000
_STORE_HOST = encode_host("10.0.0.1:10911")


def write_day(store: Path, messages: int = 30_000) -> None:
    """Write the log of a new store; the same bytes and times of files whenever it is called."""
    random = np.random.default_rng(2026)
    topics = random.choice(len(TOPICS), messages, p=[topic[1] for topic in TOPICS])
    peaks = np.array([topic[3] for topic in TOPICS])[topics]
    hours = np.where(random.random(messages) < 0.3, random.random(messages) * 24, random.normal(peaks, 2.6) % 24)
    order = np.argsort(hours, kind="stable")
    stored = _MIDNIGHT_MS + (hours[order] / 24 * _DAY_MS).astype(np.int64)
    topics = topics[order]
    busy = 1 + 5 * np.exp(-(((hours[order] - 19.5) / 1.2) ** 2))  # in the evening producers wait
    latencies = np.minimum(random.lognormal(1.3, 0.9, messages) * busy, 60_000).astype(np.int64)
    sizes = np.array([topic[2] for topic in TOPICS])[topics] * random.gamma(4, 0.25, messages)
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    offsets = dict.fromkeys(range(len(TOPICS)), 0)
    data, begin = bytearray(), 0
    for number in range(messages):
        topic = int(topics[number])
        message = Message(
            TOPICS[topic][0], b"." * int(sizes[number]), tags=("web", "app", "shop")[number % 3], keys=[f"k-{number}"]
        )
        for _ in range(2):
            record = encode_record(
                message,
                queue_id=offsets[topic] % 4,
                queue_offset=offsets[topic] // 4,
                commit_log_offset=begin + len(data),
                store_timestamp=int(stored[number]),
                store_host=_STORE_HOST,
                born_timestamp=int(stored[number] - latencies[number]),
                born_host=encode_host(f"10.0.1.{number % 5}:4000"),
            )
            if len(data) + len(record) + BLANK_SIZE <= FILE_SIZE:
                break
            data += encode_blank(FILE_SIZE - len(data))
            _write(folder, begin, bytes(data), int(stored[number]))
            data, begin = bytearray(), begin + FILE_SIZE
        data += record
        offsets[topic] += 1
    _write(folder, begin, bytes(data), int(stored[-1]))


def _write(folder: Path, offset: int, data: bytes, modified_ms: int) -> None:
    path = folder / offset_to_file_name(offset)
    path.write_bytes(data.ljust(FILE_SIZE, b"\0"))
    os.utime(path, (modified_ms / 1000, modified_ms / 1000))
