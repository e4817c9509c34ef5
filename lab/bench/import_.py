"""The job that puts an export into a store again: on the disk, and in queues and index."""

from __future__ import annotations

from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.config.message_store import MessageStoreConfig
from reput.files import DISK
from reput.jobs.lake.export_job import export
from reput.jobs.lake.import_job import import_messages
from reput.jobs.lake.import_source import open_source
from reput.jobs.runner import LocalRunner
from reput.store.sinks.import_sink import ImportSink


def measure(setting: Setting) -> list[Figure]:
    """Messages a second, of the source's first look to the last sync."""
    figure = Figure("import from Parquet, all columns, synced", "msg/s", goal=Goal(least=500_000))
    figure.note = "2 threads; written twice: staged into the page cache, and appended and synced"
    lake = setting.folder("lake")
    export(setting.stock(), lake, runner=LocalRunner(2))
    for i in range(1 + setting.repeats):
        path = setting.folder("imported")
        with ImportSink(path, MessageStoreConfig(), "bench", files=DISK) as sink:
            result = import_messages(open_source(lake), sink, runner=LocalRunner(2))
        if result.messages != setting.stock_count:
            raise AssertionError(f"{result.messages} of {setting.stock_count} messages were imported")
        if i:  # the first round has taken memory from the host
            figure.values.append(result.messages / result.seconds)
    figure.limit = setting.records_limit("durable sequential write")
    for folder in (path, lake):
        setting.remove(folder)
    return [figure]
