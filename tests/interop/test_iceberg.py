"""Tables of an export as Apache Iceberg's own Java reads and changes them, in the embedded catalog and a REST one."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from tests.support.asking import until
from tests.support.iceberg import files_without_ids
from tests.support.lake import log_rows, put_topics, run
from tests.support.rocketmq.clients import built, run_client, run_command
from tests.support.sockets import free_ports

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
    """An export that grows, and Java's view of it. `catalog`: as an option of the export; `properties`: as Java's."""

    def __init__(self, folder: Path, catalog: str | None, properties: dict[str, str]) -> None:
        self.store, self.output = folder / "store", folder / "out"
        self._catalog = catalog
        self._java = [f"{key}={value}" for key, value in properties.items()]
        self._rounds, self.compact = 0, 3

    def grow(self) -> None:
        """Two topics get messages, orders one more field in its bodies; then a run of the export."""
        number = self._rounds
        self._rounds += 1
        bodies = [b'{"id": %d, "item": {"f%d": %d.5}}' % (number * ROWS + n, number, n) for n in range(ROWS)]
        put_topics(self.store, {"orders": bodies, "users": [*bodies[: ROWS // 2], b"none"]})
        more: dict[str, Any] = {"decode": "json", "new_fields": "add", "compact": self.compact, "split_bytes": 4000}
        run(self.store, self.output, format="iceberg", catalog=self._catalog, **more)

    def java(self, *arguments: object) -> Any:
        return run_client("iceberg", *self._java, *map(str, arguments), TABLE)

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
    found = sorted(found, key=lambda row: row["commit_log_offset"])
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
    check_rows(lake.java("map", 0)["rows"], lake.expected())
    lake.compact = 3
    lake.grow()
    check_rows(lake.java("read", 0)["rows"], lake.expected())
