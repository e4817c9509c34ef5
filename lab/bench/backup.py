"""Backups of a log in the page cache, and what a put beside one waits at the most."""

from __future__ import annotations

import subprocess
import sys
import time

from lab.bench.figures import Figure, Goal, percentile
from lab.bench.setting import Setting
from reput import FlushDiskType, Message, MessageStore
from reput.jobs.backup.backup_job import Backup, backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.runner import LocalRunner

#: Who only puts would leave the backup no processor.
_PAUSE_S = 0.0002


def measure(setting: Setting) -> list[Figure]:
    """Log bytes a second, copied and synced, or linked; a backup with nothing new; a restore; puts beside a backup."""
    whole = Figure("backup, copied and synced", "GB/s", note="read, proven, hashed (SHA-256), written")
    linked = Figure("backup, hard links", "GB/s", note="read, proven, hashed")
    again = Figure("backup with nothing new", "s")
    restored = Figure("restore, rebuilt and audited", "GB/s")
    target, made = setting.folder("backups"), setting.folder("restored")
    for i in range(1 + setting.repeats):
        setting.remove(target)
        full = _take(setting, target)
        nothing = _take(setting, target)
        setting.remove(made)
        back = restore(target, made, runner=LocalRunner())
        setting.remove(target)
        links = _take(setting, target, link=True)
        if back.messages != setting.stock_count or nothing.copied_bytes:
            raise AssertionError(f"{back.messages} of {setting.stock_count} messages, {nothing.copied_bytes} again")
        if i:
            whole.values.append(full.end_offset / full.seconds / 1e9)
            again.values.append(nothing.seconds)
            restored.values.append(back.log_bytes / back.seconds / 1e9)
            linked.values.append(links.end_offset / links.seconds / 1e9)
    for path in (target, made):
        setting.remove(path)
    limit = "memcpy, two threads", setting.limits.get("memcpy, two threads", 0.0)
    for figure in (whole, linked, restored):
        figure.limit = limit
    return [whole, again, linked, restored, *_puts_beside(setting)]


def _take(setting: Setting, target: str, *, link: bool = False) -> Backup:
    return backup(setting.stock(), target, runner=LocalRunner(), link=link)


def _puts_beside(setting: Setting) -> list[Figure]:
    """The longest put while a process takes a backup of the store, and as long without."""
    beside = Figure("put_message beside a backup, the longest", "ms", goal=Goal(most=10))
    beside_most = Figure("put_message beside a backup, p99.9", "ms")
    alone = Figure("put_message in the same time without one, the longest", "ms")
    for _ in range(setting.repeats):
        path, target = setting.copy(setting.stock(), "live"), setting.folder("backups")
        with MessageStore.open(path, flush_disk_type=FlushDiskType.ASYNC_FLUSH) as store:
            command = [sys.executable, "-m", "reput", "backup", path, target, "--json"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
                samples = _puts(store, child, 0)
            beside.values.append(max(samples) * 1e3)
            beside_most.values.append(percentile(samples, 0.999) * 1e3)
            alone.values.append(max(_puts(store, None, len(samples))) * 1e3)
        for folder in (path, target):
            setting.remove(folder)
    return [beside, beside_most, alone]


def _puts(store: MessageStore, child: subprocess.Popen[bytes] | None, count: int) -> list[float]:
    """Seconds of each put, as long as a process lives, or so many."""
    message, samples = Message("orders", bytes(256)), list[float]()
    while len(samples) < count or (child is not None and child.poll() is None):
        started = time.perf_counter()
        store.put_message(message)
        samples.append(time.perf_counter() - started)
        time.sleep(_PAUSE_S)
    if child is not None and child.returncode:
        raise AssertionError(f"the backup ended with status {child.returncode}")
    return samples
