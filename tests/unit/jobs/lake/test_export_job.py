"""An export holds the rows that `read_log` gives, whatever the splits, the commits and the runs were."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

import reput
from reput.errors import ConfigError, CorruptRecordError, DataLossError, StoreFormatError
from reput.jobs.lake import export_task
from reput.jobs.lake.export_job import Export, ExportOptions, export, follow
from reput.jobs.lake.files import escaped, table_name
from reput.jobs.runner import LocalRunner
from reput.log import StoreDirectory
from tests.support.damage import at, overwrite
from tests.support.hand_log import HandLog

CORPORA = Path(__file__).parents[3] / "golden/5.3.3"
PARTITIONS = pa.schema([("topic", pa.string()), ("date", pa.date32())])
#: Log files of 16 KiB, so that a few hundred messages are many parts.
SMALL = {"mapped_file_size_commit_log": 16 << 10, "max_message_size": 4096}
NAMES = ["orders", "%RETRY%group", "a|b", "a_b-c"]


def run(store: Path, output: Path, **options: Any) -> Export:
    return export(store, output, runner=LocalRunner(2), options=ExportOptions(**options))


def rows_of(output: Path, kind: str = "messages") -> list[dict[str, Any]]:
    """All rows in log order, as a plain reader of the folder sees them."""
    if not (output / kind).exists():
        return []
    table = ds.dataset(output / kind, partitioning=ds.partitioning(PARTITIONS, flavor="hive")).to_table()
    return table.sort_by([("commit_log_offset", "ascending")]).to_pylist()


def log_rows(store: Path, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """What `read_log` gives, with the day of each row."""
    rows = reput.read_log(store, topics=topics).read_all().to_pylist()
    return [row | {"date": row["store_timestamp"].date()} for row in rows]


def check_files(output: Path) -> list[Path]:
    """Each file is in log order, begins where its name says, and overlaps none of its folder."""
    paths = sorted(output.rglob("*.parquet"))
    ends: dict[Path, int] = {}
    for path in paths:
        offsets = parquet.read_table(path, partitioning=None)["commit_log_offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert int(path.stem) == offsets[0] > ends.get(path.parent, -1)
        ends[path.parent] = offsets[-1]
    return paths


def put(store: Path, first: int, count: int, *, body: bytes = b'{"id": %d, "name": "n"}') -> None:
    table = pa.table(
        {
            "topic": [NAMES[n % len(NAMES)] for n in range(first, first + count)],
            "queue_id": pa.array([n % 3 for n in range(first, first + count)], pa.int32()),
            "keys": [[f"k-{n}"] for n in range(first, first + count)],
            "body": [body % n for n in range(first, first + count)],
        }
    )
    with reput.MessageStore.open(store, **SMALL) as opened:
        opened.put_arrow(table)


@pytest.mark.parametrize("corpus", ["clean", "batch", "bcq", "ipv6", "killed", "retention", "transactions"])
@pytest.mark.parametrize(
    "options", [{}, {"split_bytes": 50_000, "target_file_bytes": 1}, {"split_bytes": 30_000, "commit_bytes": 1}]
)
def test_the_rows_are_those_of_read_log(corpus: str, options: dict[str, Any], tmp_path: Path) -> None:
    store = CORPORA / corpus / "store"
    result = run(store, tmp_path / "out", **options)
    expected = log_rows(store)
    assert rows_of(tmp_path / "out") == expected
    assert result.messages == len(expected) == sum(topic.messages for topic in result.topics)
    paths = check_files(tmp_path / "out")
    assert sum(topic.files for topic in result.topics) == len(paths)
    assert sum(topic.bytes for topic in result.topics) == sum(path.stat().st_size for path in paths)


def test_a_second_run_exports_only_what_is_new(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 300)
    first = run(store, output)
    before = {path: path.read_bytes() for path in check_files(output)}
    assert run(store, output).messages == 0
    put(store, 300, 200)
    second = run(store, output)
    assert (first.messages, second.messages, second.begin_offset) == (300, 200, first.end_offset)
    assert rows_of(output) == log_rows(store)
    assert all(path.read_bytes() == data for path, data in before.items())
    assert len(check_files(output)) > len(before)


def test_following_exports_what_comes_meanwhile(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    left = [20, 0, 30]

    def wait() -> bool:
        if left and (count := left.pop(0)):
            put(store, 100 - count, count)
        return bool(left)

    runs = follow(store, output, runner=LocalRunner(1), wait=wait)
    assert [one.messages for one in runs] == [10, 20, 0]
    assert rows_of(output) == log_rows(store)[:30]


def test_topics_and_columns_are_those_asked_for(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 100)
    run(store, output, topics=[NAMES[1], NAMES[2]], columns=["keys", "topic"])
    names = ["store", "commit_log_offset", "queue_id", "queue_offset", "keys", "topic", "date"]
    expected = [{name: row[name] for name in names} for row in log_rows(store, [NAMES[1], NAMES[2]])]
    assert [{name: row[name] for name in names} for row in rows_of(output)] == expected
    assert list(rows_of(output)[0]) == names


def test_an_inner_batch_is_in_one_file_wherever_a_task_writes_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput.log.reader, "MAX_ROWS", 2)
    monkeypatch.setattr(export_task, "_CHUNK_BYTES", 1)
    for corpus in ("batch", "bcq"):
        store = CORPORA / corpus / "store"
        expected = log_rows(store)
        result = run(store, tmp_path / corpus, target_file_bytes=1)
        assert rows_of(tmp_path / corpus) == expected
        assert result.messages == len(expected)
        check_files(tmp_path / corpus)


def test_small_files_are_put_together_up_to_the_target_size(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 0, 2000)
    counts = []
    for target in (1, 20_000, 1 << 30):
        run(store, tmp_path / str(target), split_bytes=10_000, target_file_bytes=target)
        assert rows_of(tmp_path / str(target)) == log_rows(store)
        counts.append(len(check_files(tmp_path / str(target))))
    assert counts[0] > counts[1] > counts[2] == len(NAMES)


def test_json_bodies_become_typed_columns_and_others_go_aside_with_the_reason(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 40)
    put(store, 40, 4, body=b"no. %d")
    put(store, 44, 40)
    result = run(store, output, decode="json", columns=["body"])
    rows, aside = rows_of(output), rows_of(output, "rejects")
    assert [row["body"] for row in rows] == [{"id": n, "name": "n"} for n in range(84) if not 40 <= n < 44]
    assert [row["body"] for row in aside] == [b"no. %d" % n for n in range(40, 44)]
    assert all("no JSON object" in row["reason"] for row in aside)
    assert (result.messages, result.rejected) == (80, 4)
    assert result.body_schemas == dict.fromkeys(NAMES, "id bigint, name string")
    assert [str(first) for first in result.first_rejects] == [
        f"queue {row['queue_id']}, queue offset {row['queue_offset']}, commit log offset {row['commit_log_offset']}: "
        f"{row['reason']}"
        for row in sorted(aside, key=lambda row: row["topic"])
    ]
    assert len(result.findings) == 4
    offsets = sorted(row["commit_log_offset"] for row in rows + aside)
    assert offsets == [row["commit_log_offset"] for row in log_rows(store)]


def test_an_inferred_schema_holds_for_the_runs_to_come(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10, body=b'{"id": %d}')
    run(store, output, decode="json")
    put(store, 10, 10, body=b'{"id": "x%d"}')
    result = run(store, output, decode="json")
    assert (result.messages, result.rejected) == (0, 10)
    assert result.body_schemas == dict.fromkeys(NAMES, "id bigint")


#: Bodies of three topics that have no schema in common, and one body of each that does not fit the others.
TOPICS = {
    "orders": [b'{"id": %d, "total": %d.5}' % (n, n) for n in range(50)] + [b'{"id": "x"}'],
    "users": [b'{"id": "u-%d", "address": {"city": "Bonn"}}' % n for n in range(50)] + [b'{"id": 7}'],
    "notes": [b"note %d" % n for n in range(5)],
}


def put_topics(store: Path, bodies: dict[str, list[bytes]]) -> None:
    """Messages of several topics, in turns."""
    rows = sorted((n, topic, body) for topic, some in bodies.items() for n, body in enumerate(some))
    table = pa.table({"topic": [topic for _, topic, _ in rows], "body": [body for *_, body in rows]})
    with reput.MessageStore.open(store, **SMALL) as opened:
        opened.put_arrow(table)


def rejected(output: Path) -> list[tuple[str, bytes, str]]:
    return [(row["topic"], row["body"], row["reason"]) for row in rows_of(output, "rejects")]


@pytest.mark.parametrize("options", [{}, {"split_bytes": 700, "target_file_bytes": 1}, {"commit_bytes": 1}])
def test_each_topic_has_a_schema_of_its_own(tmp_path: Path, options: dict[str, Any]) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, TOPICS)
    result = run(store, output, decode="json", columns=["body"], **options)
    assert result.body_schemas == {
        "orders": "id bigint, total double",
        "users": "id string, address struct<city: string>",
    }
    for topic in ("orders", "users"):
        table = ds.dataset(output / "messages" / topic).to_table().sort_by("commit_log_offset")
        assert table["body"].to_pylist() == [json.loads(body) for body in TOPICS[topic][:-1]]
    assert [body for _, body, _ in rejected(output)] == [
        *TOPICS["notes"],
        *(TOPICS[t][-1] for t in ("orders", "users")),
    ]
    assert (result.messages, result.rejected) == (100, 7)
    assert sorted(result.findings)[0].startswith("topic notes: 5 bodies could not be decoded: they are in rejects/")
    row = rows_of(output, "rejects")[-1]
    names = ["commit_log_offset", "queue_id", "queue_offset", "reason", "body", "topic"]
    assert [name for name in row if name in names] == names
    assert [one["topic"] for one in log_rows(store) if one["commit_log_offset"] == row["commit_log_offset"]] == [
        "users"
    ]
    check_files(output)
    again = run(store, output, decode="json", columns=["body"], **options)
    assert (again.messages, again.rejected, again.findings) == (0, 0, [])


def test_a_topic_that_comes_later_gets_its_schema_then(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": TOPICS["orders"][:9]})
    run(store, output, decode="json")
    put_topics(store, {"users": TOPICS["users"][:50], "orders": TOPICS["orders"][9:50]})
    result = run(store, output, decode="json")
    assert (result.messages, result.rejected) == (91, 0)
    assert result.body_schemas == {
        "orders": "id bigint, total double",
        "users": "id string, address struct<city: string>",
    }
    assert rows_of(output / "messages", "users")[-1]["body"] == {"id": "u-49", "address": {"city": "Bonn"}}


def test_a_value_that_an_inferred_schema_does_not_know_is_rejected_and_a_given_one_leaves_it_out(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    put_topics(store, {"orders": [b'{"id": %d}' % n for n in range(5)]})
    for name, schema in (("inferred", None), ("given", {"orders": "id bigint"}), ("of all", "id bigint")):
        run(store, tmp_path / name, decode="json", schema=schema)
    put_topics(store, {"orders": [b'{"id": 5, "coupon": null}', b'{"id": 6, "coupon": "x"}']})
    for name, schema in (("inferred", None), ("given", {"orders": "id bigint"}), ("of all", "id bigint")):
        run(store, tmp_path / name, decode="json", schema=schema)
    assert [row["body"]["id"] for row in rows_of(tmp_path / "inferred")] == [0, 1, 2, 3, 4, 5]
    assert rejected(tmp_path / "inferred") == [
        ("orders", b'{"id": 6, "coupon": "x"}', "a value in the field coupon, which the schema lacks")
    ]
    for name in ("given", "of all"):
        assert [row["body"] for row in rows_of(tmp_path / name)] == [{"id": n} for n in range(7)]
        assert rejected(tmp_path / name) == []


def test_a_schema_may_be_given_for_some_topics(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, TOPICS)
    schema = {"users": pa.schema([("id", pa.string())])}
    result = run(store, output, decode="json", schema=schema)
    assert result.body_schemas == {"orders": "id bigint, total double", "users": "id string"}
    with pytest.raises(ConfigError, match=r"schema was .*users=id string.* and is null"):
        run(store, output, decode="json")
    assert run(store, output, decode="json", schema={"users": "id string"}).messages == 0


@pytest.mark.parametrize("decode", ["json", "utf8"])
def test_strict_refuses_the_first_body_that_does_not_fit_and_publishes_nothing(tmp_path: Path, decode: str) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": [b'{"id": 1}', b'{"id": 2}', b"\xff", b'{"id": 3}', b"\xfe"]})
    row = log_rows(store)[2]
    place = f"queue {row['queue_id']}, queue offset {row['queue_offset']}, commit log offset {row['commit_log_offset']}"
    with pytest.raises(ConfigError, match=f"topic orders, {place}: "):
        run(store, output, decode=decode, strict=True)
    assert not list(output.rglob("*.parquet"))
    result = run(store, output, decode=decode, columns=["body"])  # other options, too: nothing was begun
    assert (result.messages, result.rejected) == (3, 2)


def test_strict_exports_what_fits(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": TOPICS["orders"][:50]})
    assert run(store, output, decode="json", strict=True).messages == 50
    put_topics(store, {"orders": TOPICS["orders"][50:]})
    with pytest.raises(ConfigError, match="topic orders"):
        run(store, output, decode="json", strict=True)
    assert len(rows_of(output)) == 50
    assert run(store, output, decode="json").rejected == 1


def test_json_where_no_topic_has_any_is_refused(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"notes": TOPICS["notes"]})
    with pytest.raises(ConfigError, match="no body of the sample is JSON"):
        run(store, output, decode="json")
    assert run(store, output).messages == 5


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"decode": "json", "schema": "id boolean"}, "fits none of the first 10 bodies"),
        ({"decode": "json", "schema": "id"}, "expected a type"),
        ({"decode": "xml"}, "none of raw, utf8 and json"),
        ({"decode": "json", "columns": ["keys"]}, "columns leave them out"),
        ({"columns": ["key"]}, "did you mean 'keys'"),
        ({"format": "orc"}, "neither parquet nor delta"),
        ({"format": "delta", "decode": "json", "schema": "id bigint, ID bigint"}, "does not tell 'ID' from 'id'"),
        (
            {"format": "delta", "decode": "json", "schema": "id bigint, a array<struct<b int, B int>>"},
            "does not tell 'B' from 'b'",
        ),
        ({"format": "delta", "decode": "json", "schema": {"orders": "a int, A int"}}, "does not tell 'A' from 'a'"),
        ({"decode": "utf8", "schema": {"orders": "a int"}}, "bodies decoded as utf8 have none"),
        ({"split_bytes": 0}, "no size in bytes"),
    ],
)
def test_a_wrong_option_is_refused_and_the_next_try_may_have_another(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    with pytest.raises(ConfigError, match=reason):
        run(store, output, **options)
    assert not output.exists() or not list(output.iterdir())
    assert run(store, output).messages == 10


@pytest.mark.parametrize("changed", [{"topics": ["orders"]}, {"decode": "utf8"}, {"columns": ["body"]}])
def test_an_option_that_the_runs_before_had_otherwise_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    run(store, output)
    with pytest.raises(ConfigError, match=f"{next(iter(changed))} was"):
        run(store, output, **changed)
    assert run(store, output, split_bytes=1000, target_file_bytes=1).messages == 0


def test_an_output_that_is_not_the_exports_own_is_refused(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    with pytest.raises(ConfigError, match="inside the store"):
        run(store, store / "lake")
    output.mkdir()
    (output / "mine").touch()
    with pytest.raises(StoreFormatError, match="not empty"):
        run(store, output)
    assert [path.name for path in output.iterdir()] == ["mine"]


def test_what_retention_took_before_it_was_exported_is_an_error_that_names_the_gap(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 100)
    first = run(store, output)
    put(store, 100, 1000)
    files = StoreDirectory(store).log_files()
    assert len(files) > 6
    for file in files[:5]:
        Path(file.path).unlink()
    begin = files[5].start_offset
    with pytest.raises(
        DataLossError, match=f"from {first.end_offset}, and there is no such file; the files have {begin} to"
    ):
        run(store, output)
    second = run(store, output, fail_on_data_loss=False)
    assert second.lost == ((first.end_offset, begin),)
    after = [row for row in rows_of(output) if row["commit_log_offset"] >= begin]
    assert after == log_rows(store)
    assert len(rows_of(output)) == first.messages + second.messages
    assert run(store, output).messages == 0


def test_a_log_that_was_cut_and_went_on_otherwise_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "one", 0, 20)
    run(tmp_path / "one", tmp_path / "out")
    (tmp_path / "one").rename(tmp_path / "gone")
    put(tmp_path / "one", 5, 40)
    with pytest.raises(DataLossError, match="is not the one that was read there"):
        run(tmp_path / "one", tmp_path / "out")


class Interrupting(LocalRunner):
    """Does something before or behind the first tasks."""

    def __init__(
        self, *, before: Callable[[], object] | None = None, behind: Callable[[], object] | None = None
    ) -> None:
        super().__init__(1)
        self._before, self._behind = before, behind

    def run(self, task: Any, items: Any, **options: Any) -> Any:
        if self._before:
            self._before()
        outcomes = super().run(task, items, **options)
        if self._behind:
            self._behind()
        self._before = self._behind = None
        return outcomes


def test_files_that_go_while_the_log_is_exported_are_no_gap_without_an_error(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 0, 1000)
    files = StoreDirectory(store).log_files()

    def delete() -> None:
        for file in files[:3]:
            Path(file.path).unlink()

    options = ExportOptions(commit_bytes=1)  # a part is a file
    with pytest.raises(DataLossError, match="retention is faster"):
        export(store, tmp_path / "out", runner=Interrupting(behind=delete), options=options)
    assert {row["commit_log_offset"] for row in rows_of(tmp_path / "out")} < set(range(files[0].end_offset))
    put(store, 1000, 10)
    files = StoreDirectory(store).log_files()
    with pytest.raises(reput.StoreError, match="retention has deleted it"):
        export(store, tmp_path / "other", runner=Interrupting(before=delete), options=options)
    assert rows_of(tmp_path / "other") == []


def test_a_log_that_is_cut_while_it_is_exported_is_an_error(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 0, 20)
    rows = log_rows(store)

    def cut() -> None:
        path = Path(StoreDirectory(store).log_files()[0].path)
        data = path.read_bytes()
        begin = rows[10]["commit_log_offset"]
        path.write_bytes(data[:begin] + bytes(len(data) - begin))

    with pytest.raises(DataLossError, match=f"ends at {rows[10]['commit_log_offset']} now"):
        export(store, tmp_path / "out", runner=Interrupting(before=cut))
    assert run(store, tmp_path / "out").messages == 10


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("%RETRY%group", "%25RETRY%25group"),
        ("../../x", "..%2F..%2Fx"),
        ("a=b c\n", "a%3Db%20c%0A"),
        ("订单", "订单"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_topic_of_any_name_is_the_name_of_a_folder(topic: str, name: str) -> None:
    assert escaped(topic) == name


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("a.b-c_d", "a.b-c_d"),
        ("%RETRY%group", "~25RETRY~25group"),
        ("..", "~2E."),
        ("_delta_log", "~5Fdelta_log"),
        ("~25", "~7E25"),
        ("订", "~E8~AE~A2"),
        ("", "~"),
    ],
)
def test_a_topic_of_any_name_is_the_name_of_a_table(topic: str, name: str) -> None:
    assert table_name(topic) == name


@pytest.mark.parametrize("name_of", [escaped, table_name])
def test_a_topic_that_is_too_long_for_a_folder_is_refused(name_of: Callable[[str], str]) -> None:
    with pytest.raises(StoreFormatError, match="too long"):
        name_of("%" * 100)


@pytest.mark.parametrize("damaged", [0, 200, 390])
def test_damage_is_an_error_wherever_it_is_and_nothing_behind_it_is_exported(damaged: int, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 400)
    rows = log_rows(store)
    offset = spoil(store, rows[damaged])
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=f"damaged at offset {offset}.*--damaged skip"):
            run(store, output)
        exported = [row["commit_log_offset"] for row in rows_of(output)]
        assert exported in ([], [row["commit_log_offset"] for row in rows[:damaged]])
    result = run(store, output, damaged="skip")
    assert rows_of(output) == [*rows[:damaged], *rows[damaged + 1 :]]
    (damage,) = result.damages
    assert (damage.begin, damage.end - damage.begin) == (offset, rows[damaged]["store_size"])
    assert any(f"passed over {damage.end - damage.begin} bytes" in finding for finding in result.findings)
    again = run(store, output)
    assert (again.messages, again.damages) == (0, ())


@pytest.mark.parametrize("options", [{}, {"split_bytes": 700}, {"commit_bytes": 1}, {"split_bytes": 9000}])
def test_damage_is_passed_over_where_that_is_allowed_and_told_once(options: dict[str, Any], tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 400)
    rows = log_rows(store)
    first = [number for number, row in enumerate(rows) if row["commit_log_offset"] % (16 << 10) == 0]
    lost = sorted({3, 4, 5, 150, first[2], first[3] - 1, first[3] + 7, 390})
    for number in lost:
        spoil(store, rows[number])
    result = run(store, output, damaged="skip", **options)
    expected = reput.read_log(store, ["commit_log_offset"], mode="DROPMALFORMED").read_all()["commit_log_offset"]
    assert [row["commit_log_offset"] for row in rows_of(output)] == expected.to_pylist()
    assert result.messages == len(expected) == len(rows) - len(lost)
    for number in lost:
        (damage,) = (d for d in result.damages if d.begin <= rows[number]["commit_log_offset"] < d.end)
        assert not any(damage.begin <= offset < damage.end for offset in expected.to_pylist())
    check_files(output)


def spoil(store: Path, row: dict[str, Any]) -> int:
    """Write over the magic code of a record; its offset."""
    offset: int = row["commit_log_offset"]
    overwrite(*at(store, offset + 4), b"none")
    return offset


def test_an_empty_store_exports_nothing(tmp_path: Path) -> None:
    (tmp_path / "store/commitlog").mkdir(parents=True)
    result = run(tmp_path / "store", tmp_path / "out")
    assert (result.messages, result.commits, result.topics) == (0, 0, ())


def test_rows_whose_time_is_no_date_have_a_partition_of_their_own(tmp_path: Path) -> None:
    end_of_dates = 253_402_300_800_000  # the begin of the year 10000, ms since 1970
    log = HandLog(tmp_path / "store", time=end_of_dates - 3 * 7)
    bodies = log.append(5)  # 7 ms apart
    run(log.path, tmp_path / "out", columns=["body"])
    found = {
        path.parent.name: [body.decode() for body in parquet.read_table(path, partitioning=None)["body"].to_pylist()]
        for path in check_files(tmp_path / "out")
    }
    assert found == {"date=9999-12-31": bodies[:2], "date=__HIVE_DEFAULT_PARTITION__": bodies[2:]}
