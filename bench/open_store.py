"""`import reput`, the open of empty stores and of cleanly closed ones, and the memory that all that takes."""

from __future__ import annotations

from bench.figures import Figure, Goal, Other, stopwatch
from bench.processes import run_child
from bench.setting import Setting, fill
from reput import MessageStore

_TIMES_SMALLER = 20
#: An open that does not grow, with room for what such short times vary.
_LEAST_GROWTH = 0.67


def measure(setting: Setting) -> list[Figure]:
    """Seconds, and MB; each of a process of its own but where the name says otherwise."""
    return [*_starts(setting), *_closed(setting), *_memory(setting)]


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


def _closed(setting: Setting) -> list[Figure]:
    """Cleanly closed stores of two sizes."""
    counts = (setting.stock_count // _TIMES_SMALLER, setting.stock_count)
    small, large = figures = [Figure(f"open of a closed store of {count:,} messages", "s") for count in counts]
    growth = Figure(f"open of a closed store of {_TIMES_SMALLER} times the log", "s", large.values)
    growth.other = Other("reput, the smaller store", small.values, least=_LEAST_GROWTH)
    path = setting.folder("small")
    fill(path, counts[0])
    for figure, store in zip(figures, (path, setting.stock()), strict=True):
        if setting.apache is not None:
            figure.other = setting.apache.other()
            copy = setting.copy(path, "small-apache") if figure is small else setting.apache_stock()
        for _ in range(setting.repeats):
            with stopwatch() as watch:
                opened = MessageStore.open(store)
            figure.values.append(watch.seconds)
            opened.close()
            if setting.apache is not None:
                with setting.apache.open(copy) as apache:
                    figure.add_other(apache.seconds)
    return [small, large, growth]


def _memory(setting: Setting) -> list[Figure]:
    after_import = Figure("resident memory after import reput", "MB")
    after_open = Figure("resident memory with an empty store open", "MB")
    after_read = Figure("most resident memory of read_log, all columns", "MB", note="over the whole store of this run")
    for _ in range(setting.repeats):
        after_import.values.append(run_child("resident_after_import"))
        after_open.values.append(run_child("resident_after_open", setting.folder("empty")))
        after_read.values.append(run_child("resident_after_read", setting.stock()))
    return [after_import, after_open, after_read]
