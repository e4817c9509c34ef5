"""Arguments of all public functions of jobs: what is none is refused when it is given, and nothing was made."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reput
import reput.jobs
from reput.jobs.archive import archive, verify
from reput.jobs.archive import follow as follow_archive
from reput.jobs.audit import audit
from reput.jobs.backup import backup, list_backups, prune, restore
from reput.jobs.diff import diff
from reput.jobs.lake import ExportOptions, ProtobufSchema, export, follow, import_messages, open_source
from reput.jobs.lake.import_source import LakeSource
from reput.jobs.query import Source, find_messages, query_sql
from reput.jobs.rebuild import RebuildOptions, rebuild
from reput.jobs.repair import repair, salvage
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics import statistics
from reput.store.sinks.replay import replay
from tests.support.bad_arguments import bad_values, check_refused, names_in, parameters


class NoSink:
    """A sink that nobody may use."""

    def committed(self) -> None:
        raise AssertionError("an import begins")


STORE, BACKUPS, ARCHIVE, NEW, LAKE = "store", "backups", "archive", "new", "lake.parquet"
RUN: dict[str, Any] = {"runner": LocalRunner(1)}
#: Right arguments of each function, and of what options are made by; paths are below the folder of the stores.
GOOD: dict[Callable[..., Any], dict[str, Any]] = {
    archive: {"store_path": STORE, "target": NEW} | RUN,
    follow_archive: {"store_path": STORE, "target": NEW, "wait": lambda: False} | RUN,
    verify: {"target": ARCHIVE} | RUN,
    audit: {"store_path": STORE} | RUN,
    backup: {"store_path": STORE, "target": NEW} | RUN,
    list_backups: {"target": BACKUPS},
    prune: {"target": BACKUPS, "keep_last": 1},
    restore: {"target": BACKUPS, "store_path": NEW} | RUN,
    diff: {"left_path": STORE, "right_path": STORE} | RUN,
    export: {"store_path": STORE, "output": NEW} | RUN,
    follow: {"store_path": STORE, "output": NEW, "wait": lambda: False} | RUN,
    open_source: {"path": LAKE},
    rebuild: {"store_path": STORE, "output": NEW} | RUN,
    repair: {"store_path": STORE} | RUN,
    salvage: {"store_path": STORE, "target": NEW} | RUN,
    statistics: {"store_path": STORE} | RUN,
    replay: {"source": STORE, "target": NEW},
    find_messages: {"path": STORE},
    import_messages: {"source": LakeSource("", "", pa.schema([]), ()), "sink": NoSink()} | RUN,
    query_sql: {"source": Source(path="x"), "sql": "select 1"},
    LocalRunner: {},
    ExportOptions: {},
    RebuildOptions: {},
    ProtobufSchema: {"descriptors": b"", "message": "shop.Order"},
    Source: {"path": STORE},
}
#: Any moment is one, also before 1970.
TAKEN: dict[str, tuple[Any, ...]] = {"until_ms": (-1,)}
CASES = [pytest.param(one, name, id=f"{one.__name__}-{name}") for one in GOOD for name in parameters(one)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments")
    with reput.MessageStore.open(path / STORE, small=True) as store:
        store.put_message(reput.Message("orders", b'{"a": 1}', keys=["k"]))
    backup(path / STORE, path / BACKUPS, runner=LocalRunner(1))
    archive(path / STORE, path / ARCHIVE, runner=LocalRunner(1))
    pq.write_table(pa.table({"topic": ["orders"], "body": [b"x"]}), path / LAKE)
    return path


@pytest.mark.parametrize(("function", "name"), CASES)
def test_what_is_no_argument_is_refused_and_nothing_is_made(
    folder: Path, function: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = names_in(folder)
    values = [value for value in bad_values(function, name) if value not in TAKEN.get(name, ())]
    check_refused(function, GOOD[function], name, values)
    assert names_in(folder) == before


def test_all_public_functions_and_options_of_jobs_are_in_the_table() -> None:
    rooms = [import_module(f"reput.jobs.{one.name}") for one in pkgutil.iter_modules(reput.jobs.__path__) if one.ispkg]
    public = [getattr(room, name) for room in rooms for name in getattr(room, "__all__", ())]
    functions = {one for one in public if inspect.isfunction(one)}
    assert functions == {one for one in GOOD if inspect.isfunction(one)} - {replay}
    options = {one for one in public if inspect.isclass(one) and one.__name__.endswith(("Options", "Source", "Schema"))}
    assert options == {ExportOptions, ProtobufSchema, RebuildOptions, Source}
