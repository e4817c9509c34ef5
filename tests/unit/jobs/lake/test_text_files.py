"""An export to CSV or JSON lines is imported as it was, and text of others is imported or told to be wrong."""

from __future__ import annotations

import csv
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput import Message
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError, ReputError, StoreFormatError
from reput.files import DISK
from reput.jobs.lake import Import, import_messages, open_source
from reput.jobs.query.row_files import write_rows
from reput.jobs.runner import LocalRunner
from reput.jobs.text_rows import TextKind
from reput.kernels.records.message_columns import typed_columns
from reput.kernels.records.record_batch import SCHEMA
from reput.store.sinks.import_sink import ImportSink
from tests.support.examples import examples
from tests.support.lake import NAMES, SMALL, put, put_topics, run

KINDS = ("csv", "jsonl")
#: What makes a message; the rest is the store's.
CONTENT = (
    *("topic", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times"),
    *("prepared_transaction_offset", "tags", "unique_key", "keys", "properties", "body"),
)
#: What CSV and JSON have a meaning of their own for, and what line ends are elsewhere.
_TEXTS = st.text(
    st.one_of(st.sampled_from(',"\n\r\t \\{}\0\ufeff\u2028ö字😀'), st.characters(exclude_categories=["Cs"]))
)
_KEYS = _TEXTS.map(lambda text: text.replace(" ", "")).filter(bool)
_COLUMNS = {
    "topic": st.sampled_from(NAMES),
    "queue_id": st.integers(0, 3),
    "born_timestamp": st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(
        lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000, tzinfo=UTC)
    ),
    "tags": st.one_of(st.none(), _TEXTS),
    "keys": st.lists(_KEYS, max_size=3),
    "properties": st.dictionaries(_TEXTS, _TEXTS, max_size=3).map(lambda pairs: list(pairs.items())),
    "body": st.one_of(st.binary(), _TEXTS.map(str.encode)),
}
_ROWS = st.fixed_dictionaries(_COLUMNS)
_TYPES = pa.schema([SCHEMA.field(name) for name in _COLUMNS])
#: Messages that a store takes.
MESSAGES = [
    Message("orders", b"plain"),
    Message("orders", b"\xff\xfe", tags="paid", keys=("k1", "k2"), properties={"region": 'e,"u"\r\n\t{ö}', "x": "1"}),
    Message("a|b", 'a,"b"\n字\u2028'.encode(), tags="shipped", flag=7),
    Message("%RETRY%group", b""),
    Message("orders", b'{"id": 1}\r\n', keys=("k",)),
]


def rows_of(store: Path) -> list[dict[str, Any]]:
    return reput.read_log(store, CONTENT).read_all().to_pylist()


def import_(source: Path | str, store: Path, **options: Any) -> Import:
    found = open_source(source, **options)
    config = MessageStoreConfig(**SMALL)
    with ImportSink(store, config, "text", files=DISK) as sink:
        return import_messages(found, sink, runner=LocalRunner(2))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(40))
@given(rows=st.lists(_ROWS, min_size=1, max_size=20), size=st.integers(1, 20))
def test_rows_that_are_written_as_text_are_read_as_they_were(kind: TextKind, rows: list[Any], size: int) -> None:
    table = pa.Table.from_pylist(rows, _TYPES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{kind}"
        write_rows(table.to_reader(max_chunksize=size), path)
        found = [batch for parts in open_source(path).batches for part in parts for batch in part.batches()]
    typed = [typed_columns(batch, 0) for batch in found]
    expected = typed_columns(table.combine_chunks().to_batches()[0], 0)
    assert pa.Table.from_batches(typed).select(expected.schema.names).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_as_text_is_imported_as_it_was_and_once(kind: TextKind, tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", **SMALL) as opened:
        opened.put_messages(MESSAGES)
    result = run(tmp_path / "store", tmp_path / "out", format=kind)
    assert (result.messages, sum(topic.files for topic in result.topics)) == (5, 3)
    paths = [path for path in (tmp_path / "out/messages").rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} == {f".{kind}"}
    assert sum(topic.bytes for topic in result.topics) == sum(path.stat().st_size for path in paths)
    assert import_(tmp_path / "out", tmp_path / "copy").messages == 5
    rows = rows_of(tmp_path / "store")
    topics = list(dict.fromkeys(row["topic"] for row in rows))
    by_file = sorted(rows, key=lambda row: topics.index(row["topic"]))
    assert rows_of(tmp_path / "copy") == by_file
    again = import_(tmp_path / "out", tmp_path / "copy")
    assert (again.messages, again.skipped) == (0, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_exports_what_is_new_as_text(kind: TextKind, tmp_path: Path) -> None:
    put(tmp_path / "store", 0, 300)
    run(tmp_path / "store", tmp_path / "out", format=kind, split_bytes=8 << 10, commit_bytes=1)
    before = {path: path.read_bytes() for path in (tmp_path / "out/messages").rglob(f"*.{kind}")}
    put(tmp_path / "store", 300, 200)
    assert run(tmp_path / "store", tmp_path / "out", format=kind).messages == 200
    assert all(path.read_bytes() == data for path, data in before.items())
    with pytest.raises(ConfigError, match="format"):
        run(tmp_path / "store", tmp_path / "out")
    import_(tmp_path / "out", tmp_path / "copy")
    found, rows = rows_of(tmp_path / "copy"), rows_of(tmp_path / "store")
    for topic in NAMES:  # files of a topic are in the order of the log
        assert [row for row in found if row["topic"] == topic] == [row for row in rows if row["topic"] == topic]
    assert len(found) == len(rows) == 500


@pytest.mark.parametrize("kind", KINDS)
def test_decoded_bodies_and_rejects_are_text_too(kind: TextKind, tmp_path: Path) -> None:
    put_topics(tmp_path / "store", {"orders": [b'{"id": 1}', b'{"id": "x"}', b"\xff"]})
    result = run(tmp_path / "store", tmp_path / "out", format=kind, decode="json", schema={"orders": "id int"})
    assert (result.messages, result.rejected, len(result.first_rejects)) == (1, 2, 1)
    (path,) = (tmp_path / "out/messages/orders").rglob(f"*.{kind}")
    text = path.read_text("utf-8")
    if kind == "csv":
        assert next(csv.DictReader(text.splitlines()))["body"] == '{"id": 1}'
    else:
        assert json.loads(text)["body"] == {"id": 1}
        with pytest.raises(ConfigError, match="line 1: expected text in `body`"):
            open_source(tmp_path / "out")
    import_(tmp_path / "out/rejects", tmp_path / "again", columns=["body"])
    assert [row["body"] for row in rows_of(tmp_path / "again")] == [b'{"id": "x"}', b"\xff"]


TEXTS = {
    "a.csv": "\ufefftopic,body,keys,flag\nt,one,k1 k2,7\nt,,,\n",
    "b.jsonl": '{"topic": "t", "body": "one", "keys": "k1 k2", "flag": 7, "other": 1}\n\n{"topic": "t", "body": ""}',
}


@pytest.mark.parametrize(("name", "text"), TEXTS.items(), ids=TEXTS.keys())
def test_text_of_others_needs_few_columns(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert import_(tmp_path / name, tmp_path / "store").messages == 2
    found = [(row["topic"], row["body"], row["keys"], row["flag"]) for row in rows_of(tmp_path / "store")]
    assert found == [("t", b"one", ["k1", "k2"], 7), ("t", b"", [], 0)]
    import_(tmp_path / name, tmp_path / "else", topic="u", columns=["body"])
    found = [(row["topic"], row["body"], row["keys"], row["flag"]) for row in rows_of(tmp_path / "else")]
    assert found == [("u", b"one", [], 0), ("u", b"", [], 0)]


@pytest.mark.parametrize(
    ("name", "text", "error", "reason"),
    [
        ("a.csv", "topic,body\nt,a\nt", StoreFormatError, "no CSV of messages: .*Expected 2 columns, got 1"),
        (
            "a.csv",
            "topic,body\nt,a\nt,b,c",
            StoreFormatError,
            "no CSV of messages: .*line 3: Expected 2 columns, got 3",
        ),
        (
            "a.csv",
            b"topic,body\nt,a\nt,\xff",
            StoreFormatError,
            r"a.csv: no CSV of messages: line 3: not UTF-8: b't,\\xff'",
        ),
        ("a.csv", b"topic,bo\xffdy\nt,a", StoreFormatError, "names of columns: not UTF-8"),
        ("a.csv", "", MessageIllegalError, "a.csv: the table has no column 'topic'"),
        ("a.csv", 'topic,body\na,"x\ny"\na,"x\na,y\nb,1\n', StoreFormatError, "line 4: a quote: unexpected end"),
        ("a.csv", 'topic,body\na,"x\na,y"z\nb,1\n', StoreFormatError, "line 2: a quote: "),
        ("a.jsonl", '{"topic": "a", "body": "\\uD800"}', ConfigError, "line 1: expected a JSON object: .*surrog"),
        ("a.jsonl", '{"topic": "\\udcff", "body": "a"}', ConfigError, "line 1: expected a JSON object: .*surrog"),
        ("a.jsonl", b'{"topic": "t", "body": "\xed\xa0\x80"}', ConfigError, "line 1: expected a JSON object: .*utf-8"),
        ("a.jsonl", b'{"topic": "t", "body": "\xed\xb2\x80"}', ConfigError, "line 1: expected a JSON object: .*utf-8"),
        ("a.csv", "topic,topic,body\nt,t,a", ConfigError, "a column twice"),
        ("a.csv", "body\na", ConfigError, "say to which the messages go; it has body$"),
        ("a.csv", "topic;body\nt;a", ConfigError, "say to which the messages go; it has topic;body$"),
        ("a.csv", "topic,tags\nt,a", MessageIllegalError, "no column 'body'"),
        ("a.csv", "topic,body,key\nt,a,k", MessageIllegalError, "did you mean 'keys'"),
        ("a.csv", "topic,body,flag\nt,a,x", StoreFormatError, "no CSV of messages: .*column #2"),
        ("a.csv", "topic,body,properties\nt,a,[]", ConfigError, "row 1: `properties`: expected a JSON object"),
        ("a.csv", 'topic,body,properties\nt,a,"{""x"": 1}"', ConfigError, "row 1: `properties`: expected text"),
        ("a.csv", "topic,body,body_base64\nt,a,\nt,,?", ConfigError, "row 2: `body_base64`"),
        ("a.csv", "topic,body,body_base64\nt,a,\nt,x,aGk=", ConfigError, "row 2: .* found both"),
        ("a.jsonl", '{"topic": "t", "body": "x", "body_base64": "aGk="}', ConfigError, "found both"),
        ("a.csv", "topic,body\nt,b\n,a", MessageIllegalError, "row 2: topic is null"),
        ("a.jsonl", '{"topic": "t", "body": "a"}\n[]', ConfigError, "line 2: expected a JSON object, found list"),
        (
            "a.jsonl",
            '{"topic": "t", "body": "a", "body": "b"}',
            ConfigError,
            "line 1: .* the name 'body' is there twice",
        ),
        (
            "a.jsonl",
            '{"body": "a", "properties": {"p": "1", "p": "2"}}',
            ConfigError,
            "line 1: .* the name 'p' is there twi",
        ),
        ("a.jsonl", f'{{"body": "a", "x": {"[" * 100_000}', ConfigError, "line 1: .*nested too deeply"),
        ("a.csv", 'topic,body,properties\nt,a,"{""p"":""1"",""p"":""2""}"', ConfigError, "row 1: .*'p' is there twice"),
        ("a.jsonl", '{"topic": "t", "body": "a"}\n{"body": "b", "tag": "x"}', ConfigError, "line 2: .*mean 'tags'"),
        ("a.jsonl", '{"body": "a"}', ConfigError, "say to which the messages go$"),
        ("a.jsonl", '\n{"topic": "t"}', ConfigError, "line 2: expected text in `body`"),
        ("a.jsonl", '{"topic": "t", "body": "a", "flag": "x"}', ConfigError, "line 1: `flag`"),
        ("a.jsonl", '{"topic": "t", "body": "a", "properties": {"x": 1}}', ConfigError, "line 1: `properties`"),
        ("a.jsonl", '{"topic": "t", "body": "a", "tags": "x\\u0001"}', MessageIllegalError, "a.jsonl, row 1"),
    ],
)
def test_text_that_is_no_messages_is_refused_and_nothing_is_stored(
    name: str, text: str | bytes, error: type[ReputError], reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(error, match=reason):
        import_(tmp_path / name, tmp_path / "store")
    assert not (tmp_path / "store/commitlog").exists() or rows_of(tmp_path / "store") == []


def test_names_of_columns_without_a_row_are_no_messages(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("topic,body\n")
    (tmp_path / "b.csv").write_text('topic,body\na,5" pipe\na,"say ""hi"""\n')
    assert import_(tmp_path / "a.csv", tmp_path / "store").messages == 0
    import_(tmp_path / "b.csv", tmp_path / "store")
    assert [row["body"] for row in rows_of(tmp_path / "store")] == [b'5" pipe', b'say "hi"']


def test_a_folder_has_files_of_one_kind_and_they_may_not_change(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "in" / name).write_text(text, "utf-8")
    (tmp_path / "in/c.csv").touch()
    with pytest.raises(StoreFormatError, match="files of several kinds"):
        open_source(tmp_path / "in")
    pattern = str(tmp_path / "in/*.csv")
    assert import_(pattern, tmp_path / "store").messages == 2
    (tmp_path / "in/a.csv").write_text(TEXTS["a.csv"].replace("one", "two"), "utf-8")
    with pytest.raises(ConfigError, match="of another source, or of this source before it was changed"):
        import_(pattern, tmp_path / "store")


def test_a_row_may_be_larger_than_a_block_of_arrows(tmp_path: Path) -> None:
    body = "x" * (3 << 20)
    (tmp_path / "a.csv").write_text(f"topic,body\nt,a\nt,{body}\n")
    (batch,) = [batch for (part,) in open_source(tmp_path / "a.csv").batches for batch in part.batches()]
    assert batch["body"].to_pylist() == [b"a", body.encode()]
