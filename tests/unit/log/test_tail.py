"""LogTail: where a log goes on, and the proof that it is the log that was read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reput.errors import ConfigError, CorruptRecordError, DataLossError
from reput.files import Entry, File, FileLayer
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record import encode_record
from reput.formats.record_layout import BLANK_SIZE
from reput.log import StoreDirectory
from reput.log.resume_points import NO_LIMIT, ResumePoint, TailLimit
from reput.log.scan import OnDamage
from reput.log.tail import LogTail
from tests.support.damage import at, overwrite
from tests.support.fixtures import LogWriter

FILE_SIZE = 4096
MESSAGES = [Message("orders", bytes([i]) * (37 * i % 300), keys=(f"k-{i}",)) for i in range(60)]
START = ResumePoint(0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


class WatchedFiles(FileLayer):
    """The disk, and what was opened and listed of it."""

    def __init__(self) -> None:
        self.deeds: list[str] = []

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        self.deeds.append(f"open {path}")
        return super().open(path, **options)

    def list_directory(self, path: str) -> list[Entry]:
        self.deeds.append(f"list {path}")
        return super().list_directory(path)


def tail(store: Path) -> LogTail:
    return LogTail(StoreDirectory(store))


def log_path(store: Path, offset: int) -> Path:
    return store / "commitlog" / offset_to_file_name(offset - offset % FILE_SIZE)


def record(offset: int, body: bytes = b"", store_timestamp: int = 1, **fields: object) -> bytes:
    host = encode_host("10.0.0.1:10911")
    message = Message("orders", body, **fields)  # type: ignore[arg-type]
    return encode_record(
        message,
        queue_id=0,
        queue_offset=0,
        commit_log_offset=offset,
        store_timestamp=store_timestamp,
        store_host=host,
        born_timestamp=1,
        born_host=host,
    )


def cut(store: Path, offset: int) -> None:
    """Lose what is at and behind an offset, as a power cut and the recovery after it do."""
    overwrite(*at(store, offset), bytes(FILE_SIZE - offset % FILE_SIZE))
    for path in sorted((store / "commitlog").iterdir()):
        if int(path.name) > offset:
            path.unlink()


class TestAdvance:
    @pytest.mark.parametrize("start", [0, 8 * FILE_SIZE])
    @pytest.mark.parametrize("max_rows", [1, 3, 7, 1000])
    def test_rows_are_counted_over_files(self, store: Path, write_log: LogWriter, start: int, max_rows: int) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE, start=start)
        log, point, lasts = tail(store), ResumePoint(start), []
        while (end := log.advance(point, TailLimit(max_rows=max_rows))) is not point:
            assert end.last is not None
            lasts.append(end.last.offset)
            point = end
        assert lasts == [*offsets[max_rows - 1 : -1 : max_rows], offsets[-1]]

    @pytest.mark.parametrize("max_bytes", [1, 500, 5000, 1 << 30])
    def test_bytes_are_not_exceeded_but_by_one_record(self, store: Path, write_log: LogWriter, max_bytes: int) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        log, point, read = tail(store), START, []
        while (end := log.advance(point, TailLimit(max_bytes=max_bytes))) is not point:
            taken = [offset for offset in offsets if point.offset <= offset < end.offset]
            assert end.offset - point.offset <= max_bytes + BLANK_SIZE + FILE_SIZE // 8 or len(taken) == 1
            read += taken
            point = end
        assert read == offsets

    def test_without_a_limit_it_is_the_end_of_the_log(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE, spare_files=2)
        end = tail(store).advance(START)
        assert end.last is not None
        assert end.last.offset == offsets[-1]
        assert end == tail(store).advance(START, TailLimit(max_rows=1000)) == tail(store).latest()
        assert tail(store).advance(end) is end

    @pytest.mark.parametrize("count", [1, 5, 30, 60])
    @pytest.mark.parametrize("step", [400, 700, 2000, FILE_SIZE])
    def test_the_near_end_is_a_record_with_few_records_after_it(
        self, store: Path, write_log: LogWriter, count: int, step: int
    ) -> None:
        offsets = write_log(MESSAGES[:count], FILE_SIZE, spare_files=1)
        last_file = max(offset - offset % FILE_SIZE for offset in offsets)
        for begin in offsets:
            near = tail(store).near_end(begin, step)
            assert near in offsets
            assert near >= max(begin, last_file)
            assert offsets[-1] - near <= 2 * step
            assert tail(store).advance(ResumePoint(near)) == tail(store).latest()

    def test_a_full_file_is_not_read_where_the_next_one_has_begun(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        end = tail(store).advance(START)
        overwrite(*at(store, 0), b"\xff" * 2000)
        assert tail(store).advance(START) == end
        with pytest.raises(CorruptRecordError, match="damaged at offset 0"):
            tail(store).advance(START, TailLimit(max_rows=len(offsets)))

    def test_the_bounds_of_time_and_offset_end_it(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        log = tail(store)
        assert log.advance(START, TailLimit(newest_ms=offsets[20])).offset == offsets[21]  # the time is the offset
        assert log.advance(START, TailLimit(end_offset=offsets[20])).offset == offsets[20]
        assert log.advance(START, TailLimit(newest_ms=-1)) is START
        assert log.advance(START, TailLimit(end_offset=0)) is START

    def test_what_is_appended_comes_and_what_is_half_written_does_not(self, store: Path, write_log: LogWriter) -> None:
        write_log(MESSAGES[:5], FILE_SIZE)
        log = tail(store)
        end = log.advance(START)
        new = record(end.offset, b"x" * 100, keys=["k"])
        for size in range(1, len(new)):
            overwrite(*at(store, end.offset), new[:size])
            assert log.advance(end) is end, size
        overwrite(*at(store, end.offset), new)
        assert log.advance(end).offset == end.offset + len(new)

    def test_a_properties_end_of_zero_counts_when_a_record_follows(self, store: Path, write_log: LogWriter) -> None:
        write_log(MESSAGES[:5], FILE_SIZE)
        log = tail(store)
        end = log.advance(START)
        odd = record(end.offset, b"x", properties={"a": "\0"})
        overwrite(*at(store, end.offset), odd)
        if odd[-1]:
            odd = odd[:-1] + b"\0"
            overwrite(*at(store, end.offset), odd)
        assert log.advance(end) is end
        following = record(end.offset + len(odd), b"y", keys=["k"])
        overwrite(*at(store, end.offset + len(odd)), following)
        assert log.advance(end).offset == end.offset + len(odd) + len(following)

    def test_damage_is_told_and_a_torn_tail_is_the_end(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        overwrite(*at(store, offsets[-1]), b"\x00\x00\x00\x50\xda\xa3")
        log = tail(store)
        end = log.advance(START)
        assert end.offset == offsets[-1]
        assert log.advance(end) is end
        assert log.advance(end) is end
        overwrite(*at(store, offsets[-7] + 88), b"?")
        log = tail(store)
        end = log.advance(ResumePoint(offsets[-8]))
        assert end.offset == offsets[-7]
        with pytest.raises(CorruptRecordError, match="body CRC"):
            log.advance(end)

    @pytest.mark.parametrize("damaged", [1, 2])
    def test_damage_where_the_last_file_begins_is_told_from_the_latest_position(
        self, store: Path, write_log: LogWriter, damaged: int
    ) -> None:
        """With the last record of the file before, too, and from its start on."""
        offsets = write_log(MESSAGES[:55], FILE_SIZE)
        first = offsets.index(StoreDirectory(store).log_files()[-1].start_offset)
        for offset in offsets[first + 1 - damaged : first + 1]:
            overwrite(*at(store, offset + 88), b"?")
        log = tail(store)
        for end in (log.latest(), log.advance(START)):
            assert end.offset == offsets[first + 1 - damaged]
            with pytest.raises(CorruptRecordError, match="body CRC"):
                tail(store).advance(end)
        skipping = LogTail(StoreDirectory(store), on_damage=OnDamage.SKIP)
        end = skipping.advance(skipping.latest())
        assert end.last is not None
        assert end.last.offset == offsets[-1]

    def test_zeros_before_a_record_are_told_once_a_reader_comes_there(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        overwrite(*at(store, offsets[-3]), bytes(offsets[-2] - offsets[-3]))
        log = tail(store)
        with pytest.raises(CorruptRecordError, match=f"damaged at offset {offsets[-3]}"):
            log.advance(log.advance(ResumePoint(offsets[-4])))

    def test_an_idle_look_opens_one_file(self, store: Path, write_log: LogWriter) -> None:
        write_log(MESSAGES, FILE_SIZE, spare_files=1)
        files = WatchedFiles()
        log = LogTail(StoreDirectory(store, files=files))
        end = log.advance(START)
        log.advance(end)
        files.deeds.clear()
        assert log.advance(end) is end
        assert files.deeds == [f"open {log_path(store, end.offset)}"]


class TestCheck:
    def test_a_log_that_only_grew_is_the_same(self, store: Path, write_log: LogWriter) -> None:
        write_log(MESSAGES[:30], FILE_SIZE)
        end = tail(store).advance(START)
        write_log(MESSAGES, FILE_SIZE)
        tail(store).check(end)

    def test_a_log_that_was_cut_is_told_with_file_and_offset(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES[:30], FILE_SIZE)
        end = tail(store).advance(START)
        cut(store, offsets[-3])
        with pytest.raises(DataLossError, match=f"found: no record, and the log ends at offset {offsets[-3]}") as told:
            tail(store).check(end)
        assert str(log_path(store, offsets[-1])) in str(told.value)
        assert f"offset {offsets[-1]}" in str(told.value)

    def test_other_records_in_the_place_of_lost_ones_are_told(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES[:30], FILE_SIZE)
        end = tail(store).advance(START)
        last = log_path(store, offsets[-1]).read_bytes()[offsets[-1] % FILE_SIZE :][: end.offset - offsets[-1]]
        other = bytearray(last)
        other[63] ^= 1  # the store timestamp
        overwrite(*at(store, offsets[-1]), bytes(other))
        with pytest.raises(
            DataLossError, match=r"a record stored at [0-9T:.-]+Z with header CRC 0x[0-9a-f]{8}; found: "
        ):
            tail(store).check(end)
        overwrite(*at(store, offsets[-1]), last)
        tail(store).check(end)

    def test_a_log_that_is_shorter_by_files_is_told(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        end = tail(store).advance(START)
        cut(store, offsets[3])
        with pytest.raises(DataLossError, match=f"read on from {end.offset}.* the files have 0 to {FILE_SIZE} now"):
            tail(store).check(end)

    def test_what_retention_deleted_before_it_was_read_is_told(self, store: Path, write_log: LogWriter) -> None:
        write_log(MESSAGES, FILE_SIZE)
        log = tail(store)
        point = log.advance(START, TailLimit(max_rows=5))
        log_path(store, 0).unlink()
        with pytest.raises(DataLossError, match=f"{log_path(store, 0)}: .* read on from {point.offset}"):
            log.check(point)
        assert log.resume(point) == ResumePoint(FILE_SIZE)

    def test_what_retention_deleted_after_it_was_read_is_no_loss(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        log = tail(store)
        in_first_file = sum(offset < FILE_SIZE for offset in offsets)
        point = log.advance(START, TailLimit(max_rows=in_first_file))
        assert point.offset == FILE_SIZE
        log_path(store, 0).unlink()
        log.check(point)
        assert log.advance(point) == tail(store).latest()


class TestResume:
    def test_it_goes_on_at_the_first_record_stored_after_the_last_that_was_read(
        self, store: Path, write_log: LogWriter
    ) -> None:
        offsets = write_log(MESSAGES[:30], FILE_SIZE)
        end = tail(store).advance(START)  # the last one's time is its offset
        cut(store, offsets[25])
        assert tail(store).resume(end).offset == offsets[25]
        new = record(offsets[25], b"n" * 500, end.offset + 1, keys=["k"])
        overwrite(*at(store, offsets[25]), new)
        assert tail(store).resume(end).offset == offsets[25]
        assert tail(store).remainder(ResumePoint(offsets[20]), end) == (offsets[20], offsets[25])
        assert tail(store).remainder(end, ResumePoint(end.offset + 500)) == (end.offset, end.offset)


class TestBegin:
    def test_a_time_is_found_by_the_record(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE, spare_files=1)
        log = tail(store)
        for i in range(1, len(offsets)):
            assert log.since(offsets[i]).offset in (offsets[i], offsets[i] - offsets[i] % FILE_SIZE)
            assert log.since(offsets[i - 1] + 1).offset == log.since(offsets[i]).offset
        assert log.since(-5).offset == 0
        assert log.since(1 << 60) == log.latest()

    def test_the_end_of_what_was_stored_up_to_a_time_is_found(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        for i in range(len(offsets) - 1):
            assert offsets[i] < tail(store).latest(offsets[i]).offset <= offsets[i + 1]
        assert tail(store).latest(-1) == START

    def test_an_offset_must_be_the_start_of_a_record_or_the_end(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        log = tail(store)
        for offset in (*offsets, log.latest().offset):
            assert log.at(offset) == ResumePoint(offset)
        with pytest.raises(ConfigError, match=f"no record starts at offset 1; the next is at {offsets[1]}"):
            log.at(1)
        with pytest.raises(ConfigError, match="no file has the offset 99999"):
            log.at(99_999)

    def test_a_store_without_messages_begins_and_ends_at_0(self, tmp_path: Path) -> None:
        (tmp_path / "commitlog").mkdir()
        log = tail(tmp_path)
        assert log.earliest() == log.latest() == log.since(0) == log.at(0) == START
        log.check(START)
        assert log.advance(START, NO_LIMIT) is START


class TestSplits:
    @pytest.mark.parametrize("split_bytes", [1, 600, FILE_SIZE])
    def test_they_begin_at_records_and_meet(self, store: Path, write_log: LogWriter, split_bytes: int) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        splits = tail(store).splits(offsets[3], offsets[-2], split_bytes)
        assert {split.begin for split in splits} <= set(offsets)
        assert splits[0].begin == offsets[3]
        assert splits[-1].end == offsets[-2]
        assert all(a.end == b.begin for a, b in pairwise(splits))

    def test_a_file_that_is_gone_is_told(self, store: Path, write_log: LogWriter) -> None:
        offsets = write_log(MESSAGES, FILE_SIZE)
        log_path(store, 0).unlink()
        with pytest.raises(DataLossError, match="to be read from offset 0"):
            tail(store).splits(0, offsets[-1], 600)
