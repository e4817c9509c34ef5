"""Tables that follow a log by Spark's executors are those of threads, also where the driver is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from reput.files import DISK
from reput.jobs.lake import ExportOptions, export, follow
from reput.jobs.runner import LocalRunner, Runner
from reput.spark.runner import SparkRunner
from tests.support.commands import run_reput
from tests.support.iceberg import ids_of_files, names_of_tables, rows_of_table, table_of
from tests.support.lake import log_rows, put_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS, ROWS = 4, 60
#: Several splits a round; files that are put together in a round, and over the rounds.
OPTIONS: dict[str, Any] = {"decode": "json", "new_fields": "add", "compact": 3, "split_bytes": 4000}
FORMATS = pytest.mark.parametrize("form", ["delta", "iceberg"])


def put_round(store: Path, number: int) -> None:
    """Two topics of which each gets a field in each round, and a body that is no JSON."""
    bodies = [b'{"id": %d, "f%d": %d}' % (number * ROWS + n, number, n) for n in range(ROWS)]
    put_topics(store, {"%RETRY%g": bodies, "users": [*bodies[: ROWS // 2], b"none"]})


def options(form: str) -> ExportOptions:
    return ExportOptions(format=form, **OPTIONS)  # type: ignore[arg-type]


def tables(output: Path, form: str) -> dict[str, pa.Table]:
    """All rows of each table, in log order; what a body has depends on the fields, not on their order."""
    if form == "iceberg":
        return {name: rows_of_table(output, name) for name in names_of_tables(output)}
    paths = sorted(path.parent for path in output.rglob("_delta_log"))
    return {
        str(path.relative_to(output)).replace("/", "_"): DeltaTable(path)
        .to_pyarrow_table()
        .sort_by("commit_log_offset")
        for path in paths
    }


def check_each_message_once(store: Path, found: dict[str, pa.Table]) -> None:
    assert sorted(found) == ["messages_users", "messages_~25RETRY~25g", "rejects"]
    offsets = [offset for table in found.values() for offset in table["commit_log_offset"].to_pylist()]
    assert sorted(offsets) == [row["commit_log_offset"] for row in log_rows(store)]


def count_of_files(output: Path, form: str) -> int:
    if form == "delta":
        return len(DeltaTable(output / "messages/users").file_uris())
    return len(list(table_of(output, "messages_users").scan().plan_files()))


@FORMATS
def test_tables_that_follow_by_spark_are_those_of_threads(spark: SparkSession, form: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    runners: dict[str, Runner] = {"spark": SparkRunner(spark), "local": LocalRunner(2)}
    followers = [
        follow(store, tmp_path / name, runner=runner, wait=lambda: True, options=options(form))
        for name, runner in runners.items()
    ]
    counts = []
    for number in range(ROUNDS):
        put_round(store, number)
        by_spark, by_threads = (next(follower) for follower in followers)
        assert (by_spark.messages, by_spark.rejected) == (by_threads.messages, by_threads.rejected) == (ROWS * 3 / 2, 1)
        assert by_spark.body_schemas == by_threads.body_schemas
        counts.append(count_of_files(tmp_path / "spark", form))
    for follower in followers:
        follower.close()  # type: ignore[attr-defined]
    assert counts == [1, 2, 1, 2]
    found = tables(tmp_path / "spark", form)
    assert found == tables(tmp_path / "local", form)
    check_each_message_once(store, found)
    assert found["messages_users"].schema.field("body").type.num_fields == 1 + ROUNDS
    if form == "iceberg":
        by_spark_ids, by_threads_ids = (ids_of_files(table_of(tmp_path / name, "messages_users")) for name in runners)
        assert by_spark_ids == by_threads_ids
        assert all(by_spark_ids), "executors have written the ids"


#: Runs an export on Spark that kills itself: in a task of the second batch, or when the second batch is decided and no
#: table has it.
_CHILD = """
import json, os, signal, sys

from reput.files import FileLayer
from reput.jobs.lake import ExportOptions, export
from reput.spark import session
from reput.spark.runner import SparkRunner

store, output, when, options = sys.argv[1:]
driver = os.getpid()

class Runner(SparkRunner):
    def run(self, task, items, **named):
        def dying(item):
            found = task(item)
            if when == "in a task":
                os.kill(driver, signal.SIGKILL)
            return found
        return super().run(dying, items, **named)

class Files(FileLayer):
    def write_atomically(self, path, data):
        super().write_atomically(path, data)
        if "/commits/" in path:
            os.kill(driver, signal.SIGKILL)

spark = session("local[2]")
export(store, output, runner=Runner(spark), options=ExportOptions(**json.loads(options)), files=Files())
"""


@pytest.mark.parametrize(("form", "when"), [("delta", "decided"), ("iceberg", "decided"), ("iceberg", "in a task")])
def test_a_driver_that_is_killed_costs_no_row_and_doubles_none_and_threads_go_on(
    spark: SparkSession, form: str, when: str, tmp_path: Path
) -> None:
    store, output = tmp_path / "store", tmp_path / "spark"
    put_round(store, 0)
    export(store, output, runner=SparkRunner(spark), options=options(form))
    put_round(store, 1)
    arguments = [str(store), str(output), when, json.dumps(OPTIONS | {"format": form})]
    child = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert len(DISK.list_directory(str(output / "_reput/commits"))) == (2 if when == "decided" else 1)
    assert sum(table.num_rows for table in tables(output, form).values()) == ROWS * 3 / 2 + 1
    put_round(store, 2)
    export(store, output, runner=LocalRunner(2), options=options(form))
    check_each_message_once(store, tables(output, form))
    assert not [path.name for path in (output / "_reput").iterdir() if path.name.startswith("staging")]


def test_the_command_follows_by_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, output = tmp_path / "store", tmp_path / "out"

    def pauses(seconds: float) -> Any:
        assert seconds == 60
        put_round(store, 1)
        yield True
        yield False

    monkeypatch.setattr("reput.cli.commands.export.export.pauses", pauses)
    put_round(store, 0)
    answer = run_reput(
        "export", store, output, "--format", "iceberg", "--decode", "json", "--new-fields", "add", "--compact", "2",
        "--follow", "--interval", "60", "--runner", "spark", "--master", "local[2]", "--json",
    )  # fmt: skip
    assert answer.status == 1, answer.err  # by the rejects
    assert [(line["messages"], line["rejected"]) for line in answer.lines()] == [(ROWS * 3 / 2, 1)] * 2
    check_each_message_once(store, tables(output, "iceberg"))
    assert count_of_files(output, "iceberg") == 1
