"""Tables of an export as Iceberg's own Java, also in Spark, reads and changes them: an embedded and a REST catalog."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from tests.support.asking import until
from tests.support.iceberg import catalog_of, files_without_ids
from tests.support.lake import log_rows, put_topics, run
from tests.support.rocketmq.clients import built, run_client, run_command
from tests.support.sockets import free_ports

pytestmark = pytest.mark.java

ROUNDS, ROWS = 4, 60
TABLE = "reput.messages_orders"


@contextmanager
def rest_catalog(home: Path) -> Iterator[str]:
    """The address of Iceberg's REST catalog of reference, as a process; its warehouse is in home."""
    (port,) = free_ports(1)
    environment = {"CATALOG_WAREHOUSE": f"file://{home}/warehouse", "CATALOG_REST_PORT": str(port)}
    with (
        (home / "catalog.txt").open("w") as told,
        subprocess.Popen(
            [*run_command("iceberg", home), "serve"], cwd=built("iceberg"), env=os.environ | environment, stdout=told,
            stderr=told,
        ) as process,
    ):  # fmt: skip
        try:
            until(lambda: _takes_connections(port) or process.poll() is not None)
            assert process.poll() is None, (home / "catalog.txt").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _takes_connections(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


class Lake:
    """An export that grows, and Java's view of it.

    `catalog`: as an option of the export; `properties`: as Java's, the name first.
    """

    def __init__(self, folder: Path, catalog: str | None, properties: dict[str, str]) -> None:
        self.store, self.output = folder / "store", folder / "out"
        self._catalog = catalog
        self._java = [f"{key}={value}" for key, value in properties.items()]
        self.spark_table = f"{properties['name']}.{TABLE}"
        self._rounds, self.compact, self.retain_hours = 0, 3, 120

    def grow(self) -> None:
        """Two topics get messages, orders one more field in its bodies; then a run of the export."""
        number = self._rounds
        self._rounds += 1
        bodies = [b'{"id": %d, "item": {"f%d": %d.5}}' % (number * ROWS + n, number, n) for n in range(ROWS)]
        put_topics(self.store, {"orders": bodies, "users": [*bodies[: ROWS // 2], b"none"]})
        more: dict[str, Any] = {"decode": "json", "new_fields": "add", "compact": self.compact, "split_bytes": 4000}
        more |= {"catalog": self._catalog, "retain_hours": self.retain_hours}
        run(self.store, self.output, format="iceberg", **more)

    def java(self, *arguments: object) -> Any:
        return run_client("iceberg", *self._java, *map(str, arguments), TABLE)

    def spark(self, *queries: str) -> Any:
        return run_client("iceberg-spark", *self._java, "query", *queries)

    def table(self) -> Table:
        with load_catalog(self._catalog) if self._catalog else catalog_of(self.output) as catalog:
            return catalog.load_table(TABLE)

    def expected(self) -> list[dict[str, Any]]:
        return log_rows(self.store, ["orders"])


@pytest.fixture(params=["embedded", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    if request.param == "embedded":
        output = tmp_path / "out"
        uri = f"jdbc:sqlite:{output}/catalog.db"
        yield Lake(tmp_path, None, {"name": "reput", "type": "jdbc", "uri": uri, "warehouse": f"file://{output}"})
        return
    with rest_catalog(tmp_path) as uri:
        monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", uri)
        monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        yield Lake(tmp_path, "shop", {"name": "shop", "type": "rest", "uri": uri})


def check_rows(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Each message once, with its body as columns: fields that its body has not are null."""
    found = in_log_order(found)
    names = ["topic", "commit_log_offset", "queue_offset", "keys"]
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
    assert [datetime.fromisoformat(row["store_timestamp"]) for row in found] == [
        row["store_timestamp"] for row in expected
    ]
    assert [row["date"] for row in found] == [str(row["date"]) for row in expected]
    for number, row in enumerate(found):
        assert row["body"]["id"] == number
        given = {name: value for name, value in row["body"]["item"].items() if value is not None}
        assert given == {f"f{number // ROWS}": number % ROWS + 0.5}


def as_spark_has(rows: pa.Table) -> list[dict[str, Any]]:
    """What pyiceberg has read, in log order and as the JSON of Spark."""
    found = rows.sort_by("commit_log_offset").to_pylist(maps_as_pydicts="strict")
    return json.loads(json.dumps(found, default=_text))  # type: ignore[no-any-return]


def _text(value: date) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value)


def in_log_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["commit_log_offset"])


def test_iceberg_itself_reads_what_the_log_has(lake: Lake) -> None:
    for _ in range(ROUNDS):
        lake.grow()
    expected = lake.expected()
    assert len(expected) == ROUNDS * ROWS
    whole = lake.java("read", 0)
    check_rows(whole["rows"], expected)
    assert whole["properties"]["reput.commit"] == str(ROUNDS - 1)
    assert "overwrite" in whole["snapshots"], "small files were put together"
    last = expected[-ROWS // 2]["commit_log_offset"]
    some = lake.java("read", last)
    assert sorted(row["commit_log_offset"] for row in some["rows"]) == [
        row["commit_log_offset"] for row in expected if row["commit_log_offset"] >= last
    ]
    assert some["files"] < whole["files"], "the bounds of columns leave files out"


def test_spark_reads_what_pyiceberg_reads(lake: Lake) -> None:
    lake.retain_hours = 0
    for _ in range(ROUNDS - 1):
        lake.grow()
    lake.retain_hours = 120
    lake.grow()
    table, name = lake.table(), lake.spark_table
    whole = as_spark_has(table.scan().to_arrow())
    check_rows(whole, lake.expected())
    compacted, newest = table.snapshots()
    assert compacted.snapshot_id == newest.parent_snapshot_id, "earlier snapshots have gone, with their files"
    offset, time = whole[-ROWS // 2]["commit_log_offset"], whole[0]["store_timestamp"]
    every, count, late, early, before, item = lake.spark(
        f"select * from {name}",
        f"select count(*) n from {name}",
        f"select * from {name} where commit_log_offset >= {offset}",
        f"select * from {name} where store_timestamp <= timestamp '{time}'",
        f"select * from {name} version as of {compacted.snapshot_id}",
        f"select commit_log_offset, body.item.* from {name} where body.item.f1 > 50",
    )
    assert in_log_order(every["rows"]) == whole
    assert count["rows"] == [{"n": len(whole)}]
    assert in_log_order(late["rows"]) == whole[-ROWS // 2 :]
    assert in_log_order(early["rows"]) == [row for row in whole if row["store_timestamp"] <= time]
    assert (every["files"], late["files"], early["files"]) == (2, 1, 1), "the bounds of columns leave files out"
    assert in_log_order(before["rows"]) == as_spark_has(table.scan(snapshot_id=compacted.snapshot_id).to_arrow())
    assert len(before["rows"]) == (ROUNDS - 1) * ROWS
    assert in_log_order(item["rows"]) == [
        {"commit_log_offset": row["commit_log_offset"], **row["body"]["item"]}
        for row in whole
        if (row["body"]["item"]["f1"] or 0) > 50
    ]


def test_an_export_goes_on_after_iceberg_itself_has_changed_the_table(lake: Lake) -> None:
    lake.grow()
    lake.grow()
    lake.java("expire")
    assert len(lake.java("read", 0)["snapshots"]) == 1
    lake.grow()
    lake.grow()
    check_rows(lake.java("read", 0)["rows"], lake.expected())


def test_an_export_goes_on_in_a_table_of_an_earlier_version(lake: Lake) -> None:
    lake.compact = 0
    with files_without_ids():
        lake.grow()
        lake.grow()
    lake.grow()
    [mapped] = lake.spark(f"select * from {lake.spark_table}")
    check_rows(mapped["rows"], lake.expected())
    lake.compact = 3
    lake.grow()
    check_rows(lake.java("read", 0)["rows"], lake.expected())
