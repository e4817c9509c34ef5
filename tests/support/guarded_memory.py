"""Runs every kernel over hostile bytes that lie against pages nobody may touch; a kernel that reaches out dies here.

`test_hostile_bytes.py` runs it as a program of its own. The bytes end, or begin, exactly where a page of `PROT_NONE`
lies, so one byte too far is a SIGSEGV.

    python -m tests.support.guarded_memory SEED SUBJECT
"""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.broker.appends.inner_message import read_properties
from reput.broker.appends.put_hooks import delay_level
from reput.formats.consume_queue import encode_unit
from reput.formats.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexEntry,
    encode_entry,
    entry_position,
    key_hash,
)
from reput.formats.message_batch import decode_batch
from reput.formats.properties import decode_properties
from reput.formats.record_layout import MIN_RECORD_SIZE, unpack_record
from reput.kernels.machine.crc32 import crc32_slices
from reput.kernels.machine.java_hash import java_hash_slices
from reput.kernels.queues.batch_consume_queue import group_batch_units
from reput.kernels.queues.consume_queue import PULL_RESULT_COUNT, SelectLimits, group_units, select_run, select_units
from reput.kernels.queues.consume_queue_ext import resolve_tags_codes
from reput.kernels.queues.index_file import put_keys
from reput.kernels.queues.index_search import (
    IndexFields,
    LogFields,
    TopicFields,
    find_entries,
    find_key,
    scratch_row,
    topic_hash,
    verify_keys,
)
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.queues.small_pass import SmallPass
from reput.kernels.records import proven_records
from reput.kernels.records.column_addresses import ADDRESSES
from reput.kernels.records.columns import NARROW, WIDE
from reput.kernels.records.gather import next_invalid_text
from reput.kernels.records.log_room import LogRoom
from reput.kernels.records.property_slices import find_property_slices
from reput.kernels.records.proven_records import PLACE_WORDS
from reput.kernels.records.record_batch import SCHEMA, record_batch
from reput.kernels.records.record_encode import encode, measure
from reput.kernels.records.record_form import RecordForm
from reput.kernels.records.record_scan import RecordScanner, ScanLevel, read_records_at
from reput.kernels.records.record_search import GapFinder, find_proven, find_record, unknown_times
from reput.kernels.records.tags import keep_matching_tags
from reput.kernels.records.timer_records import read_timer_records
from reput.kernels.wire.ack_frames import NUMBERS, AckForm
from reput.kernels.wire.pull_frames import MARK as NUMBER
from reput.kernels.wire.pull_frames import AnswerTexts, PullReader, write_found
from reput.kernels.wire.send_back_frames import SendBacks
from reput.kernels.wire.send_frames import SendFrames
from reput.kernels.wire.send_words import S_ANSWERS, S_ANSWERS_END, S_SCRATCH, SCRATCH_SIZE
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, decode_command, encode_command, frame_size
from reput.remoting.send_headers import decode_send_header
from reput.service.timer_messages import deliver_time, out_time
from tests.oracles.record_bytes import SCHEDULE_TOPIC, Record, blank, pack_log
from tests.oracles.record_scan import V1, V2
from tests.support.asked_memory import map_of
from tests.support.send_streams import TOPICS, send_stream

Array = npt.NDArray[np.uint8]

_PAGE = mmap.PAGESIZE
_ROOT = Path(__file__).parents[2]
_EXTREMES = (0, 1, -1, 2, 7, 8, 90, 91, 127, 128, 255, 0x7FFF, -0x8000, 0x7FFFFFFF, -(2**31))
_BASE = 1 << 33
_LEVELS, _NOW_MS = 6, 1_700_000_000_000
_RANDOM = random.Random(20)


class Guarded:
    """Room for bytes between two pages that nobody may touch."""

    def __init__(self, size: int) -> None:
        self._inner = -(-size // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, self._inner + 2 * _PAGE)
        self._room = np.frombuffer(self._map, np.uint8)[_PAGE : _PAGE + self._inner]
        start = self._room.ctypes.data - _PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (start, start + _PAGE + self._inner):
            if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def at_end(self, data: bytes) -> Array:
        """The bytes, their last one before the upper page."""
        view = self._room[self._inner - len(data) :]
        view[:] = np.frombuffer(data, np.uint8)
        return view

    def at_start(self, data: bytes) -> Array:
        """The bytes, their first one behind the lower page."""
        view = self._room[: len(data)]
        view[:] = np.frombuffer(data, np.uint8)
        return view


_GUARDED = Guarded(1 << 17)


def placed(data: bytes) -> Iterator[Array]:
    """The bytes at the upper and at the lower border."""
    yield _GUARDED.at_end(data)
    yield _GUARDED.at_start(data)


def records(count: int) -> list[Record]:
    """Well-formed records of every kind."""
    made = []
    for i in range(count):
        pieces = [
            b"TAGS\x01t",
            b"KEYS\x01k1 k2  k3",
            b"UNIQ_KEY\x01u" + bytes([65 + i % 26]),
            b"DELAY\x013",
            b"INNER_NUM\x017",
            b"INNER_BASE\x0112",
            b"a\x01\xff",
            b"",
        ]
        properties = b"\x02".join(_RANDOM.sample(pieces, _RANDOM.randrange(len(pieces))))
        made.append(
            Record(
                magic=_RANDOM.choice([V1, V2]),
                sys_flag=_RANDOM.choice([0, 4, 12]),
                born_host=bytes(_RANDOM.choice([8, 20])),
                store_host=bytes(_RANDOM.choice([8, 20])),
                born_timestamp=_RANDOM.choice([0, 2**62, 1_700_000_000_000]),
                body=_RANDOM.randbytes(_RANDOM.choice([0, 1, 40, 200])),
                topic=_RANDOM.choice([b"t", b"topic-0", SCHEDULE_TOPIC, b"\xff\xe2", b""]),
                properties=properties + _RANDOM.choice([b"", b"\x02"]),
            )
        )
    return made


def damaged(data: bytes) -> bytes:
    """The bytes with one thing wrong, PHYSICALOFFSET of the first record right more often than not."""
    content = bytearray(data)
    match _RANDOM.randrange(5):
        case 0:
            for _ in range(_RANDOM.randrange(1, 9)):
                content[_RANDOM.randrange(len(content))] ^= 1 << _RANDOM.randrange(8)
        case 1:
            at = _RANDOM.randrange(0, min(100, len(content) - 4))
            content[at : at + 4] = struct.pack(">i", _RANDOM.choice(_EXTREMES))
        case 2:
            at = _RANDOM.randrange(0, len(content) - 4)
            content[at : at + 4] = struct.pack(">i", _RANDOM.choice(_EXTREMES))
        case 3:
            at = _RANDOM.randrange(0, len(content) - 2)
            content[at : at + 2] = struct.pack(">h", _RANDOM.choice([0, 1, -1, 0x7FFF, -0x8000]))
        case 4:
            content[36:40] = struct.pack(">i", _RANDOM.choice([0x10, 0x20, 0x30, -1]))
    return bytes(content)


def hostile_logs() -> Iterator[bytes]:
    """Logs that are whole, cut at every length, damaged, or noise."""
    log = pack_log(records(3), _BASE)
    yield from (log[:size] for size in range(len(log) + 1))
    lengths = [
        record_lengths(record) for record in (replace(records(1)[0], commit_log_offset=_BASE) for _ in range(30))
    ]
    yield from (content for contents in lengths for content in contents)
    for _ in range(1500):
        yield damaged(pack_log(records(_RANDOM.randrange(1, 4)), _BASE) + _RANDOM.choice([b"", blank(9), bytes(3)]))
    for _ in range(300):
        yield _RANDOM.randbytes(_RANDOM.randrange(200))
        head = struct.pack(">iI", _RANDOM.choice([91, 100, 200]), _RANDOM.choice([V1, V2]))
        noise = bytearray(head + _RANDOM.randbytes(192))
        noise[28:36] = struct.pack(">q", _BASE)
        yield bytes(noise)


def record_lengths(record: Record) -> Iterator[bytes]:
    """One record with each of its lengths at every extreme, and its size made to fit or not."""
    data = record.pack()
    body = 84 + (len(record.born_host) - 8) + (len(record.store_host) - 8)
    topic = body + 4 + len(record.body)
    properties = len(data) - len(record.properties) - 2
    topic_code = "h" if record.magic == V2 else "b"
    for position, code in ((0, "i"), (body, "i"), (topic, topic_code), (properties, "h")):
        width = struct.calcsize(code)
        for value in _EXTREMES:
            if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
                yield data[:position] + struct.pack(">" + code, value) + data[position + width :]


def scan_logs() -> int:
    """All scan levels, resynchronisation, reads at positions, and everything built on their columns."""
    scanners = [RecordScanner(8, level=level) for level in ScanLevel]
    finder = GapFinder()
    small, known = SmallPass(20 * 100, index_tags=True), set[tuple[bytes, int]]()
    count = 0
    for content in hostile_logs():
        for data in placed(content):
            count += 1
            for scanner in scanners:
                columns = scanner.scan(data, _BASE, check_crc=True)
            for key in set(columns.queues()) - known:
                known.add(key)
                small.add_queue(*key)
            small.read(data.ctypes.data, data.size, _BASE)
            if columns.rows and count % 4 == 0:
                record_batch(columns, SCHEMA.names)
            group_units(columns, np.zeros(columns.queue_rows.size, np.int64))
            group_batch_units(columns, np.full(columns.queue_rows.size, -2, np.int64))
            find_record(data, _BASE, _RANDOM.randrange(len(content) + 1))
            find_proven(data, _BASE, _RANDOM.randrange(len(content) + 1), left=data.size, file_begin=_BASE)
            finder.find(
                data, _BASE, left=data.size + count % 2 * 100, file_begin=_BASE, is_failed=count % 3 == 0,
                times=unknown_times(is_file_begin=count % 2 == 0), check_crc=count % 5 != 0,
            )  # fmt: skip
            positions = np.array([_RANDOM.randrange(-5, len(content) + 9) for _ in range(4)], np.int64)
            for offsets in (positions + _BASE, np.full(4, -1, np.int64)):
                for i in range(4):
                    read_records_at(data, positions[i : i + 1], offsets[i : i + 1])
            pairs = np.array([[_BASE + p, 100] for p in positions] + [[2**63 - 1, 1], [-(2**63), 1]], np.int64)
            keep_matching_tags(
                data.ctypes.data, data.size, _BASE, pairs.ctypes.data, len(pairs), data.ctypes.data,
                np.array([0, min(1, data.size)], np.int32), *scratch_row(),
            )  # fmt: skip
            timed = np.empty((len(WIDE), 4), np.int64), np.empty((len(NARROW), 4), np.int32), np.empty((5, 4), np.int64)
            names = np.frombuffer(b"TIMER_OUT_MSREAL_TOPICREAL_QIDTIMER_DEL_UNIQKEY", np.uint8).ctypes.data
            read_timer_records(data.ctypes.data, data.size, names, 5, names, *timed)
            slices = np.empty((1, len(pairs), 2), np.int64)
            find_property_slices(
                data.ctypes.data, data.size, _BASE, pairs.ctypes.data, len(pairs), data.ctypes.data,
                np.array([0, min(1, data.size)], np.int32), slices.ctypes.data, len(pairs), *scratch_row(),
            )  # fmt: skip
    return count


def verify_logs() -> int:
    """Candidates anywhere in files whose records are hostile, for many keys and for one."""
    count = 0
    text, number_of_offsets = np.frombuffer(b"t#k1", np.uint8), 23
    out = np.empty(number_of_offsets, np.int64)
    for i, content in enumerate(hostile_logs()):
        if i % 2 or not content:
            continue
        for data in placed(content):
            count += 1
            around = [_BASE + _RANDOM.randrange(-9, len(content) + 9) for _ in range(number_of_offsets - 3)]
            offsets = np.array([_BASE, *around, 2**63 - 1, -(2**63)], np.int64)
            log_map = map_of(data)
            log = np.array([log_map.ctypes.data, 0], np.int64)
            end = _BASE + len(content)
            verify_keys(
                log, _BASE, end, 1 << 16, text.ctypes.data, 1, text.ctypes.data, np.array([2, 5], np.int32),
                np.zeros(offsets.size, np.int32), offsets, *np.empty((3, offsets.size), np.int64),
                np.empty(offsets.size, np.uint8), *scratch_row(),
            )  # fmt: skip
            index = chain_of("t", "k1", offsets.tolist())
            index_map = map_of(index)
            topic = np.array(TopicFields(int(topic_hash(b"t")), text.ctypes.data, 1), np.int64)
            file = np.array(IndexFields(index_map.ctypes.data, 1, offsets.size + 1, 0), np.int64)
            place = np.array(LogFields(log.ctypes.data, log.size, _BASE, 1 << 16), np.int64)
            find_key(
                topic.ctypes.data, text.ctypes.data + 2, 2, file.ctypes.data, place.ctypes.data, end, 0, 2**62,
                out.ctypes.data, 0, out.size,
            )  # fmt: skip
    return count


def chain_of(topic: str, key: str, offsets: list[int]) -> Array:
    """An index file of one slot, whose chain leads a key to each of these offsets."""
    entries = [IndexEntry(key_hash(topic, key), offset, 0, i) for i, offset in enumerate(offsets)]
    head = bytes(HEADER_SIZE) + struct.pack(">i", len(offsets)) + bytes(ENTRY_SIZE)
    return np.frombuffer(head + b"".join(map(encode_entry, entries)), np.uint8)


def index_files() -> int:
    """Chains through hostile slots and entries, and puts into such files."""
    slots, capacity = 7, 30
    size = entry_position(slots, capacity)
    hashes = np.array([*range(20), 2**31 - 1, -(2**31), -1], np.int32)
    keys, offsets = np.empty(4000, np.int32), np.empty(4000, np.int64)
    for i in range(1500):
        content = bytearray(_RANDOM.randbytes(size))
        for at in range(40, size - 3, 4):
            if i % 3 and _RANDOM.random() < 0.7:
                content[at : at + 4] = struct.pack(">i", _RANDOM.choice([*range(capacity + 2), *_EXTREMES]))
        for data in placed(bytes(content)):
            wanted = np.full(hashes.size, 100, np.int32)
            file = map_of(data)
            find_entries(
                file.ctypes.data, slots, capacity, 0, -(2**62), 2**62, hashes, wanted, keys.size, keys, offsets
            )
            header = np.array([_RANDOM.choice(_EXTREMES) for _ in range(6)], np.int64)
            times = np.array([_RANDOM.choice([0, 2**63 - 1, -(2**63), 10**12]) for _ in hashes], np.int64)
            address = data.ctypes.data
            entries = address + entry_position(slots, 0)
            put_keys(file.ctypes.data, address + 40, entries, slots, capacity, header, hashes, times, times, 0)
    return 3000


def pull_units() -> int:
    """`select_units` and `select_run` over random units: what it takes lies in the log and in one file."""
    answer = np.empty(PULL_RESULT_COUNT + 82, np.int64)
    limits = np.array(SelectLimits(4096, _BASE + 5000, 40, 1 << 27, 40, 1 << 27), np.int64)
    for _ in range(2000):
        places = [0, -1, 2**63 - 1, -(2**63), *(_BASE + _RANDOM.randrange(-5, 5100) for _ in range(6))]
        units = [(_RANDOM.choice(places), _RANDOM.choice(_EXTREMES), _RANDOM.randrange(-2, 3)) for _ in range(40)]
        tags = _GUARDED.at_start(struct.pack("=ii", 0, 1))
        data = _GUARDED.at_end(b"".join(encode_unit(*unit) for unit in units))
        select_units(
            data.ctypes.data, 40, _BASE, _BASE + 5000, tags.ctypes.data, 2, 40, 1 << 27, limits.ctypes.data,
            answer.ctypes.data,
        )  # fmt: skip
        for offset, size in answer[PULL_RESULT_COUNT:].reshape(-1, 2)[: answer[0]].tolist():
            assert _BASE <= offset < offset + size <= _BASE + 5000
            assert offset // 4096 == (offset + size - 1) // 4096
        taken = select_run(data.ctypes.data, 40, 0, _BASE, _BASE + 5000, 40, 1 << 27, limits.ctypes.data)[0]
        assert all(_BASE <= offset < offset + size <= _BASE + 5000 for offset, size, _ in units[:taken])
    return 2000


def ext_units() -> int:
    """Addresses that point anywhere, into ext files whose units have any size."""
    for _ in range(1500):
        size = _RANDOM.choice([20, 21, 64, 128])
        content = bytearray(_RANDOM.randbytes(size))
        for at in range(0, size - 20, 7):
            content[at : at + 2] = struct.pack(">h", _RANDOM.choice([0, -1, 19, 20, size - at, size - at + 1, 0x7FFF]))
            content[at + 18 : at + 20] = struct.pack(">h", _RANDOM.choice([0, -1, 1, size - at - 20]))
        places = [0, -1, 2**63 - 1, -(2**63), -(2**31) - 1, *(-(2**63) + p for p in range(size + 2))]
        units = b"".join(encode_unit(0, 1, _RANDOM.choice(places)) for _ in range(30))
        file, begin = _GUARDED.at_end(bytes(content)), 0
        file_map = map_of(file)
        resolved = np.frombuffer(units, np.uint8).copy()
        while begin < 30:
            begin = 1 + resolve_tags_codes(resolved.ctypes.data, begin, 30, file_map.ctypes.data, 0)
    return 1500


def further_queues() -> int:
    """Lists of queues and offsets that end where the record, and the memory, ends."""
    scanner = RecordScanner(8)
    pieces = [
        b"INNER_MULTI_DISPATCH",
        b"INNER_MULTI_QUEUE_OFFSET",
        b"\x01",
        b"\x02",
        b",",
        b"%LMQ%a",
        b"7",
        b"\xf0\x9f",
    ]
    for _ in range(1500):
        text = b"".join(_RANDOM.choice(pieces) for _ in range(_RANDOM.randrange(12)))
        if _RANDOM.random() < 0.5:
            text = b"INNER_MULTI_QUEUE_OFFSET\x017,7\x02INNER_MULTI_DISPATCH\x01" + text.replace(b"\x02", b"")
        for data in placed(pack_log([replace(records(1)[0], properties=text)], _BASE)):
            add_multi_dispatch_rows(scanner.scan(data, _BASE), enable_lmq=True)
    return 3000


def texts() -> int:
    """Hashes, sums and UTF-8 checks of slices that end where the memory ends."""
    pieces = [b"a" * 17, "订单🚀".encode(), b"\xf0\x9f\x9a", b"\xe2\x82", b"\xc3", b"\xff", b"", b"\xf4", b"\xe0\xa0"]
    count = 0
    for size in range(1, 120):
        for _ in range(6):
            content = (_RANDOM.randbytes(size) + b"".join(_RANDOM.sample(pieces, 3)))[-size:]
            for data in placed(content):
                count += 1
                begins = np.arange(len(content) + 1, dtype=np.int64)
                sizes = len(content) - begins
                sums, hashes = np.empty(begins.size, np.uint32), np.empty(begins.size, np.int32)
                for by_tables in (False, True):
                    crc32_slices(data.ctypes.data, begins, sizes, sums, by_tables)
                java_hash_slices(np.uint32(0), data.ctypes.data, begins, sizes, hashes)
                cut = _RANDOM.randrange(len(content) + 1)
                for begin in (0, 1):
                    next_invalid_text(data, np.array([0, cut, len(content)], np.int32), begin)
    return count


def encode_columns() -> int:
    """Texts that end where the memory ends, written into a buffer that ends there too."""
    source = Guarded(1 << 16)
    none, host_offsets = np.zeros(4, np.int32), np.array([0, 8], np.int32)
    for size in range(1, 400):
        text = source.at_end(bytes(range(65, 91)) * 16)[-size:]
        offsets = np.array([0, size], np.int32)
        list_of_one, host, v1 = np.array([0, 1], np.int32), source.at_start(bytes(8)), np.zeros(1, np.uint8)
        addresses = dict.fromkeys(ADDRESSES, 0) | {
            "queue_topic": none.ctypes.data, "queue_id": none.ctypes.data, "topic_is_v2": v1.ctypes.data,
            "keys_lists": list_of_one.ctypes.data, "properties_lists": list_of_one.ctypes.data,
            "born_host_offsets": host_offsets.ctypes.data, "born_hosts": host.ctypes.data,
        }  # fmt: skip
        for name, column in (
            ("topic_offsets", "topics"), ("body_offsets", "bodies"), ("tags_offsets", "tags"), ("keys_offsets", "keys"),
            ("unique_key_offsets", "unique_keys"), ("name_offsets", "names"), ("value_offsets", "values"),
        ):  # fmt: skip
            addresses[name], addresses[column] = offsets.ctypes.data, text.ctypes.data
        vector = np.array([addresses[name] for name in ADDRESSES], np.int64)
        sizes, properties_sizes = np.empty(1, np.int32), np.empty(1, np.int32)
        assert measure(vector, 1, 1 << 20, 8, 0, sizes, properties_sizes) == -1
        for room in (int(sizes[0]), int(sizes[0]) - 1):
            out = _GUARDED.at_end(bytes(room))
            positions = np.empty(2, np.int32)
            rows = encode(vector, 0, 1, sizes, properties_sizes, host.ctypes.data, 8, out.ctypes.data, room, positions)
            assert rows == (room == sizes[0])
    return 399


def ack_frames() -> int:
    """Frames that are whole, cut at every length, or damaged, and a log that ends where the memory ends."""
    header = (b'{"code":1,"e":"', b" ", b" ", b" ", b" h ", b'","offset":"', b'","opaque":', b"}")

    def ack(numbers: Sequence[int]) -> bytes:
        start, pop_time, _, revive_qid, offset, _, _, slot_ms = numbers
        body = b'{"ao":%d,"pt":%d,"so":%d}' % (offset, pop_time, start)
        return Record(body=body, topic=b"t", properties=b"UNIQ_KEY\x01%d@%d,%d" % (offset, revive_qid, slot_ms)).pack()

    size = len(ack([10**17] * NUMBERS))
    answers, logs = Guarded(1 << 12), Guarded(1 << 14)
    form = AckForm(
        texts=header, numbers=(0, 1, 2, 3, 5, 6), record=RecordForm(ack, NUMBERS), queue=0, answer=(b"{", b"}"),
        answers=answers.at_end(bytes(100)),
    )  # fmt: skip
    form.begin(1, (0, 10**18), 8, 10**17, (0, 2 * 10**18))
    next_offsets, count, taken = np.zeros(1, np.int64), 0, 0
    for _ in range(60):
        whole = b""
        for _ in range(_RANDOM.randrange(1, 5)):
            numbers = [b"%d" % _RANDOM.choice([0, 7, 10, 999, *[10**17] * 8, 10**18]) for _ in range(7)]
            numbers[3] = b"%d" % _RANDOM.choice([0, 7, 7, 7, 8])
            text = b"".join(text + number for text, number in zip(header, [*numbers, b""], strict=True))
            whole += struct.pack(">ii", len(text) + 4, len(text)) + text
        contents = [whole[:size] for size in range(len(whole) + 1)] + [damaged(whole) for _ in range(100)]
        for content in contents:
            for data in placed(content):
                count += 1
                room = logs.at_end(bytes(_RANDOM.choice([0, 1, size - 5 * 17, size, 2 * size, 1000])))
                taken += form.take(
                    data.ctypes.data,
                    data.ctypes.data + data.size,
                    LogRoom(room.data, room.ctypes.data, 0, 1, next_offsets.ctypes.data),
                )
                form.take_answers()
    assert taken > 100, taken
    return count


def pull_frames() -> int:
    """Pulls that are whole, cut at every length, or damaged; answers that end where the memory ends."""
    stored, answers, reader, count, read = Guarded(1 << 12), Guarded(1 << 14), PullReader(), 0, 0
    texts = AnswerTexts([b"{", *[b"x" * 100] * 3, b"}"])
    for _ in range(100):
        numbers = [_RANDOM.choice([0, 7, 10, 999, 10**17, 10**17, 10**18, -1, 2**63]) for _ in range(2)]
        fields = {"topic": "t" * _RANDOM.choice([1, 9, 20, 900]), "queueOffset": numbers[0], "commitOffset": numbers[1]}
        if _RANDOM.random() < 0.2:
            fields["maxOffset"] = 5
        texts_of = {name: str(value) for name, value in fields.items()}
        frame = encode_command(RemotingCommand(11, _RANDOM.choice([0, 8, 2**31 - 1]), ext_fields=texts_of))
        huge = frame[:4] + struct.pack(">i", _RANDOM.choice(_EXTREMES)) + frame[8:]
        cuts = [frame[:size] for size in range(len(frame))]
        for content in (frame, huge, *cuts, *(damaged(frame) for _ in range(30))):
            for data in placed(content):
                count += 1
                form = reader.read(data.ctypes.data, data.ctypes.data + data.size)
                if form is not None:
                    read += 1
                    assert form.count(NUMBER) == 3
                    assert reader.end - data.ctypes.data == frame_size(content)
        records = stored.at_end(_RANDOM.randbytes(_RANDOM.randrange(1, 2000)))
        cut = _RANDOM.randrange(records.size)
        segments = np.array([records.ctypes.data, cut, records.ctypes.data + cut, records.size - cut], np.int64)
        numbers = [_RANDOM.choice([0, 9, 10, 2**63 - 1]) for _ in range(4)]
        size = 8 + 302 + sum(len(str(number)) for number in numbers) + records.size
        room = answers.at_end(bytes(size))
        assert write_found(texts.address, *numbers, segments.ctypes.data, 2, room.ctypes.data) == size
        assert room[-records.size :].tobytes() == records.tobytes()
    assert read > 200
    return count


def send_frames() -> int:
    """Streams of sends that are whole, cut anywhere, or damaged, with little room in the log and for answers."""
    data, logs, answers, scratch = Guarded(1 << 18), Guarded(1 << 20), Guarded(1 << 18), Guarded(SCRATCH_SIZE)
    kernel = SendFrames(
        store_host=bytes(8), properties=(b"MSG_REGION\x01R\x02", b"CLUSTER\x01c\x02"),
        answer_fields=b'"MSG_REGION":"R"', answer_end=b"}", unique_prefix=b"A" * 20, max_body_size=4 << 20,
        schedule=(SCHEDULE_TOPIC, np.arange(6, 6 + _LEVELS, dtype=np.int32)),
        timers=(b"timers", np.array([6 + _LEVELS], np.int32)), max_delay_ms=100_000, precision_ms=1000,
        handle=(b"v1 ", b" broker-a "),
        is_sync=False, takes_batch_properties=True,
    )  # fmt: skip
    own_scratch = scratch.at_end(bytes(SCRATCH_SIZE))
    kernel.words[S_SCRATCH // 8] = own_scratch.ctypes.data
    for first, (topic, queues) in zip((0, 4), TOPICS, strict=True):
        kernel.topics.add_topic(topic, np.arange(first, first + queues, dtype=np.int32))
    next_offsets, count, taken = np.zeros(16, np.int64), 0, 0
    frames = list(send_stream(_RANDOM.randrange(1000), 400))
    for number, frame in enumerate(frames):
        whole = b"".join(frames[number : number + _RANDOM.randrange(1, 4)])
        cuts = [whole[: _RANDOM.randrange(len(whole))] for _ in range(5)]
        for content in (whole, *cuts, *(damaged(frame) for _ in range(10))):
            for one in (data.at_end(content), data.at_start(content)):
                room = logs.at_end(bytes(_RANDOM.choice([0, 50, 200, 1000, 5000, 40_000])))
                told = answers.at_end(bytes(_RANDOM.choice([0, 2047, 2048, 5000, 200_000])))
                kernel.words[S_ANSWERS // 8] = told.ctypes.data
                kernel.words[S_ANSWERS_END // 8] = told.ctypes.data + told.size
                kernel.begin(bytes(8), 0, _NOW_MS)
                begin = one.ctypes.data
                log = LogRoom(room.data[: max(room.size - 8, 0)], room.ctypes.data, 1000, 1, next_offsets.ctypes.data)
                kernel.take(begin, begin + one.size, log)
                assert begin <= kernel.at <= begin + one.size
                stored = room[: kernel.log_address - room.ctypes.data].tobytes()
                check_stored(stored, content[: kernel.at - begin])
                count, taken = count + 1, taken + (kernel.at > begin)
    assert taken > count / 20
    return count


def send_backs() -> int:
    """Requests and records that are whole, cut anywhere, or damaged, with little room in the log and for answers."""
    data, logs, stored = Guarded(1 << 14), Guarded(1 << 14), Guarded(1 << 14)
    kernel = SendBacks(
        store_host=bytes(8),
        schedule_topic=b"SCHEDULE",
        numbers=np.arange(3, dtype=np.int32),
        answer=(b"{", b"}"),
        seed=1,
    )
    kernel.set_target("%RETRY%g", 2, 3, ("%DLQ%g", 3))
    next_offsets, places = np.zeros(4, np.int64), np.empty((1, PLACE_WORDS), np.int64)
    offsets, runs, count, taken = np.array([1000]), np.empty(2, np.int64), 0, 0
    taken_over = b"RETRY_TOPIC\x01t\x02WAIT\x01x\x02REAL_QID\x019\x02DELAY\x01" + b"1" * 40
    texts = b"", b"A\x01v\x02", b"ORIGIN_MESSAGE_ID\x01", taken_over
    for _ in range(200):
        fields = {"offset": "1000", "group": "g", "delayLevel": _RANDOM.choice(["0", "-1", "2", "99"])}
        frame = encode_command(
            RemotingCommand(
                RequestCode.CONSUMER_SEND_MSG_BACK, _RANDOM.randrange(1 << 31), ext_fields=fields, version=479
            )
        )
        record = Record(
            body=bytes(_RANDOM.randrange(200)), topic=b"t", properties=_RANDOM.choice(texts), commit_log_offset=1000,
            reconsume_times=_RANDOM.randrange(5),
        ).pack()  # fmt: skip
        for content in (frame, frame[: _RANDOM.randrange(len(frame))], *(damaged(frame) for _ in range(5))):
            for one in (data.at_end(content), data.at_start(content)):
                count += 1
                kernel.read(one.ctypes.data, one.ctypes.data + one.size)
        whole = data.at_end(frame)
        cut = record[: _RANDOM.randrange(MIN_RECORD_SIZE, len(record) + 1)]
        for content in (record, cut, *(damaged(record) for _ in range(20))):
            for one in (stored.at_end(content), stored.at_start(content)):
                if one.size < MIN_RECORD_SIZE:
                    continue
                count += 1
                assert kernel.read(whole.ctypes.data, whole.ctypes.data + whole.size) == 1
                begin, end, at = one.ctypes.data, 1000 + one.size, offsets.ctypes.data
                assert proven_records.run_heads(at, 8, 1, 1000, end, begin - 1000, runs.ctypes.data) == 1
                if not proven_records.measure_records(at, 8, 1, end, runs.ctypes.data):
                    continue
                if not proven_records.place_records(runs.ctypes.data, 1, places.ctypes.data):
                    continue
                room = logs.at_end(bytes(_RANDOM.choice([0, 100, 300, 600, 2000])))
                log = LogRoom(room.data[: max(room.size - 8, 0)], room.ctypes.data, 5000, 1, next_offsets.ctypes.data)
                number = kernel.append(0, runs.ctypes.data, 1, log)
                written = room[: kernel.log_address - room.ctypes.data].tobytes()
                assert len(written) == (unpack_record(written, 0)[0][0] if number else 0)
                assert bool(kernel.take_answers()) == bool(number)
                taken += number
    assert taken > count / 20
    return count


def check_stored(log: bytes, frames: bytes) -> None:
    """The records are what the plain decoder reads in the frames, and it refuses none of them."""
    position = begin = 0
    while begin < len(frames):
        end = begin + frame_size(frames[begin : begin + 8])
        command = decode_command(frames[begin:end])
        header = decode_send_header(command.code, command.ext_fields)
        bodies = [one.body for one in decode_batch(command.body)] if header.batch else [command.body]
        properties = read_properties(header.properties or "")
        level = 0 if header.batch else min(delay_level(properties), _LEVELS)
        due_ms = None if header.batch or level else deliver_time(properties, _NOW_MS)
        place = (SCHEDULE_TOPIC.decode(), level - 1) if level else (header.topic, header.queue_id)
        kept = {"DELAY": str(level), "REAL_TOPIC": header.topic, "REAL_QID": str(header.queue_id)} if level else {}
        if due_ms is not None and due_ms > _NOW_MS:
            place = "timers", 0
            out_ms = str(out_time(due_ms, 1000))
            kept = {"TIMER_OUT_MS": out_ms, "REAL_TOPIC": header.topic, "REAL_QID": str(header.queue_id)}
        for body in bodies:
            head, at = unpack_record(log, position)
            if kept:
                waiting = decode_properties(log[at[4] : at[5]])
                assert waiting.items() >= (properties | kept).items(), command
            found = (log[at[2] : at[3]].decode(), head[3], log[at[0] : at[1]], head[7], head[8])
            assert found == (*place, body, header.sys_flag, header.born_timestamp), command
            position += head[0]
        begin = end
    assert position == len(log)


def one_byte_too_far() -> int:
    """A call that must die: the sum of one byte more than there is."""
    data = _GUARDED.at_end(b"a")
    crc32_slices(data.ctypes.data, np.zeros(1, np.int64), np.array([2]), np.empty(1, np.uint32), True)
    return 1


def one_byte_before() -> int:
    """A call that must die: the sum from one byte before the first."""
    data = _GUARDED.at_start(b"a")
    crc32_slices(data.ctypes.data, np.array([-1]), np.array([2]), np.empty(1, np.uint32), True)
    return 1


SUBJECTS: dict[str, Callable[[], int]] = {
    subject.__name__: subject
    for subject in (
        scan_logs,
        verify_logs,
        index_files,
        pull_units,
        ext_units,
        further_queues,
        texts,
        encode_columns,
        ack_frames,
        pull_frames,
        send_frames,
        send_backs,
    )
}
OVERRUNS: dict[str, Callable[[], int]] = {subject.__name__: subject for subject in (one_byte_too_far, one_byte_before)}


def guarded(seed: int, *subjects: str) -> subprocess.CompletedProcess[str]:
    """Run subjects in a process of their own; a seed draws their bytes."""
    command = [sys.executable, "-m", "tests.support.guarded_memory", str(seed), *subjects]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=300, check=False)


if __name__ == "__main__":
    _RANDOM.seed(int(sys.argv[1]))
    for name in sys.argv[2:]:
        print(name, (SUBJECTS | OVERRUNS)[name](), flush=True)
