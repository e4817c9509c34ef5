"""The stores that Apache RocketMQ wrote, and what it said of them."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import END_MARK
from reput.formats.index_file import HEADER_SIZE, decode_header, entry_position
from tests.support.bit_maps import bit_maps

CORPORA = Path(__file__).parents[1] / "golden"
CASES = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in CORPORA.glob("*/*/hashes.txt"))


def origin(case: str) -> dict[str, int]:
    """The options that a corpus was written with."""
    text = (CORPORA / case / "ORIGIN.md").read_text()
    return {name: int(value) for name, value in re.findall(r"^- (\w+): (\d+)$", text, re.MULTILINE)}


def expected_files(case: str) -> dict[str, tuple[int, str]]:
    """Path -> (length, SHA-256) of the used part of each file of Apache's rebuild."""
    lines = (line.split(" ") for line in (CORPORA / case / "hashes.txt").read_text().splitlines())
    return {path: (int(size), digest) for kind, path, size, digest in lines if kind == "rebuilt"}


def used_files(output: Path, hash_slots: int) -> dict[str, tuple[int, str]]:
    """The same of a rebuilt directory; behind the used part there are only zeros."""
    found = {}
    for path in sorted(output.glob("consumequeue/*/*/*")):
        data = path.read_bytes()
        used = next((p for p in range(0, len(data), UNIT_SIZE) if decode_unit(data, p).size == 0), len(data))
        found[str(path.relative_to(output))] = data, used
    for path in sorted(output.glob("consumequeue_ext/*/*/*")):
        data, used = path.read_bytes(), 0
        while used + 2 <= len(data) and (size := int.from_bytes(data[used : used + 2], "big", signed=True)) > 0:
            used += size
        if data[used : used + 2] == END_MARK:
            data = data[:used] + data[used + 2 :]
        found[str(path.relative_to(output))] = data, used
    for path in sorted(output.glob("batchconsumequeue/*/*/*")):
        data = path.read_bytes()
        units = (p for p in range(0, len(data), BATCH_UNIT_SIZE) if not decode_batch_unit(data, p).is_in_use)
        found[str(path.relative_to(output))] = data, next(units, len(data))
    for number, path in enumerate(sorted(output.glob("index/*"))):
        data = path.read_bytes()
        found[f"index/{number}"] = data, entry_position(hash_slots, decode_header(data[:HEADER_SIZE]).index_count)
    assert all(not any(data[used:]) for data, used in found.values())
    return {name: (used, hashlib.sha256(data[:used]).hexdigest()) for name, (data, used) in found.items()}


def kind_of(case: str) -> str:
    return case.split("/")[1]


#: `version/case`.
ALL = sorted(str(path.parent.relative_to(CORPORA)) for path in CORPORA.glob("*/*/truth.txt"))
Queue = tuple[str, int]


class Truth(NamedTuple):
    """Answers of Apache: per queue (min, max) and the fields of each message; (topic, key) -> commit log offsets."""

    queues: dict[Queue, tuple[int, int]]
    messages: dict[Queue, list[tuple[str, ...]]]
    nothing: list[tuple[str, int, int, str, int]]
    queries: dict[tuple[str, str], list[int]]
    ends: tuple[int, int]


@cache
def truth(case: str) -> Truth:
    queues, messages, nothing, queries, ends = {}, defaultdict(list), [], {}, (0, 0)
    last: Queue = ("", 0)
    for line in (CORPORA / case / "truth.txt").read_text().splitlines():
        kind, *fields = line.split(" ")
        if kind == "phy":
            ends = int(fields[0]), int(fields[1])
        elif kind == "queue":
            last = fields[0], int(fields[1])
            queues[last] = int(fields[2]), int(fields[3])
        elif kind == "msg":
            messages[last].append(tuple(fields))
        elif kind == "none" and fields[3] == "MESSAGE_WAS_REMOVING":
            # 4.9.7 counts a queue without a message from 0 again after a start; reput and 5.x know its minimum.
            queues[last] = queues[last][1], queues[last][1]
        elif kind == "none":
            nothing.append((fields[0], int(fields[1]), int(fields[2]), fields[3], int(fields[4])))
        elif kind == "query":
            queries[fields[0], fields[1]] = [int(offset) for offset in fields[2:]]
    return Truth(queues, dict(messages), nothing, queries, ends)


def options(case: str) -> dict[str, object]:
    found = origin(case)
    further = {
        "ext": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024, "bit_maps": bit_maps},
        "lmq": {"enable_multi_dispatch": True, "enable_lmq": True},
    }
    return {
        **further.get(kind_of(case), {}),
        "mapped_file_size_commit_log": found["commitlogFileSize"],
        "mapped_file_size_consume_queue": found["consumeQueueEntries"] * UNIT_SIZE,
        "mapper_file_size_batch_consume_queue": found["consumeQueueEntries"] * BATCH_UNIT_SIZE,
        "max_hash_slot_num": found["hashSlots"],
        "max_index_num": found["indexEntries"],
        "dispatch_rules": case.split("/")[0],
    }
