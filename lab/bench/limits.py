"""Limits of the machine itself, measured in the same run: the bound of every other figure."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from threading import Event, Thread

import numpy as np
import numpy.typing as npt

from lab.bench import messages
from lab.bench.figures import Figure, seconds_of
from lab.bench.setting import Setting
from reput.store.log.mapped_file import RESERVE_STEP

_CACHE_LINE = 64
_CHUNK = 1 << 20


def measure(setting: Setting) -> list[Figure]:
    """All limits; `Setting.limits` then holds their medians by name for the questions that follow."""
    figures = [*_memory(setting), *_disk(setting), *_start(setting)]
    setting.limits.update({figure.name: figure.median for figure in figures})
    return figures


def _memory(setting: Setting) -> list[Figure]:
    size = setting.bytes(256 << 20)
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    lines = source.reshape(-1, _CACHE_LINE)[:, 0]
    one, two, random = (
        Figure("memcpy, one thread", "GB/s"),
        Figure("memcpy, two threads", "GB/s"),
        Figure("random cache lines", "1/s", note="many on their way at once"),
    )
    places = np.random.default_rng(7).integers(0, lines.size, lines.size // 4) * _CACHE_LINE
    touched = np.empty(places.size, np.uint8)
    for _ in range(setting.repeats):
        random.values.append(places.size / seconds_of(lambda: np.take(source, places, out=touched, mode="clip")))
        one.values.append(size / seconds_of(lambda: np.copyto(target, source)) / 1e9)
        two.values.append(size / seconds_of(lambda: _copy_in_two(target, source)) / 1e9)
    return [one, two, random]


def _copy_in_two(target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8]) -> None:
    half = target.size // 2
    threads = [
        Thread(target=np.copyto, args=(target[:half], source[:half])),
        Thread(target=np.copyto, args=(target[half:], source[half:])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def durable_write(folder: str, size: int) -> float:
    """Seconds until a new file is on the disk, by the fastest of four ways.

    Its space is reserved at once, or in steps as `put_arrow` does; one sync follows at the end, or a second thread
    syncs beside the writes, as it does too. Which is the fastest changes from minute to minute: syncs beside the writes
    keep the disk busy, but where memory is slow they are many, and each one holds up the writes.
    """
    ways = [(step, beside) for step in (size, RESERVE_STEP) for beside in (False, True)]
    return min(_write_durably(f"{folder}/{i}", size, *way) for i, way in enumerate(ways))


def _write_durably(path: str, size: int, step: int, beside: bool) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    chunk, written = _chunk(), Event()

    def sync() -> None:
        while not written.is_set():
            os.fdatasync(descriptor)

    thread = Thread(target=sync)
    start = time.perf_counter()
    if beside:
        thread.start()
    for position in range(0, size, _CHUNK):
        if position % step == 0:
            os.posix_fallocate(descriptor, position, min(step, size - position))
        os.pwrite(descriptor, chunk[: size - position], position)
    written.set()
    if beside:
        thread.join()
    os.fdatasync(descriptor)
    seconds = time.perf_counter() - start
    os.close(descriptor)
    os.unlink(path)  # the next one takes its memory
    return seconds


def _chunk() -> memoryview:
    chunk = memoryview(mmap.mmap(-1, _CHUNK))
    chunk[:] = os.urandom(_CHUNK)
    return chunk


def _disk(setting: Setting) -> list[Figure]:
    size = setting.bytes(512 << 20)
    chunk = _chunk()
    recycled, durable, small = (
        Figure("page cache pwrite, recycled", "GB/s", note="new files in memory that a removed file has given back"),
        Figure("durable sequential write", "GB/s", note="recycled, pieces of 1 MiB, one fdatasync at the end"),
        Figure("fdatasync of small writes", "1/s", note="one record written, one fdatasync"),
    )
    folder = setting.folder("limits")
    for i in range(setting.repeats):
        _write_file(f"{folder}/{i}", size, chunk)
    for i in range(setting.repeats):
        path = f"{folder}/{i}"
        os.unlink(path)
        written, synced = _write_file(path, size, chunk)
        recycled.values.append(size / written / 1e9)
        durable.values.append(size / synced / 1e9)
        count = setting.count(2_000)
        small.values.append(count / _small_writes(path, chunk[: messages.RECORD_SIZE], count))
    setting.remove(folder)
    return [recycled, durable, small]


def _write_file(path: str, size: int, chunk: memoryview) -> tuple[float, float]:
    """Seconds until a new file is written, and until it is on the disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.posix_fallocate(descriptor, 0, size)
    start = time.perf_counter()
    for position in range(0, size, _CHUNK):
        os.pwrite(descriptor, chunk, position)
    written = time.perf_counter() - start
    os.fdatasync(descriptor)
    synced = time.perf_counter() - start
    os.close(descriptor)
    return written, synced


def _small_writes(path: str, record: memoryview, count: int) -> float:
    """Seconds of a number of writes, each on the disk before the next."""
    descriptor = os.open(path, os.O_RDWR)
    start = time.perf_counter()
    for i in range(count):
        os.pwrite(descriptor, record, i * record.nbytes)
        os.fdatasync(descriptor)
    seconds = time.perf_counter() - start
    os.close(descriptor)
    return seconds


def _start(setting: Setting) -> list[Figure]:
    interpreter = Figure("start of the interpreter", "s", note="python -c pass")
    for _ in range(setting.repeats):
        interpreter.values.append(seconds_of(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)))
    return [interpreter]
