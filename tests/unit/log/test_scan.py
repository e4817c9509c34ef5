from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from reput.errors import CorruptRecordError, StoreError
from reput.files import DISK, File, FileLayer
from reput.formats.message import Message
from reput.formats.record import encode_blank
from reput.formats.record_layout import BODY, BODY_CRC, MAGIC_CODE, PHYSICAL_OFFSET, TOTAL_SIZE, MagicCode, record_size
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import ScanLevel
from reput.log import StoreDirectory
from reput.log.scan import OnDamage, SplitScan, scan_split
from reput.log.splits import Split, SplitStop, check_stitches, plan_splits
from tests.support.damage import at, overwrite
from tests.support.fixtures import LogWriter

FILE_SIZE = 4096
BLANK_MAGIC = encode_blank(8)[MAGIC_CODE:]
MESSAGES = [Message("orders", bytes([i]) * (37 * i % 300), keys=(f"k-{i}",)) for i in range(60)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def log_path(store: Path, offset: int) -> Path:
    return store / "commitlog" / f"{offset - offset % FILE_SIZE:020d}"


def scanned(split: Split, **options: object) -> tuple[SplitScan, list[int]]:
    scan = scan_split(split, level=ScanLevel.KEYS, **options)  # type: ignore[arg-type]
    return scan, [offset for columns in scan for offset in columns["commit_log_offset"].tolist()]


def read(store: Path, split_bytes: int = FILE_SIZE, **options: object) -> list[int]:
    """All record offsets by way of splits that were stitched."""
    runs = [scanned(split, **options) for split in plan_splits(StoreDirectory(store).log_files(), split_bytes)]
    while again := check_stitches([scan.result for scan, _ in runs]):
        for i, split in again.items():
            runs[i] = scanned(split, **options)
    return [offset for _, found in runs for offset in found]


@pytest.mark.parametrize("start", [0, 8 * FILE_SIZE])
@pytest.mark.parametrize("window_bytes", [64, 500, 1 << 20])
@pytest.mark.parametrize("max_rows", [1, 7, 1000])
@pytest.mark.parametrize("split_bytes", [90, 1000, FILE_SIZE])
def test_every_record_is_read_once_whatever_the_splits_and_windows(
    store: Path, write_log: LogWriter, start: int, window_bytes: int, max_rows: int, split_bytes: int
) -> None:
    offsets = write_log(MESSAGES, FILE_SIZE, start=start)
    assert read(store, split_bytes, window_bytes=window_bytes, max_rows=max_rows) == offsets


def test_a_record_that_starts_before_the_end_is_read_whole(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, FILE_SIZE)
    file = StoreDirectory(store).log_files()[0]
    scan, found = scanned(Split(file, 0, offsets[3] + 1, is_record_start=True))
    assert found == offsets[:4]
    assert scan.result.end_offset == offsets[4]
    assert scan.stop is SplitStop.SPLIT_END
    scan, found = scanned(Split(file, offsets[3] + 1, offsets[4], is_record_start=False))
    assert (found, scan.begin_offset, scan.end_offset) == ([], None, None)


def test_columns_are_cut_with_their_queues_and_keys(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, FILE_SIZE)
    split = Split(StoreDirectory(store).log_files()[0], 0, offsets[3], is_record_start=True)
    (columns,) = scan_split(split, level=ScanLevel.KEYS)
    assert columns.rows == 3
    assert columns.consumed == offsets[3]
    assert columns.queues() == [(b"orders", 0), (b"orders", 1), (b"orders", 2)]
    assert columns.key_rows.tolist() == [0, 1, 2]


def test_a_body_of_log_records_is_not_taken_for_the_log(store: Path, write_log: LogWriter) -> None:
    """Forged records that even say where they lie fool the search, and the stitches find it out."""
    forged_offsets = write_log(MESSAGES[:8], FILE_SIZE, start=BODY)
    forged = log_path(store, 0).with_name(f"{BODY:020d}")
    body = forged.read_bytes()[: forged_offsets[-1] - BODY] + bytes(16)
    forged.unlink()
    offsets = write_log([Message("orders", body), *MESSAGES], FILE_SIZE)
    (first, second, *_) = plan_splits(StoreDirectory(store).log_files(), 200)
    assert scanned(first)[1] == [0]
    assert scanned(second)[1][0] in forged_offsets
    assert read(store, 200) == offsets


@pytest.mark.parametrize("spare_files", [0, 2])
@pytest.mark.parametrize("split_bytes", [700, FILE_SIZE])
def test_zeros_are_the_end_of_the_log(store: Path, write_log: LogWriter, spare_files: int, split_bytes: int) -> None:
    offsets = write_log(MESSAGES[:10], FILE_SIZE, spare_files=spare_files)
    assert read(store, split_bytes) == offsets


TEARS = [
    (TOTAL_SIZE, b"\0\0\0\0"),
    (TOTAL_SIZE, b"\x7f\xff\xff\xff"),
    (TOTAL_SIZE, b"\0\0\x0f\x00"),
    (TOTAL_SIZE, b"\xff\xff\xff\xff"),
    (MAGIC_CODE, b"\0\0\0\0"),
    (MAGIC_CODE, BLANK_MAGIC),
    (BODY_CRC, b"\x12\x34\x56\x78"),
    (PHYSICAL_OFFSET, b"\0\0\0\0\0\0\0\x01"),
    (84, b"\x7f\xff\xff\xff"),
    (89, b"\xff"),
]


@pytest.mark.parametrize(("position", "data"), TEARS)
@pytest.mark.parametrize("split_bytes", [FILE_SIZE, 600])
def test_a_torn_tail_ends_the_log_quietly(
    store: Path, write_log: LogWriter, position: int, data: bytes, split_bytes: int
) -> None:
    offsets = write_log(MESSAGES[:30], FILE_SIZE, spare_files=2)
    overwrite(*at(store, offsets[-1] + position), data)
    assert read(store, split_bytes) == offsets[:-1]


@pytest.mark.parametrize(("position", "data"), TEARS)
def test_damage_before_a_proven_record_is_told(store: Path, write_log: LogWriter, position: int, data: bytes) -> None:
    offsets = write_log(MESSAGES[:30], FILE_SIZE, spare_files=1)
    overwrite(*at(store, offsets[20] + position), data)
    with pytest.raises(CorruptRecordError) as raised:
        read(store)
    assert raised.value.path == str(log_path(store, offsets[20]))
    assert raised.value.offset == offsets[20]
    assert f"a whole record follows at offset {offsets[21]} of" in raised.value.reason


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (MAGIC_CODE, b"\1\2\3\4", r"magic code: expected daa320a7 or daa320ab, found 01020304"),
        (BODY_CRC, b"\0\0\0\1", r"body CRC: BODYCRC says 1, the body gives \d+"),
        (PHYSICAL_OFFSET + 7, b"\xff", r"own offset: the record lies at \d+, its PHYSICALOFFSET says \d+"),
        (TOTAL_SIZE, b"\0\0\0\x5a", r"size: a record takes 91 bytes or more, TOTALSIZE says 90"),
        (TOTAL_SIZE, b"\0\1\0\0", r"too short: TOTALSIZE says 65536 bytes, \d+ are left"),
    ],
)
def test_damage_is_told_with_what_was_expected_and_found(
    store: Path, write_log: LogWriter, position: int, data: bytes, reason: str
) -> None:
    offsets = write_log(MESSAGES[:30], FILE_SIZE)
    overwrite(*at(store, offsets[9] + position), data)
    with pytest.raises(CorruptRecordError, match=reason):
        read(store)


def test_a_record_that_is_torn_while_a_later_file_goes_on_is_damage(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, FILE_SIZE)
    last_of_first = max(offset for offset in offsets if offset < FILE_SIZE)
    overwrite(*at(store, last_of_first), bytes(FILE_SIZE - last_of_first))
    with pytest.raises(CorruptRecordError, match=f"whole record follows at offset {FILE_SIZE} of {FILE_SIZE:020d}"):
        read(store)


def test_records_behind_empty_files_are_found_too(store: Path, write_log: LogWriter) -> None:
    write_log(MESSAGES[:2], FILE_SIZE, spare_files=1)
    write_log(MESSAGES[:1], FILE_SIZE, start=2 * FILE_SIZE)
    with pytest.raises(CorruptRecordError, match=f"whole record follows at offset {2 * FILE_SIZE}"):
        read(store)


@pytest.mark.parametrize(("position", "data"), [(BODY_CRC, b"\x12\x34\x56\x78"), (TOTAL_SIZE, bytes(20))])
@pytest.mark.parametrize("split_bytes", [700, FILE_SIZE])
@pytest.mark.parametrize(("before", "behind", "spare_files"), [(0, 0, 0), (0, 1, 1), (1, 0, 0), (2, 2, 1)])
def test_damages_in_a_row_over_a_files_border_are_no_end_of_the_log(
    store: Path,
    write_log: LogWriter,
    position: int,
    data: bytes,
    split_bytes: int,
    before: int,
    behind: int,
    spare_files: int,
) -> None:
    """`before` and `behind`: how many are damaged beside the two at the border."""
    offsets = write_log(MESSAGES[:55], FILE_SIZE, spare_files=spare_files)
    path = StoreDirectory(store).log_files()[-1 - spare_files].path
    first = offsets.index(int(Path(path).name))
    begin, end = first - 1 - before, first + 1 + behind
    assert end < len(offsets) - 3, "whole records are to follow"
    for offset in offsets[begin:end]:
        overwrite(*at(store, offset + position), data)
    with pytest.raises(CorruptRecordError, match=f"whole record follows at offset {offsets[end]} of") as raised:
        scanned(plan_splits(StoreDirectory(store).log_files(), FILE_SIZE)[offsets[begin] // FILE_SIZE])
    assert raised.value.offset == offsets[begin]
    assert read(store, split_bytes, on_damage=OnDamage.SKIP) == offsets[:begin] + offsets[end:]


def test_what_nothing_whole_follows_at_a_files_border_is_the_logs_end(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES[:55], FILE_SIZE, spare_files=1)
    first = offsets.index(int(Path(StoreDirectory(store).log_files()[-2].path).name))
    for offset in offsets[first - 1 :]:
        overwrite(*at(store, offset + BODY_CRC), b"\x12\x34\x56\x78")
    for on_damage in (OnDamage.RAISE, OnDamage.SKIP):
        assert read(store, on_damage=on_damage) == offsets[: first - 1]


def test_a_file_of_nothing_whole_between_two_others_is_skipped(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, FILE_SIZE)
    (_, second, third, *_) = (file.start_offset for file in StoreDirectory(store).log_files())
    begin, end = offsets.index(second) - 1, offsets.index(third) + 1
    overwrite(*at(store, offsets[begin]), b"\xff" * (second - offsets[begin]))
    overwrite(*at(store, second), b"\xff" * FILE_SIZE)
    overwrite(*at(store, third + BODY_CRC), b"\x12\x34\x56\x78")
    assert read(store, on_damage=OnDamage.SKIP) == offsets[:begin] + offsets[end:]


def test_a_file_without_its_blank_record_is_damage_where_the_log_goes_on(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, FILE_SIZE)
    position = log_path(store, 0).read_bytes().rindex(BLANK_MAGIC) - MAGIC_CODE
    overwrite(*at(store, position), bytes(8))
    with pytest.raises(CorruptRecordError) as raised:
        read(store)
    assert (raised.value.offset, raised.value.path) == (position, str(log_path(store, 0)))
    for following in store.joinpath("commitlog").iterdir():
        if following != log_path(store, 0):
            following.unlink()
    assert read(store) == [offset for offset in offsets if offset < FILE_SIZE]


@pytest.mark.parametrize("left", [0, 7])
def test_a_file_filled_to_its_end_needs_a_blank_record_to_go_on(store: Path, write_log: LogWriter, left: int) -> None:
    body = bytes(FILE_SIZE - left - record_size(0, 1, 0, magic=MagicCode.MESSAGE_V1, sys_flag=0))
    write_log([Message("t", body)], 2 * FILE_SIZE)
    path = log_path(store, 0)
    path.write_bytes(path.read_bytes()[:FILE_SIZE])
    assert read(store) == [0]
    write_log([Message("t", b"x")], FILE_SIZE, start=FILE_SIZE)
    with pytest.raises(CorruptRecordError) as raised:
        read(store)
    assert raised.value.offset == FILE_SIZE - left


def test_old_records_of_a_file_that_was_used_before_are_no_proof(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES[:10], FILE_SIZE)
    content = log_path(store, 0).read_bytes()
    kept = offsets[3]
    log_path(store, 0).write_bytes(content[:kept] + content[: FILE_SIZE - kept])
    assert read(store) == offsets[:3]


def test_bodies_are_taken_on_trust_only_where_the_caller_says_so(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES[:10], FILE_SIZE)
    overwrite(*at(store, offsets[4] + BODY_CRC), b"\0\0\0\1")
    assert read(store, check_crc=False) == offsets
    with pytest.raises(CorruptRecordError):
        read(store)


def test_a_large_record_is_found_wherever_it_lies(store: Path, write_log: LogWriter) -> None:
    """The search for a split's first record looks through a larger window than that of the scan."""
    big = [Message("t", bytes(3000)), Message("t", b"x" * 3500), Message("t", b""), Message("t", b"y" * 3000)]
    offsets = write_log(big * 3, 1 << 16)
    (file,) = StoreDirectory(store).log_files()
    for i, offset in enumerate(offsets[:-1]):
        _, found = scanned(Split(file, offset + 1, file.end_offset, is_record_start=False), window_bytes=256)
        assert found == offsets[i + 1 :]


def test_a_missing_file_is_named(store: Path, write_log: LogWriter) -> None:
    write_log(MESSAGES, FILE_SIZE)
    (split, *_) = plan_splits(StoreDirectory(store).log_files(), FILE_SIZE)
    log_path(store, 0).unlink()
    with pytest.raises(StoreError, match=f"{0:020d}: it was there .* retention has deleted it"):
        scanned(split)


def test_of_a_file_that_a_blank_record_fills_its_head_alone_is_read(tmp_path: Path) -> None:
    read_bytes = []

    class Counting(FileLayer):
        def open(self, path: str, **options: object) -> File:  # type: ignore[override]
            class Reading(File):
                def read_into(self, position: int, buffer: object) -> int:
                    read_bytes.append(super().read_into(position, buffer))  # type: ignore[arg-type]
                    return read_bytes[-1]

            file = DISK.open(path)
            reading = Reading(path, file.fileno())
            file._descriptor = -1
            return reading

    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").write_bytes(encode_blank(1 << 20).ljust(1 << 20, b"\0"))
    (split,) = plan_splits(StoreDirectory(tmp_path).log_files(), 1 << 20)
    scan, offsets = scanned(split, files=Counting())
    assert (offsets, scan.stop, scan.end_offset) == ([], SplitStop.BLANK, 1 << 20)
    assert sum(read_bytes) == 8


class LaterComplete(FileLayer):
    """A disk on which a record becomes whole after `readings` readings of its file: its writer was at work."""

    def __init__(self, whole: bytes, readings: int) -> None:
        self.whole = whole
        self.readings = readings

    def open(self, path: str, **options: object) -> File:  # type: ignore[override]
        layer, file = self, DISK.open(path)

        class Reading(File):
            def read_into(self, position: int, buffer: object) -> int:
                layer.readings -= 1
                if layer.readings == 0:
                    Path(path).write_bytes(layer.whole)
                return super().read_into(position, buffer)  # type: ignore[arg-type]

        reading = Reading(path, file.fileno())
        file._descriptor = -1
        return reading


@pytest.mark.parametrize("readings", [2, 3, 4, 5, 6])
def test_a_record_in_the_making_is_no_damage(store: Path, write_log: LogWriter, readings: int) -> None:
    offsets = write_log(MESSAGES[:10], FILE_SIZE)
    whole = log_path(store, 0).read_bytes()
    overwrite(*at(store, offsets[5] + 60), bytes(20))
    (split,) = plan_splits(StoreDirectory(store).log_files(), FILE_SIZE)
    _, found = scanned(split, files=LaterComplete(whole, readings))
    assert found == offsets


def test_readers_of_a_live_log_see_whole_records_in_order_and_never_fail(store: Path, write_log: LogWriter) -> None:
    """A writer appends byte ranges as a live store does, while others read by splits."""
    offsets = write_log(MESSAGES, FILE_SIZE)
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    contents = {name: (store / "commitlog" / name).read_bytes() for name in names}
    for name in names:
        (store / "commitlog" / name).unlink()
    (store / "commitlog" / names[0]).write_bytes(bytes(FILE_SIZE))
    failures: list[BaseException] = []
    seen: list[int] = []
    done = threading.Event()

    def keep_reading() -> None:
        try:
            while True:
                last = done.is_set()
                found = read(store, 1500, window_bytes=512)
                assert found == offsets[: len(found)]
                seen.append(len(found))
                if last:
                    break
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=keep_reading) for _ in range(2)]
    for reader in readers:
        reader.start()
    for name in names:
        path = store / "commitlog" / name
        with open(path, "r+b" if path.exists() else "w+b", buffering=0) as file:
            file.truncate(FILE_SIZE)
            for position in range(0, FILE_SIZE, 23):
                file.seek(position)
                file.write(contents[name][position : position + 23])
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert seen[-1] == len(offsets)


def test_pieces_are_views_that_the_next_one_replaces(store: Path, write_log: LogWriter) -> None:
    write_log(MESSAGES, FILE_SIZE)
    (split, *_) = plan_splits(StoreDirectory(store).log_files(), FILE_SIZE)
    pieces: list[RecordColumns] = list(scan_split(split, level=ScanLevel.HEADER, max_rows=2))
    assert np.shares_memory(pieces[0].wide, pieces[1].wide)
