"""SQL over topics: Spark's answers are DuckDB's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reput
from reput.errors import ConfigError
from reput.formats.message import Message
from reput.jobs.query.sql_job import Source, query_sql
from reput.spark.sql import query_sql_on_spark
from tests.support.commands import run_reput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "store"
    with reput.MessageStore.open(path) as opened:
        bodies = [{"id": n, "who": {"name": f"n{n % 3}"}, "Topic": "t", "total": n / 4} for n in range(200)]
        opened.put_messages([Message("my-orders", json.dumps(body).encode(), keys=["k"]) for body in bodies])
        opened.put_messages([Message("raw", b"\xff"), Message("my-orders", b"no JSON")])
    return path


def test_both_engines_give_the_same_rows(spark: SparkSession, store: Path) -> None:
    source = Source(path=store)
    for sql in (
        'select who.name, sum(id) n, max(total) m from "my-orders" group by 1 order by 1',
        'select id, body_Topic, topic, body_error from "my-orders" where id > 195 or id is null order by id',
        "select topic, count(*) n from messages group by topic order by topic",
    ):
        expected = query_sql(source, f"select * from ({sql}) order by all nulls first").reader.read_all()
        found = query_sql_on_spark(spark, source, sql.replace('"', "`")).toArrow()
        assert found.to_pylist() == expected.to_pylist()
        assert found.num_rows > 1


def test_messages_are_all_topics_also_beside_a_topic_of_that_name(spark: SparkSession, tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as opened:
        opened.put_messages([Message(name, b'{"id": 1}') for name in ("Messages", "messages", "orders")])
    rows = query_sql_on_spark(spark, Source(path=tmp_path), "select topic from messages order by topic").collect()
    assert [row.topic for row in rows] == ["Messages", "messages", "orders"]


def test_what_spark_refuses_is_told_in_a_line(spark: SparkSession, store: Path) -> None:
    for sql in ("selec", "select x from raw", "select * from nothing"):
        with pytest.raises(ConfigError, match=r"sql: (expected one statement that reads, .*: )?\["):
            query_sql_on_spark(spark, Source(path=store), sql)
    with pytest.raises(ConfigError, match=r"; the topic my-orders stands in quotes: `my-orders`$"):
        query_sql_on_spark(spark, Source(path=store), "select * from my-orders")


@pytest.mark.parametrize(
    "sql",
    [
        "insert overwrite directory '{folder}' using csv select tags from raw",
        "with some as (select tags from raw) insert overwrite directory '{folder}' using csv select * from some",
        "from raw insert overwrite directory '{folder}' using csv select tags",
        "create table made using csv location '{folder}/made' as select tags from raw",
        "select tags from raw; insert overwrite directory '{folder}' using csv select tags from raw",
        "select 1) union all (select 2",
        "drop view raw",
        "set spark.sql.session.timeZone=UTC",
    ],
)
def test_a_statement_that_does_not_read_is_refused_and_does_nothing(
    spark: SparkSession, store: Path, tmp_path: Path, sql: str
) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(ConfigError, match="expected one statement that reads"):
        query_sql_on_spark(spark, Source(path=store), sql.format(folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert query_sql_on_spark(spark, Source(path=store), "select topic from raw -- all;\n;").count() == 1


def test_days_and_hours_are_utcs_in_each_time_zone(spark: SparkSession, store: Path) -> None:
    sql = "select min(hour(store_timestamp)) h, min(cast(cast(store_timestamp as date) as string)) d from messages"
    expected = query_sql(Source(path=store), sql).reader.read_all().to_pylist()
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        frame = query_sql_on_spark(spark, Source(path=store), sql)
        assert spark.conf.get("spark.sql.session.timeZone") == "Pacific/Kiritimati"
        assert frame.toArrow().to_pylist() == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_the_command_asks_spark_and_tells_that_bodies_do_not_fit(spark: SparkSession, store: Path) -> None:
    sql = "select count(id) n from `my-orders`"
    answer = run_reput("query", store, "--sql", sql, "--runner", "spark", "--json")
    assert (answer.status, answer.lines()) == (1, [{"n": 200}])
    assert "topic my-orders: some bodies do not fit the schema" in answer.err
    answer = run_reput("query", store, "--sql", "select count(*) n from messages", "--runner", "spark", "--json")
    assert (answer.status, answer.lines()) == (0, [{"n": 202}])


def test_executors_read_for_a_query_with_a_work_folder(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = ("query", store, "--topics", "my-orders", "--json")
    expected = run_reput(*query).out
    monkeypatch.setattr("reput.jobs.query.kept_reads.PART_BYTES", 4000)
    assert run_reput(*query, "--work-dir", tmp_path / "work", "--runner", "spark").out == expected != ""
