"""SQL over topics and the fields of their bodies."""

from __future__ import annotations

import gc
import json
import os
import weakref
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError
from reput.formats.message import Message
from reput.jobs.query import query_job
from reput.jobs.query.row_files import write_rows
from reput.jobs.query.sql_job import Source, SqlTable, query_sql
from reput.log.plans.plan import plan_read

ORDERS = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders with fields, some of which are named as columns are; other topics with odd names and bodies."""
    path = tmp_path_factory.mktemp("sql") / "store"
    with reput.MessageStore.open(path) as opened:
        for n in range(ORDERS):
            body = {"id": n, "total": n / 4, "Flag": f"f{n % 2}", "who": {"name": f"n{n % 3}"}, "body_flag": True}
            opened.put_message(Message("orders", json.dumps(body).encode(), tags="ab"[n % 2], keys=[f"k{n}"]))
        opened.put_message(Message("%RETRY%my-group", b'{"n": 1}'))
        opened.put_messages([Message("raw", body) for body in (b"\xff", b"", b"text")])
        opened.put_messages([Message("mixed", body) for body in (b'{"n": 1}', b"no", b'{"n": 3}')])
    return path


def run_sql(store: Path, sql: str, **source: Any) -> list[dict[str, Any]]:
    return query_sql(Source(path=store, **source), sql).reader.read_all().to_pylist()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select count(*) n from orders", [{"n": ORDERS}]),
        ("SELECT max(id) m, sum(total) t FROM Orders WHERE tags = 'a'", [{"m": 298, "t": sum(range(0, 300, 2)) / 4}]),
        ("select who.name, count(*) n from orders group by 1 order by 1",
         [{"name": "n0", "n": 100}, {"name": "n1", "n": 100}, {"name": "n2", "n": 100}]),
        ("select flag, body_flag, body_body_flag from orders where id = 7",
         [{"flag": 0, "body_Flag": "f1", "body_body_flag": True}]),
        ('select n from "%RETRY%my-group"', [{"n": 1}]),
        ("select octet_length(body) n from raw order by 1", [{"n": 0}, {"n": 1}, {"n": 4}]),
        ("select topic, count(*) n from messages group by 1 having n > 2 order by 1", [
            {"topic": "mixed", "n": 3}, {"topic": "orders", "n": ORDERS}, {"topic": "raw", "n": 3}]),
        ("select a.id from orders a join orders b on b.id = a.id + 1 where b.total > 74.5", [{"id": 298}]),
        ("with few as (select id from orders where keys[1] = 'k9') select * from few", [{"id": 9}]),
        ("from orders select id order by id desc limit 1", [{"id": 299}]),
        ("select id from orders where store_timestamp < '2000-01-01'", []),
    ],
)  # fmt: skip
def test_statements_see_columns_and_fields(store: Path, sql: str, rows: list[dict[str, Any]]) -> None:
    assert run_sql(store, sql) == rows


@pytest.mark.parametrize("sql", ["show tables", " SHOW\n TABLES ; "])
def test_tables_are_listed(store: Path, sql: str) -> None:
    names = ["%RETRY%my-group", "messages", "mixed", "orders", "raw"]
    assert run_sql(store, sql) == [{"name": name} for name in names]
    assert run_sql(store, sql, topics=["raw"]) == [{"name": "messages"}, {"name": "raw"}]


def test_all_columns_come_with_a_star(store: Path) -> None:
    (row,) = run_sql(store, "select * from orders where id = 3")
    (read,) = reput.read_log(store, topics=["orders"], keys=["k3"]).read_all().to_pylist()
    assert {name: row[name] for name in read} == read
    assert set(row) - set(read) == {"id", "total", "body_Flag", "who", "body_body_flag", "body_error"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("bit '1010'", "1010"),
        ("timetz '12:00:00+02'", "12:00:00+02"),
        ("340282366920938463463374607431768211455::uhugeint", "340282366920938463463374607431768211455"),
    ],
)
def test_values_that_arrow_would_change_are_text(store: Path, value: str, text: str) -> None:
    assert run_sql(store, f"select {value} as one, [{value}] as many") == [{"one": text, "many": [text]}]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_intervals_and_other_types_that_files_lack_are_text(store: Path, tmp_path: Path, kind: str) -> None:
    answer = """
        select max(store_timestamp) - min(store_timestamp) + interval 90 minute as age, [interval 1 day] as days,
            {'Of "x"': interval 1 month, 'n': 1} as one, map {'k': interval 2 day} as named,
            array_value(interval 1 day, interval 2 day) as two, union_value(n := 7) as either, 12::bignum as big,
            5 as age
        from (select timestamp '2026-05-04' as store_timestamp)
    """
    file = tmp_path / f"answer.{kind}"
    assert write_rows(query_sql(Source(path=os.fspath(store)), answer).reader, file) == 1
    kinds = query_sql(Source(path=os.fspath(store)), answer).reader.schema
    assert [str(kinds.field(name).type) for name in ("age", "either", "big", "age_1")] == [
        "string", "string", "string", "int32",
    ]  # fmt: skip
    assert query_sql(Source(path=os.fspath(store)), answer).reader.read_all().to_pylist() == [
        {
            "age": "01:30:00", "days": ["1 day"], "one": {'Of "x"': "1 month", "n": 1}, "named": [("k", "2 days")],
            "two": ["1 day", "2 days"], "either": "7", "big": "12", "age_1": 5,
        }
    ]  # fmt: skip


def test_only_named_columns_and_topics_are_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, list[str]]] = []
    read = Source.read

    def listening(self: Source, topic: str | None, columns: Any) -> Any:
        asked.append((topic, list(columns)))
        return read(self, topic, columns)

    monkeypatch.setattr(Source, "read", listening)
    run_sql(store, "select tags from orders where queue_offset > 3", schemas={"orders": "id bigint"})
    assert asked == [("orders", ["queue_offset", "tags"])]
    asked.clear()
    run_sql(store, "select sum(id) from orders where tags = 'a'", schemas={"orders": "id bigint"})
    assert asked == [("orders", ["tags", "body", "status"])]


def test_a_schema_that_is_given_types_the_fields(store: Path) -> None:
    sql = "select id, typeof(id) t from orders where id = '5'"
    assert run_sql(store, sql, schemas={"orders": "id double"}) == [{"id": 5.0, "t": "DOUBLE"}]
    with pytest.raises(ConfigError, match="expected a type"):
        run_sql(store, sql, schemas={"orders": "id colour"})
    with pytest.raises(ConfigError, match="there is no topic 'orderz'"):
        run_sql(store, sql, schemas={"orderz": "id double"})


def test_bodies_that_do_not_fit_are_null_and_told(store: Path) -> None:
    found = query_sql(Source(path=store), "select n, body_error from mixed order by queue_offset")
    rows = found.reader.read_all().to_pylist()
    assert [row["n"] for row in rows] == [1, None, 3]
    assert "no JSON object" in rows[1]["body_error"]
    assert found.findings == ["topic mixed: 1 body does not fit the schema, so fields are null; body_error says why"]
    silent = query_sql(Source(path=store), "select count(*) from mixed")
    silent.reader.read_all()
    assert silent.findings == []


def test_times_and_topics_bound_what_is_read(store: Path) -> None:
    assert run_sql(store, "select count(*) n from messages", end=0) == [{"n": 0}]
    assert run_sql(store, "select count(*) n from messages", topics=["raw"]) == [{"n": 3}]
    with pytest.raises(ConfigError, match="Table with name orders does not exist"):
        run_sql(store, "select * from orders", topics=["raw"])


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select 1; select 2", "one statement that reads"),
        ("copy messages to '/tmp/never.csv'", "one statement that reads"),
        ("create table t as select 1", "one statement that reads"),
        ("", "one statement that reads"),
        ("selec", '^sql: Parser Error: syntax error at or near "selec"; line 1, at: selec$'),
        ("select topic,\n  'x", "^sql: Parser Error: unterminated string literal; line 2, at: 'x$"),
        ("select nothing from messages", "^sql: Binder Error: .*FROM clause! Candidate bindings: [^\\n]*$"),
        ("select * from nothing", "nothing does not exist"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("select x from raw", "raw: schema: no body of the sample is JSON"),
    ],
)
def test_what_is_no_query_is_refused(store: Path, sql: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        run_sql(store, sql)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("select * from shop-orders", '; the topic shop-orders stands in quotes: "shop-orders"'),
        ("select * from %RETRY%shop", '; the topic %RETRY%shop stands in quotes: "%RETRY%shop"'),
        ("select * from 7days where", '; the topic 7days stands in quotes: "7days"'),
        ("select * from order", '; the topic order stands in quotes: "order"'),
        ('select nothing from "shop-orders"', ""),
        ("select nothing from messages where topic = 'shop-orders'", ""),
        ("selec * from shop", ""),
    ],
)
def test_a_topic_that_needs_quotes_is_named_where_they_are_missing(tmp_path: Path, sql: str, hint: str) -> None:
    with reput.MessageStore.open(tmp_path) as opened:
        opened.put_messages([Message(name, b"{}") for name in ("shop-orders", "shop", "%RETRY%shop", "7days", "order")])
    with pytest.raises(ConfigError, match=r"^sql: ") as refused:
        run_sql(tmp_path, sql)
    before, quotes, after = str(refused.value).partition("; the topic ")
    assert quotes + after == hint, before


@pytest.mark.parametrize("topic", ['ta"ble', 'a"', '"', "bäck`tick", "it's", "-- x"])
def test_a_topic_with_quotes_in_its_name_is_a_table(tmp_path: Path, topic: str) -> None:
    """In a quoted name its quote stands twice: no table had such a name."""
    with reput.MessageStore.open(tmp_path) as opened:
        opened.put_messages([Message(topic, b'{"id": 1}')])
    quoted = topic.replace('"', '""')
    assert run_sql(tmp_path, f'select id from "{quoted}"') == [{"id": 1}]
    assert Source(path=tmp_path).tables(f"select id from `{topic.replace('`', '``')}`") == [topic]  # Spark's


def test_a_field_whose_name_has_a_zero_byte_has_no_column(tmp_path: Path) -> None:
    """DuckDB takes such a name up to the byte: two columns were `a`, and an object with both ended the answer."""
    with reput.MessageStore.open(tmp_path) as opened:
        opened.put_messages([Message("orders", b'{"a": 1, "a\\u0000b": 2, "x": {"a": 3, "a\\u0000b": 4}}')])
    (row,) = run_sql(tmp_path, "select * from orders")
    assert {name: value for name, value in row.items() if name in ("a", "a_1", "x")} == {"a": 1, "x": {"a": 3}}


def test_topics_that_differ_in_case_alone_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as opened:
        opened.put_messages([Message("Orders", b"{}"), Message("orders", b"{}")])
    with pytest.raises(ConfigError, match="'Orders' and 'orders' are one name to SQL; choose one by --topics"):
        run_sql(tmp_path, "select * from orders")
    assert len(run_sql(tmp_path, "select * from orders", topics=["Orders"])) == 1


@pytest.mark.parametrize("names", [["messages"], ["Messages"], ["MESSAGES", "messages"]])
def test_messages_are_all_topics_also_beside_a_topic_of_that_name(tmp_path: Path, names: list[str]) -> None:
    with reput.MessageStore.open(tmp_path) as opened:
        opened.put_messages([Message(name, b'{"id": 1}') for name in ["orders", *names]])
    sql = "select topic, count(*) n from Messages group by all order by topic"
    assert run_sql(tmp_path, sql) == [{"topic": name, "n": 1} for name in sorted(["orders", *names])]
    for name in names:
        assert run_sql(tmp_path, sql, topics=[name]) == [{"topic": name, "n": 1}]
        assert run_sql(tmp_path, f"select topic from messages where topic = '{name}'") == [{"topic": name}]
        with pytest.raises(ConfigError, match=f"{name} is the table of all topics"):
            run_sql(tmp_path, sql, schemas={name: "id bigint"})
    with pytest.raises(ConfigError, match=r"there are messages, orders$"):
        run_sql(tmp_path, "select * from messages_")


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select 1 as a, 2 as a, 3 as A, 4 as a_1", ["a", "a_1", "A_2", "a_1_1"]),  # as DuckDB names a table's columns
        ("select a.id, b.id, a.tags from orders a join orders b on a.id = b.id", ["id", "id_1", "tags"]),
    ],
)
def test_columns_of_one_name_get_numbers_and_each_has_its_values(store: Path, sql: str, names: list[str]) -> None:
    rows = query_sql(Source(path=store), sql).reader.read_all()
    assert rows.column_names == names
    unnamed = query_sql(Source(path=store), f"select * from ({sql})").reader.read_all()
    assert rows.to_pylist() == unnamed.to_pylist()
    assert rows.num_rows


def test_fields_whose_names_are_one_to_sql_are_columns_all_the_same(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, small=True) as opened:
        bodies = [b'{"id": 1, "ID": 7, "": 0}', b'{"id": 2, "ID": 8}', b'{"a.b": 3, "a": {"b": 4, "": 5}}']
        opened.put_messages([Message("odd", body) for body in bodies])
    sql = 'select sum(id) one, sum(body_ID) other, sum("a.b") dotted, sum(a.b) deep, count(body_error) bad from odd'
    (row,) = query_sql(Source(path=tmp_path), sql).reader.read_all().to_pylist()
    assert {name: int(value) for name, value in row.items()} == {
        "one": 3, "other": 15, "dotted": 3, "deep": 4, "bad": 0
    }  # fmt: skip


def test_damage_is_our_own_error(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as opened:
        offsets = [result.commit_log_offset for result in opened.put_messages([Message("orders", b"{}")] * 100)]
    path = tmp_path / "commitlog" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(offsets[50] + 4)
        file.write(b"????")
    with pytest.raises(CorruptRecordError, match="damaged at offset"):
        run_sql(tmp_path, "select count(tags) from messages")


def test_a_table_can_be_scanned_again(store: Path) -> None:
    table = SqlTable(Source(path=store), "orders", {})
    assert table.scanner(["id"]).to_table() == table.scanner(["id"]).to_table()


def test_tables_of_a_statement_share_what_is_planned(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`orders` is named, so its fields are looked at; `messages` reads the same records."""
    planned = []
    monkeypatch.setattr(query_job, "plan_read", lambda *given: planned.append(given) or plan_read(*given))
    rows = query_sql(Source(path=store), "select count(*) as many from messages where topic = 'orders'").reader
    assert (
        rows.read_all()["many"].to_pylist()
        == query_sql(Source(path=store), "select count(*) as many from orders").reader.read_all()["many"].to_pylist()
    )
    assert len(planned) == 2


def test_an_answer_that_nobody_reads_to_its_end_is_freed(store: Path) -> None:
    found = query_sql(Source(path=store), "select * from orders")
    freed = weakref.ref(found.tables[0])
    next(iter(found.reader))
    del found
    gc.collect()
    assert freed() is None
