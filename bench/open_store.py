"""`import reput`, the open of an empty store, the recovery of a killed one, and the memory that all that takes."""

from __future__ import annotations

from bench import messages
from bench.figures import Figure, Goal, stopwatch
from bench.processes import run_child, run_killed_child
from bench.setting import Setting
from reput import MessageStore


def measure(setting: Setting) -> list[Figure]:
    """Seconds, and MB; each of a process of its own but where the name says otherwise."""
    return [*_starts(setting), *_recovery(setting), *_memory(setting)]


def _starts(setting: Setting) -> list[Figure]:
    imported = Figure("import reput", "s", goal=Goal(most=0.15), note="start of the interpreter not counted")
    opened = Figure("open of an empty store", "s", goal=Goal(most=0.6), note="compiled kernels; imports counted")
    again = Figure("open of an empty store, second in a process", "s")
    for _ in range(setting.repeats):
        imported.values.append(run_child("import_reput"))
        opened.values.append(run_child("open_empty", setting.folder("empty")))
        path = setting.folder("empty")
        with stopwatch() as watch:
            store = MessageStore.open(path)
        again.values.append(watch.seconds)
        store.close()
    return [imported, opened, again]


def _recovery(setting: Setting) -> list[Figure]:
    count = setting.count(660_000)
    log_bytes = count * messages.RECORD_SIZE
    figure = Figure("recovery of a killed store", "s")
    figure.limit = ("memcpy, one thread", log_bytes / setting.limits["memcpy, one thread"] / 1e9)
    for _ in range(setting.repeats):
        path = setting.folder("killed")
        run_killed_child("killed", path, str(count))
        with stopwatch() as watch:
            store = MessageStore.open(path)
        figure.values.append(watch.seconds)
        report = store.recovery
        store.close()
        if not report.was_killed or report.log_end.offset != log_bytes:
            raise AssertionError(f"the recovery found {report}")
        figure.note = (
            f"{log_bytes / 1e6:.0f} MB of log, {log_bytes / figure.median / 1e9:.2f} GB/s; CRC checked, "
            f"{report.dispatched_records:,} records dispatched again"
        )
    setting.remove(path)
    return [figure]


def _memory(setting: Setting) -> list[Figure]:
    after_import = Figure("resident memory after import reput", "MB")
    after_open = Figure("resident memory with an empty store open", "MB")
    after_read = Figure("most resident memory of read_log, all columns", "MB", note="over the whole store of this run")
    for _ in range(setting.repeats):
        after_import.values.append(run_child("resident_after_import"))
        after_open.values.append(run_child("resident_after_open", setting.folder("empty")))
        after_read.values.append(run_child("resident_after_read", setting.stock()))
    return [after_import, after_open, after_read]
