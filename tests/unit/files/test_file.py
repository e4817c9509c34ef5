from __future__ import annotations

import ctypes
import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import StoreError, StoreFullError, StoreSyncError
from reput.files import DISK, File
from reput.kernels.machine.mapped_pages import PART_SIZE

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> File:
    return DISK.open(str(tmp_path / "file"), writable=True, create=True)


def test_what_was_written_is_read_back(file: File) -> None:
    file.write(5, b"hello")
    file.write(10, memoryview(b" world"))
    file.write(16, bytearray(b"!"))
    assert file.read(0, 100) == b"\0\0\0\0\0hello world!"
    assert file.read(5, 5) == b"hello"
    assert file.read(17, 5) == b""
    assert file.size == 17


def test_reading_into_a_buffer_stops_where_the_file_ends(file: File) -> None:
    file.write(0, b"abcdef")
    buffer = bytearray(b"........")
    assert file.read_into(2, buffer) == 4
    assert buffer == b"cdef...."
    assert file.read_into(6, buffer) == 0


def test_a_closed_file_is_an_error_not_another_file(tmp_path: Path) -> None:
    with DISK.open(str(tmp_path / "file"), writable=True, create=True) as file:
        file.write(0, b"x")
    file.close()
    with pytest.raises(StoreError, match="file: cannot read at 0: Bad file descriptor"):
        file.read(0, 1)


def test_a_file_that_was_opened_for_reading_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with DISK.open(str(tmp_path / "file")) as file, pytest.raises(StoreError, match="cannot write at 0"):
        file.write(0, b"x")
    assert (tmp_path / "file").read_bytes() == b"abc"


def test_growing_makes_a_hole_and_never_cuts(file: File) -> None:
    file.write(0, b"abc")
    file.grow(MIB)
    assert file.size == MIB
    assert os.stat(file.path).st_blocks * 512 < MIB
    file.grow(10)
    assert file.size == MIB
    assert file.read(0, 4) == b"abc\0"


def test_allocated_space_is_on_the_disk_and_reads_as_zeros(file: File) -> None:
    file.write(0, b"abc")
    file.allocate(0, MIB)
    assert os.stat(file.path).st_blocks * 512 >= MIB
    assert file.read(0, MIB) == b"abc" + bytes(MIB - 3)


def test_zeroing_changes_nothing_before_the_position(file: File) -> None:
    file.write(0, b"head")
    file.write(4, b"tail")
    assert file.has_data_from(4)
    assert file.zero_from(5) == 3
    assert file.read(0, 8) == b"headt\0\0\0"
    assert not file.has_data_from(5)
    assert file.zero_from(5) == 0


def test_zeroing_leaves_holes_and_finds_what_lies_behind_them(file: File) -> None:
    file.grow(64 * MIB)
    file.write(0, b"begin")
    file.write(40 * MIB + 3, b"far")
    file.sync()
    before = os.stat(file.path).st_blocks
    assert file.zero_from(5) == 3
    file.sync()
    assert os.stat(file.path).st_blocks == before
    assert file.size == 64 * MIB
    assert file.read(0, 5) == b"begin"
    assert not file.has_data_from(5)
    assert not file.has_data_from(64 * MIB)


@given(
    pieces=st.lists(st.tuples(st.integers(0, 3 * MIB), st.binary(min_size=1, max_size=300)), max_size=8),
    position=st.integers(0, 3 * MIB),
)
def test_zeroing_equals_zeroing_the_bytes_in_memory(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bytes]], position: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "zeroed"
    path.unlink(missing_ok=True)
    expected = bytearray(4 * MIB)
    with DISK.open(str(path), writable=True, create=True, size=len(expected)) as file:
        for start, data in pieces:
            file.write(start, data)
            expected[start : start + len(data)] = data
        changed = len(expected) - position - expected[position:].count(0)
        expected[position:] = bytes(len(expected) - position)
        assert file.has_data_from(position) == (changed > 0)
        assert file.zero_from(position) == changed
        assert file.read(0, len(expected)) == expected


def test_all_but_holes_is_written_again_and_reads_the_same(tmp_path: Path) -> None:
    written: list[tuple[int, int]] = []

    class Recorded(File):
        __slots__ = ()

        def write(self, position, data):  # type: ignore[no-untyped-def]
            written.append((position, len(data)))
            super().write(position, data)

    with DISK.open(str(tmp_path / "file"), writable=True, create=True, size=6 * MIB) as plain:
        plain.write(0, b"\1" * MIB)
        plain.write(MIB, bytes(MIB))  # zeros that were written are on the disk, or something else is
        plain.write(4 * MIB, b"\2" * 100)
        plain.sync()
        before = plain.read(0, 6 * MIB)
        with Recorded(plain.path, os.dup(plain.fileno())) as file:
            file.write_again(1000)
        assert plain.read(0, 6 * MIB) == before
    assert written[0][0] == 1000
    covered = {begin // 4096 for at, size in written for begin in range(at, at + size, 4096)}
    assert covered >= {*range(2 * MIB // 4096), 4 * MIB // 4096}
    assert sum(size for _, size in written) <= 3 * MIB


def test_a_mapping_shows_the_whole_file_at_its_address(file: File) -> None:
    file.write(0, b"abcdef")
    mapping = file.map()
    assert mapping.size == 6
    assert bytes(mapping.view) == b"abcdef"
    assert ctypes.string_at(mapping.address, 6) == b"abcdef"
    file.write(2, b"X")
    assert mapping.view[2] == ord("X")
    assert mapping.view.readonly


def test_stores_through_a_writable_mapping_reach_the_file(file: File) -> None:
    file.allocate(0, 8192)
    mapping = file.map(writable=True, random=True)
    mapping.view[4096:4099] = b"abc"
    file.sync()
    assert file.read(4096, 4) == b"abc\0"


def test_a_view_keeps_its_bytes_when_file_and_mapping_are_gone(file: File) -> None:
    file.write(0, b"abcdef")
    view = file.map().view[2:4]
    file.close()
    os.unlink(file.path)
    gc.collect()
    assert bytes(view) == b"cd"


def test_an_empty_file_is_not_mapped(file: File) -> None:
    with pytest.raises(StoreError, match="file: cannot map an empty file"):
        file.map()


def test_a_full_disk_is_an_error_that_names_file_need_and_what_to_do() -> None:
    with File("/dev/full", os.open("/dev/full", os.O_RDWR)) as file, pytest.raises(StoreFullError) as raised:
        file.write(0, b"abc")
    assert str(raised.value).startswith("/dev/full: cannot write at 0: 3 bytes needed, ")
    assert str(raised.value).endswith(" free: no space left on the disk; free some and try again")
    assert raised.value.retriable
    assert isinstance(raised.value.__cause__, OSError)


def test_a_failed_sync_is_never_called_a_full_disk() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with File("pipe", writer) as file, pytest.raises(StoreSyncError, match="pipe: cannot sync: ") as raised:
        file.sync()
    assert type(raised.value) is StoreSyncError
    assert not raised.value.retriable


def test_a_part_of_another_file_is_copied_whatever_the_file_systems_are(tmp_path: Path) -> None:
    source, memory = tmp_path / "source", Path("/dev/shm") / f"reput-{os.getpid()}"
    source.write_bytes(bytes(range(256)) * 10_000)
    expected = source.read_bytes()[1_000:2_500_000]
    try:
        for target in (tmp_path / "target", memory):
            with DISK.open(str(source)) as opened, DISK.open(str(target), writable=True, create=True) as copy:
                copy.copy_from(opened, 1_000, len(expected), 3)
            assert target.read_bytes() == bytes(3) + expected
    finally:
        memory.unlink(missing_ok=True)


def test_a_part_that_the_other_file_does_not_have_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"abc")
    target = DISK.open(str(tmp_path / "target"), writable=True, create=True)
    with DISK.open(str(tmp_path / "source")) as source, pytest.raises(StoreError, match="4 bytes expected from 1 on"):
        target.copy_from(source, 1, 4, 0)


def allocate_like_ext4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each allocation gets half of its bytes before the disk is full, and keeps them; the file has grown to them."""
    allocate = os.posix_fallocate

    def allocate_half(descriptor: int, position: int, size: int) -> None:
        allocate(descriptor, position, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate_half)


@pytest.mark.parametrize("size", [MIB, 100], ids=["in the file", "after its end"])
def test_an_allocation_that_fails_gives_back_what_it_got(
    file: File, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.grow(size)
    file.write(50, b"data")
    before = file.allocated_bytes
    allocate_like_ext4(monkeypatch)
    with pytest.raises(StoreFullError, match=f"cannot allocate at 0: {MIB} bytes needed"):
        file.allocate(0, MIB)
    assert (file.allocated_bytes, file.size) == (before, size)
    assert file.read(50, 4) == b"data"


def test_an_allocation_that_fails_keeps_bytes_that_were_written_after_a_hole(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.grow(MIB)
    file.write(300_000, b"x" * 10_000)
    before = file.allocated_bytes
    allocate_like_ext4(monkeypatch)
    with pytest.raises(StoreFullError):
        file.allocate(0, MIB)
    assert file.read(300_000, 10_000) == b"x" * 10_000
    assert file.allocated_bytes == before


@pytest.fixture
def in_memory() -> Iterator[File]:
    """A file of tmpfs, wherever the tests have their folders: 64 pages, of which the 10th has data."""
    with File("memory", os.memfd_create("memory")) as file:
        file.grow(64 * 4096)
        file.write(10 * 4096, b"data")
        yield file


def test_a_map_to_read_takes_no_space_for_holes(in_memory: File) -> None:
    """On tmpfs a read of a hole through a map takes a page; on a full one it kills the process."""
    mapping = in_memory.map()
    assert sum(mapping.view) == sum(b"data")
    assert bytes(mapping.view[10 * 4096 :][:4]) == b"data"
    mapping.release()
    assert mapping.view[-1] == 0
    assert in_memory.allocated_bytes == 4096


def test_a_map_to_read_says_up_to_where_it_shows_what_is_written_later(in_memory: File) -> None:
    before = in_memory.map()
    assert (before.whole_until, before.size) == (0, 64 * 4096)
    in_memory.allocate(0, 10 * 4096)
    in_memory.write(0, b"x" * 10 * 4096)
    in_memory.write(10 * 4096, b"more")
    assert (before.view[0], bytes(before.view[10 * 4096 :][:4])) == (0, b"more")
    after = in_memory.map()
    assert (after.whole_until, after.view[0]) == (11 * 4096, ord("x"))
    in_memory.write(63 * 4096, b"x" * 4096)
    for page in range(11, 63):
        in_memory.write(page * 4096, b"x")
    assert in_memory.map().whole_until == 64 * 4096


def test_a_writable_map_can_be_read_where_holes_were_allocated(in_memory: File) -> None:
    in_memory.allocate_holes(11 * 4096)
    assert in_memory.allocated_bytes == 11 * 4096
    mapping = in_memory.map(writable=True)
    assert (mapping.whole_until, sum(mapping.view[: 11 * 4096])) == (mapping.size, sum(b"data"))
    assert in_memory.allocated_bytes == 11 * 4096
    mapping.view[0:2] = b"ab"
    assert in_memory.read(0, 2) == b"ab"


def test_the_last_page_of_a_map_may_be_a_part_of_one() -> None:
    with File("memory", os.memfd_create("memory")) as file:
        file.grow(2 * 4096 + 100)
        file.write(0, b"data")
        assert (sum(file.map().view), file.map().whole_until) == (sum(b"data"), 4096)
        assert file.allocated_bytes == 4096


def test_what_a_map_is_asked_for_can_be_read_or_is_an_error_with_its_place(file: File) -> None:
    file.write(0, b"x" * (3 * PART_SIZE))
    mapping = file.map()
    mapping.ask(PART_SIZE - 1, PART_SIZE + 1)
    assert list(mapping.asked) == [1, 1, 0, 0, 0]
    os.truncate(file.path, PART_SIZE + 100)
    mapping.ask(PART_SIZE + 4096, PART_SIZE + 4097)  # that part was asked for, and nobody looks again
    mapping.ask(3 * PART_SIZE, 4 * PART_SIZE)  # after its end there is nothing to read
    for ask, begin in ((mapping.ask, 2 * PART_SIZE), (mapping.ask_now, PART_SIZE + 4096)):
        with pytest.raises(StoreError, match=rf"file: cannot read at {begin}: Input/output error"):
            ask(begin, 3 * PART_SIZE)
        with pytest.raises(StoreError, match=rf"file: cannot read at {begin + 7}: "):
            ask(begin + 7, begin + 8)
    mapping.ask_now(0, PART_SIZE + 100)
    mapping.forget()
    with pytest.raises(StoreError, match=f"cannot read at {PART_SIZE + 4096}: "):
        mapping.ask(PART_SIZE + 10, PART_SIZE + 5000)
    mapping.ask(PART_SIZE, PART_SIZE + 4096)  # the part cannot be read, and these bytes can
    assert list(mapping.asked) == [0, 0, 0, 0, 0]


def test_memory_that_a_map_releases_is_asked_for_again(file: File) -> None:
    file.write(0, b"x" * (3 * PART_SIZE))
    mapping = file.map()
    mapping.ask(0, mapping.size)
    mapping.release(PART_SIZE, 2 * PART_SIZE)
    assert list(mapping.asked) == [1, 0, 1, 0, 0]


def test_a_file_that_is_shorter_than_it_must_be_is_not_mapped(file: File) -> None:
    file.write(0, b"x" * 100)
    assert file.map(expected=100).size == 100
    with pytest.raises(StoreError, match="file: 100 bytes long, expected 101: it was cut"):
        file.map(expected=101)
