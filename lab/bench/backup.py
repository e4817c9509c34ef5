"""Backups of a log in the page cache, and what a put beside one waits at the most."""

from __future__ import annotations

import subprocess
import sys
import time

from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput import FlushDiskType, Message, MessageStore
from reput.jobs.backup.backup_job import backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.runner import LocalRunner

#: Who only puts would leave the backup no processor.
_PAUSE_S = 0.0002


def measure(setting: Setting) -> list[Figure]:
    """Log bytes a second, copied and synced; a restore; puts beside a backup."""
    whole = Figure("backup, copied and synced", "GB/s", note="read, proven, hashed (SHA-256), written")
    restored = Figure("restore, rebuilt and audited", "GB/s")
    target, made = setting.folder("backups"), setting.folder("restored")
    for i in range(1 + setting.repeats):
        setting.remove(target)
        full = backup(setting.stock(), target, runner=LocalRunner())
        setting.remove(made)
        back = restore(target, made, runner=LocalRunner())
        if back.messages != setting.stock_count:
            raise AssertionError(f"{back.messages} of {setting.stock_count} messages")
        if i:
            whole.values.append(full.end_offset / full.seconds / 1e9)
            restored.values.append(back.log_bytes / back.seconds / 1e9)
    for path in (target, made):
        setting.remove(path)
    limit = "memcpy, two threads", setting.limits.get("memcpy, two threads", 0.0)
    for figure in (whole, restored):
        figure.limit = limit
    return [whole, restored, _puts_beside(setting)]


def _puts_beside(setting: Setting) -> Figure:
    """The longest put while a process takes a backup of the store."""
    beside = Figure("put_message beside a backup, the longest", "ms", goal=Goal(most=10))
    for _ in range(setting.repeats):
        path, target = setting.copy(setting.stock(), "live"), setting.folder("backups")
        with MessageStore.open(path, flush_disk_type=FlushDiskType.ASYNC_FLUSH) as store:
            command = [sys.executable, "-m", "reput", "backup", path, target, "--json"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
                beside.values.append(_longest_put(store, child) * 1e3)
        for folder in (path, target):
            setting.remove(folder)
    return beside


def _longest_put(store: MessageStore, child: subprocess.Popen[bytes]) -> float:
    """Seconds of the longest put, as long as a process lives."""
    message, longest = Message("orders", bytes(256)), 0.0
    while child.poll() is None:
        started = time.perf_counter()
        store.put_message(message)
        longest = max(longest, time.perf_counter() - started)
        time.sleep(_PAUSE_S)
    if child.returncode:
        raise AssertionError(f"the backup ended with status {child.returncode}")
    return longest
