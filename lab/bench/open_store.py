"""`import reput`, the open of empty stores and of cleanly closed ones, and the memory that all that takes."""

from __future__ import annotations

from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.messages import RECORD_SIZE
from lab.bench.processes import run_child
from lab.bench.setting import Setting, fill
from reput import MessageStore

_GROWTH = 10


def measure(setting: Setting) -> list[Figure]:
    """Seconds, and MB; each of a process of its own but where the name says otherwise."""
    return [*_starts(setting), *_closed(setting), *_memory(setting)]


def _starts(setting: Setting) -> list[Figure]:
    imported = Figure("import reput", "s", goal=Goal(most=0.15), note="start of the interpreter not counted")
    opened = Figure("open of an empty store", "s", goal=Goal(most=0.6), note="compiled kernels; imports counted")
    for _ in range(setting.repeats):
        imported.values.append(run_child("import_reput"))
        opened.values.append(run_child("open_empty", setting.folder("empty")))
    return [imported, opened]


def _closed(setting: Setting) -> list[Figure]:
    """Cleanly closed stores of three sizes; in a full run 0.1, 1 and 10 GB of log."""
    figures = []
    for times in (1, _GROWTH, _GROWTH**2):
        count = setting.stock_count // _GROWTH * times
        figure = Figure(
            f"open of a closed store of {count:,} messages", "s", note=f"{count * RECORD_SIZE / 1e9:.1f} GB of log"
        )
        path = setting.folder("closed")
        fill(path, count)
        for _ in range(setting.repeats):
            with stopwatch() as watch:
                store = MessageStore.open(path)
            figure.values.append(watch.seconds)
            if store.recovery.log_end.scanned_bytes != RECORD_SIZE:
                raise AssertionError(f"a clean start read {store.recovery.log_end.scanned_bytes} bytes of the log")
            store.close()
            del store  # gives its maps back now, and not while the next one is timed
        if setting.apache is not None:
            figure.other = setting.apache.other()
            for _ in range(setting.repeats):
                with setting.apache.open(path) as apache:
                    figure.add_other(apache.seconds)
        figures.append(figure)
    setting.remove(path)
    return figures


def _memory(setting: Setting) -> list[Figure]:
    after_import = Figure("resident memory after import reput", "MB")
    after_open = Figure("resident memory with an empty store open", "MB")
    after_read = Figure("most resident memory of read_log, all columns", "MB", note="over the whole store of this run")
    for _ in range(setting.repeats):
        after_import.values.append(run_child("resident_after_import"))
        after_open.values.append(run_child("resident_after_open", setting.folder("empty")))
        after_read.values.append(run_child("resident_after_read", setting.stock()))
    return [after_import, after_open, after_read]
