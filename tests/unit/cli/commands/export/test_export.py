"""reput export: files, text and JSON, a report, and what is refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog

import reput
import reput.cli.commands.export.export
from tests.support.commands import SMALL_FILES, Run
from tests.support.damaged_copy import damaged_copy
from tests.support.descriptors import descriptor_set
from tests.support.lake import put_topics


def test_a_store_becomes_parquet_files(store: Path, tmp_path: Path, run_reput: Run) -> None:
    report = tmp_path / "report.html"
    answer = run_reput("export", store, tmp_path / "lake", "--json", "--report", report)
    assert answer.status == 0, answer.err
    found = answer.object()
    assert (found["messages"], found["commits"], found["topics"][0]["topic"]) == (5, 1, "orders")
    table = ds.dataset(tmp_path / "lake/messages", format="parquet").to_table().sort_by("commit_log_offset")
    assert table["body"].to_pylist() == reput.read_log(store, columns=["body"]).read_all()["body"].to_pylist()
    assert "orders" in report.read_text()


def test_bodies_that_are_no_text_are_told(store: Path, tmp_path: Path, run_reput: Run) -> None:
    page = tmp_path / "report.html"
    answer = run_reput("export", store, tmp_path / "lake", "--decode", "utf8", "--report", page)
    assert (answer.status, answer.err) == (1, "")
    for text in (answer.out, page.read_text()):
        assert "topic orders: 1 body could not be decoded; rejects/ has each with the reason" in text
        assert "queue 0, queue offset 3, commit log offset" in text
    (file,) = (tmp_path / "lake/rejects").rglob("*.parquet")
    names = ["queue_id", "queue_offset", "commit_log_offset", "reason", "body"]
    (row,) = parquet.read_table(file, columns=names).to_pylist()
    assert (row["queue_id"], row["queue_offset"], row["body"]) == (0, 3, b"\xff\xfe")
    answer = run_reput("export", store, tmp_path / "other", "--decode", "utf8", "--json")
    first = answer.object()["first_rejects"]
    assert (answer.status, answer.object()["rejected"], first[0]["reason"]) == (1, 1, row["reason"])


def test_strict_refuses_a_body_and_names_its_place(store: Path, tmp_path: Path, run_reput: Run) -> None:
    answer = run_reput("export", store, tmp_path / "lake", "--decode", "utf8", "--strict")
    assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "topic orders, queue 0, queue offset 3, commit log offset" in answer.err
    assert not list((tmp_path / "lake").rglob("*.parquet"))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_bodies_of_avro_become_fields_by_a_schema_file(tmp_path: Path, run_reput: Run, form: str) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    for topic, body in (("orders", b"\x02"), ("orders", b"\x04"), ("orders", b"\xff"), ("others", b"\x02")):
        (tmp_path / "body").write_bytes(body)
        command = ("put", tmp_path / "store", "--topic", topic, "--body-file", tmp_path / "body", *SMALL_FILES)
        assert run_reput(*command).status == 0
    command = ("export", tmp_path / "store", tmp_path / "lake", "--decode", "avro", "--format", form, "--json")
    answer = run_reput(*command, "--schema-file", f"orders={tmp_path / 'order.avsc'}")
    found = answer.object()
    assert (answer.status, found["messages"], found["rejected"]) == (1, 2, 2)
    assert found["body_schemas"] == {"orders": "id int64"}
    reasons = [one["reason"] for one in found["first_rejects"]]
    assert reasons == ["no Avro of the schema: it ends within the value", "no schema file for this topic"]
    (file,) = (tmp_path / "lake/messages/orders").rglob(f"*.{form}")
    if form == "csv":
        assert [row["body"] for row in csv.DictReader(file.open(newline=""))] == ['{"id": 1}', '{"id": 2}']
    else:
        assert parquet.read_table(file)["body"].to_pylist() == [{"id": 1}, {"id": 2}]
    (tmp_path / "order.avsc").write_text(json.dumps(schema | {"fields": [{"name": "n", "type": "long"}]}))
    again = run_reput(*command, "--schema-file", f"orders={tmp_path / 'order.avsc'}")
    assert (again.status, "schema" in again.err) == (2, True)


def test_bodies_of_protobuf_become_fields_by_a_descriptor_set(tmp_path: Path, run_reput: Run) -> None:
    (tmp_path / "shop.desc").write_bytes(descriptor_set())
    (tmp_path / "body").write_bytes(b"\x0a\x02s1")
    put = ("put", tmp_path / "store", "--topic", "lines", "--body-file", tmp_path / "body", *SMALL_FILES)
    assert run_reput(*put).status == 0
    command = ("export", tmp_path / "store", tmp_path / "lake", "--decode", "protobuf")
    for text, words in (
        (tmp_path / "shop.desc", "names no message"),
        (f"{tmp_path / 'shop.desc'}:shop.Lines", "no message 'shop.Lines'; there are"),
        (f"{tmp_path / 'gone.desc'}:shop.Line", "gone.desc"),
    ):
        answer = run_reput(*command, "--schema-file", text)
        assert (answer.status, words in answer.err) == (2, True), answer.err
    assert "--decode protobuf needs --schema-file" in run_reput(*command).err
    assert run_reput(*command, "--schema-file", f"{tmp_path / 'shop.desc'}:shop.Line").status == 0
    (file,) = (tmp_path / "lake/messages/lines").rglob("*.parquet")
    assert parquet.read_table(file)["body"].to_pylist() == [{"sku": "s1"}]


def test_each_topic_may_be_given_its_schema(tmp_path: Path, run_reput: Run) -> None:
    for topic, body in (("orders", '{"id": 1, "total": 2.5}'), ("users", '{"id": "u"}'), ("ids", '{"id": 1}')):
        assert run_reput("put", tmp_path / "store", "--topic", topic, "--body", body, *SMALL_FILES).status == 0
    schemas = ["--schema", "orders=id int", "--schema", "users=id string, `a=b` int"]
    answer = run_reput("export", tmp_path / "store", tmp_path / "lake", "--decode", "json", *schemas, "--json")
    assert answer.object()["body_schemas"] == {"ids": "id bigint", "orders": "id int", "users": "id string, `a=b` int"}
    assert answer.status == 0
    one = ["--topics", "ids", "--schema", "id int, `a=b` int"]
    answer = run_reput("export", tmp_path / "store", tmp_path / "ids", "--decode", "json", *one, "--json")
    assert answer.object()["body_schemas"] == {"ids": "id int, `a=b` int"}
    answer = run_reput("export", tmp_path / "store", tmp_path / "no", "--decode", "json", "--schema", "order=id int")
    assert "there is no topic 'order'; did you mean 'orders'?" in answer.err


def test_a_run_that_finds_nothing_new_says_so_in_a_line(store: Path, tmp_path: Path, run_reput: Run) -> None:
    end = run_reput("export", store, tmp_path / "lake", "--json").object()["end_offset"]
    answer = run_reput("export", store, tmp_path / "lake")
    assert (answer.status, answer.out) == (
        0,
        f"nothing new: the log ends at offset {end}, and so does {tmp_path}/lake\n",
    )
    assert run_reput("export", store, tmp_path / "lake", "--json").object()["messages"] == 0


def test_damage_that_is_passed_over_is_told_and_makes_the_exit_status(tmp_path: Path, run_reput: Run) -> None:
    store, file, offset = damaged_copy(tmp_path / "store", 2)
    refused = run_reput("export", store, tmp_path / "lake")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "--damaged skip" in refused.err
    page = tmp_path / "report.html"
    answer = run_reput("export", store, tmp_path / "lake", "--damaged", "skip", "--report", page)
    assert answer.status == 1, answer.err
    for text in (answer.out, page.read_text()):
        assert f"damaged at offset {offset}" in text
    answer = run_reput("export", store, tmp_path / "other", "--damaged", "skip", "--json")
    (damage,) = answer.object()["damages"]
    assert (answer.status, damage["path"], damage["begin"]) == (1, file, offset)


@pytest.mark.parametrize("command", ["export", "replay"])
def test_a_topic_that_is_not_there_is_told(command: str, store: Path, tmp_path: Path, run_reput: Run) -> None:
    answer = run_reput(command, store, tmp_path / "out", "--topics", "order")
    assert answer.status == 0, answer.err
    assert "there is no topic 'order'; did you mean 'orders'?" in answer.err


def test_following_tells_each_time_what_came(
    store: Path, tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pauses(seconds: float) -> Iterator[bool]:
        for count in (1, 2):
            for _ in range(count):
                assert run_reput("put", store, "--topic", "orders", "--body", "more", *SMALL_FILES).status == 0
            yield True
        yield False

    monkeypatch.setattr(reput.cli.commands.export.export, "pauses", pauses)
    answer = run_reput("export", store, tmp_path / "lake", "--follow", "--json")
    assert answer.status == 0, answer.err
    assert [line["messages"] for line in answer.lines()] == [5, 1, 2]
    answer = run_reput("export", store, tmp_path / "other", "--follow", "--report", tmp_path / "report.html")
    assert (answer.status, answer.err) == (0, "")
    assert [re.findall(r" (messages=\d+|topics=\d+) ", line) for line in answer.out.splitlines()] == [
        [f"messages={count}", "topics=1"] for count in (8, 1, 2)
    ]
    assert re.search(r"to_offset=\d+ .* newest_timestamp=20\S+Z ", answer.out)
    assert "Export of" in (tmp_path / "report.html").read_text()


def test_following_tells_what_was_rejected_beside_the_line_of_the_run(
    store: Path, tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput.cli.commands.export.export, "pauses", lambda seconds: iter([False]))
    answer = run_reput("export", store, tmp_path / "lake", "--decode", "utf8", "--follow")
    assert (answer.status, len(answer.out.splitlines())) == (1, 1)
    assert " rejected=1 " in answer.out
    assert "topic orders: 1 body could not be decoded" in answer.err


def test_following_tables_tells_age_and_lag(
    store: Path, tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pauses(seconds: float) -> Iterator[bool]:
        assert run_reput("put", store, "--topic", "fresh", "--body", '{"late": 1}', *SMALL_FILES).status == 0
        yield True
        yield False

    monkeypatch.setattr(reput.cli.commands.export.export, "pauses", pauses)
    options = [
        "--format",
        "iceberg",
        "--namespace",
        "shop",
        "--decode",
        "json",
        "--new-fields",
        "add",
        "--compact",
        "2",
    ]
    assert run_reput("put", store, "--topic", "fresh", "--body", '{"id": 1}', *SMALL_FILES).status == 0
    answer = run_reput("export", store, tmp_path / "lake", "--topics", "fresh", *options, "--follow", "--json")
    assert answer.status == 0, answer.err
    assert [(line["messages"], line["lag_bytes"]) for line in answer.lines()] == [(1, 0), (1, 0)]
    assert all(0 <= line["age_seconds"] < 600 for line in answer.lines())
    with SqlCatalog("reput", uri=f"sqlite:///{tmp_path}/lake/catalog.db") as catalog:
        table = catalog.load_table("shop.messages_fresh")
    partitions = [str(one.file.partition) for one in table.scan().plan_files()]
    assert len(partitions) == len(set(partitions))  # a file a date: midnight may have come between the two puts
    assert table.scan().to_arrow()["body"].to_pylist() == [{"id": 1, "late": None}, {"id": None, "late": 1}]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--schema", "id bigint"], "--schema counts only with --decode json"),
        (["--decode", "json", "--schema", "id number"], "expected a type"),
        (["--decode", "json"], "no body of the sample is JSON"),
        (["--columns", "key"], "did you mean 'keys'"),
        (["--topics", " ,"], "an empty list"),
        (["--format", "orc"], "'orc'"),
    ],
)
def test_a_wrong_option_is_refused(
    store: Path, tmp_path: Path, run_reput: Run, arguments: list[str], reason: str
) -> None:
    answer = run_reput("export", store, tmp_path / "lake", *arguments)
    assert answer.status == 2
    assert reason in answer.err
    assert run_reput("export", store, tmp_path / "lake").status == 0


def test_a_table_that_was_dropped_is_told_and_the_status_is_1(tmp_path: Path, run_reput: Run) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    command = ["export", store, output, "--format", "delta", "--decode", "json"]
    put_topics(store, {"orders": [b'{"id": 0}'], "users": [b'{"id": 0}']})
    assert run_reput(*command).status == 0
    shutil.rmtree(output / "messages/orders")
    answer = run_reput(*command)
    assert (answer.status, "messages/orders: the table lacks commits" in answer.out) == (1, True)
    put_topics(store, {"orders": [b'{"id": 1}']})
    answer = run_reput(*command, "--json")
    assert (answer.status, list(answer.object()["table_faults"])) == (1, ["messages/orders"])
    answer = run_reput(*command, "--allow-data-loss")
    assert (answer.status, "it goes on without" in answer.out) == (1, True)
    assert run_reput(*command).status == 0
