from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError, StoreFormatError
from reput.files import DISK
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.message import Message
from reput.formats.properties import tags_code
from reput.kernels.records.record_batch import SCHEMA
from reput.log import StoreDirectory
from reput.log.reads.batches import read_scan, read_split
from reput.log.scan import scan_split
from reput.log.selection import make_selection
from reput.log.sink_commits import SinkWatch
from reput.log.splits import Split, plan_splits
from tests.support.damage import flip, overwrite
from tests.support.fixtures import LogWriter
from tests.support.shares import sampled

GOLDEN = Path(__file__).parents[3] / "golden" / "5.3.3"
CASES = sorted(path.name for path in GOLDEN.iterdir())
DELAYED = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def truth(case: str, *kinds: str) -> Iterator[str]:
    """The lines of some kinds, without the kind."""
    for line in (GOLDEN / case / "truth.txt").read_text("utf-8").split("\n"):
        kind, _, rest = line.partition(" ")
        if kind in kinds:
            yield rest


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return reput.read_log(path, **options).read_all().to_pylist()  # type: ignore[no-any-return]


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def java_host(host: str) -> str:
    """As Java prints an address: IPv6 in full."""
    address, _, port = host.rpartition(":")
    if address.startswith("["):
        groups = ipaddress.IPv6Address(address[1:-1]).exploded.split(":")
        address = "[" + ":".join(f"{int(group, 16):x}" for group in groups) + "]"
    return f"/{address}:{port}"


def log_line(row: dict[str, Any]) -> str:
    code = "-" if row["topic"] == DELAYED else tags_code(row["tags"])
    return (
        f"{row['commit_log_offset']} {row['store_size']} {row['topic']} {row['queue_id']} {row['queue_offset']} {code} "
        f"{row['sys_flag']} {row['prepared_transaction_offset']} {ms(row['store_timestamp'])}"
    )


def message_line(row: dict[str, Any]) -> str:
    own = {"TAGS": row["tags"], "KEYS": " ".join(row["keys"]), "UNIQ_KEY": row["unique_key"]}
    properties = dict(row["properties"]) | {name: value for name, value in own.items() if value}
    text = ", ".join(f"{name}={properties[name]}" for name in sorted(properties))
    return (
        f"{row['topic']} {row['queue_id']} {row['queue_offset']} {row['commit_log_offset']} {row['store_size']} "
        f"{row['body_crc']} {row['flag']} {row['sys_flag']} {ms(row['born_timestamp'])} {ms(row['store_timestamp'])} "
        f"{row['reconsume_times']} {java_host(row['born_host'])} {java_host(row['store_host'])} {{{text}}} "
        f"{len(row['body'])}:{hashlib.sha256(row['body']).hexdigest()[:16]}"
    )


@pytest.mark.parametrize("case", CASES)
def test_the_log_is_read_as_rocketmq_reads_it(case: str) -> None:
    expected = [
        re.sub(rf"( {DELAYED} \d+ \d+) -?\d+", r"\1 -", line)  # there the code is a time of delivery
        for line in truth(case, "log")
    ]
    assert [log_line(row) for row in rows(GOLDEN / case / "store", raw_body=True)] == expected


@pytest.mark.parametrize("case", CASES)
def test_every_message_has_the_content_that_rocketmq_gives(case: str) -> None:
    found = {message_line(row) for row in rows(GOLDEN / case / "store", raw_body=True)}
    assert set(truth(case, "msg", "half")) - found == set()


def test_inner_batches_of_rocketmq_are_unfolded() -> None:
    stored = rows(GOLDEN / "bcq" / "store", raw_body=True)
    shown = rows(GOLDEN / "bcq" / "store")
    counts = [int(dict(row["properties"]).get("INNER_NUM", 1)) for row in stored]
    assert max(counts) > 1
    assert len(shown) == sum(counts)
    assert {row["status"] for row in shown} == {"OK"}
    assert not any(row["sys_flag"] & 0xC0 for row in shown)
    for topic, queue_id in {(row["topic"], row["queue_id"]) for row in shown}:
        offsets = [row["queue_offset"] for row in shown if (row["topic"], row["queue_id"]) == (topic, queue_id)]
        assert offsets == list(range(len(offsets)))


def state(path: Path) -> dict[str, tuple[str, int]]:
    """Content and time of change of every file."""
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}


@pytest.mark.parametrize("case", ["clean", "killed", "torn", "empty"])
def test_reading_changes_nothing_on_the_disk(case: str) -> None:
    before = state(GOLDEN / case)
    rows(GOLDEN / case / "store")
    assert state(GOLDEN / case) == before


MESSAGES = [
    Message(
        ("orders", "payments", "订单")[i % 3],
        f"body {i}".encode() * (i % 7),
        tags=(None, "paid", "shipped")[i % 3],
        keys=[f"k-{i}", f"k-{i % 5}"][: i % 3],
        unique_key=f"u-{i}" if i % 2 else None,
        properties={"region": "eu"} if i % 4 else None,
    )
    for i in range(200)
]


@sampled(4)
@pytest.mark.parametrize("names", [[name] for name in SCHEMA.names] + [["status", "body", "topic"], SCHEMA.names[::-1]])
@pytest.mark.parametrize("raw_body", [False, True])
@pytest.mark.parametrize("case", ["bcq", "ipv6"])
def test_a_projection_equals_the_same_columns_of_the_full_read(case: str, names: list[str], raw_body: bool) -> None:
    full = reput.read_log(GOLDEN / case / "store", raw_body=raw_body).read_all()
    part = reput.read_log(GOLDEN / case / "store", columns=names, raw_body=raw_body).read_all()
    assert part.schema == full.select(names).schema
    assert part.to_pylist() == full.select(names).to_pylist()


def has_key(row: dict[str, Any], *keys: str) -> bool:
    return row["unique_key"] in keys or any(key in keys for key in row["keys"])


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"topics": ["orders"]}, lambda row: row["topic"] == "orders"),
        ({"topics": ["订单", "payments"]}, lambda row: row["topic"] != "orders"),
        ({"topics": []}, lambda row: False),
        ({"keys": ["k-3"]}, lambda row: has_key(row, "k-3")),
        ({"keys": ["k-77", "u-9"]}, lambda row: has_key(row, "k-77", "u-9")),
        ({"keys": ["absent"]}, lambda row: False),
        ({"begin": 5000}, lambda row: ms(row["store_timestamp"]) >= 5000),
        ({"end": 5000}, lambda row: ms(row["store_timestamp"]) <= 5000),
        (
            {"begin": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), "end": datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)},
            lambda row: 5000 <= ms(row["store_timestamp"]) <= 9000,
        ),
        (
            {"topics": ["payments"], "keys": ["k-1"], "begin": 1000, "end": 20000},
            lambda row: (
                row["topic"] == "payments" and has_key(row, "k-1") and 1000 <= ms(row["store_timestamp"]) <= 20000
            ),
        ),
    ],
)
def test_a_filter_equals_filtering_afterwards(
    store: Path, write_log: LogWriter, options: dict[str, Any], wanted: Callable[[dict[str, Any]], bool]
) -> None:
    write_log(MESSAGES, 8192)
    everything = rows(store)
    assert len(everything) == len(MESSAGES)
    assert rows(store, **options) == [row for row in everything if wanted(row)]
    assert rows(store, columns=["queue_offset"], **options) == [
        {"queue_offset": row["queue_offset"]} for row in everything if wanted(row)
    ]


def test_bounds_of_time_are_included(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, 8192)  # store timestamps are the offsets
    assert [row["commit_log_offset"] for row in rows(store, begin=offsets[3], end=offsets[5])] == offsets[3:6]


def test_keys_find_messages_inside_inner_batches() -> None:
    everything = rows(GOLDEN / "bcq" / "store")
    keys = sorted({key for row in everything for key in row["keys"]})[:40]
    found = rows(GOLDEN / "bcq" / "store", keys=keys)
    assert found == [row for row in everything if has_key(row, *keys)]
    assert len(found) > 40


def test_until_flushed_ends_at_the_first_record_that_the_checkpoint_does_not_cover(
    store: Path, write_log: LogWriter
) -> None:
    offsets = write_log(MESSAGES, 8192, start=8192)  # store timestamps are the offsets
    assert rows(store, until="flushed") == []  # no checkpoint: nothing is known to be flushed
    for covered in (0, 1, 60, len(offsets)):
        time = offsets[covered - 1] if covered else 1
        (store / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(time, 0, 0)))
        assert [row["commit_log_offset"] for row in rows(store, until="flushed")] == offsets[:covered]
    assert len(rows(store, until="proven")) == len(offsets)


def test_the_store_column_names_the_directory_or_what_was_given(store: Path, write_log: LogWriter) -> None:
    write_log(MESSAGES[:2], 8192)
    assert [row["store"] for row in rows(store, columns=["store"])] == ["store", "store"]
    assert [row["store"] for row in rows(store, columns=["store"], store="broker-a")] == ["broker-a"] * 2


def test_the_commit_log_may_be_elsewhere(store: Path, write_log: LogWriter, tmp_path: Path) -> None:
    offsets = write_log(MESSAGES, 8192)
    root = tmp_path / "root"
    root.mkdir()
    found = rows(root, commit_log_path=store / "commitlog")
    assert [row["commit_log_offset"] for row in found] == offsets
    assert found[0]["store"] == "root"


def test_splits_together_give_what_read_log_gives(store: Path, write_log: LogWriter) -> None:
    write_log(MESSAGES, 8192)
    selection = make_selection(topics=["orders"], store="store")
    splits = plan_splits(StoreDirectory(store).log_files(), 1500)
    batches = [batch for split in splits for batch in read_split(split, selection)]
    expected = reput.read_log(store, topics=["orders"]).read_all()
    assert pa.Table.from_batches(batches, selection.schema).to_pylist() == expected.to_pylist()


def test_nothing_is_read_before_the_first_batch_is_asked_for(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES[:5], 8192)
    reader = reput.read_log(store, columns=["commit_log_offset"])
    write_log(MESSAGES[:9], 8192)
    assert reader.read_all()["commit_log_offset"].to_pylist()[: len(offsets)] == offsets
    reader = reput.read_log(store)
    (store / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(reput.StoreError, match="retention has deleted it"):
        reader.read_next_batch()


def test_damage_comes_after_the_rows_before_it(store: Path, write_log: LogWriter) -> None:
    offsets = write_log(MESSAGES, 8192)
    path = store / "commitlog" / f"{0:020d}"
    flip(path, offsets[7] + 4)
    for columns in (None, ["queue_offset"], ["topic", "body"]):
        reader = reput.read_log(store, columns=columns)
        assert reader.read_next_batch().num_rows == 7
        with pytest.raises(CorruptRecordError, match=rf"{path}: damaged at offset {offsets[7]}: magic code"):
            reader.read_next_batch()


def test_a_read_that_meets_a_new_batch_goes_on_before_the_rows_it_has_not_given(
    store: Path, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = write_log(MESSAGES[:9], 8192)
    path = store / "commitlog" / f"{0:020d}"
    for damaged in (0, 4):
        flip(path, offsets[damaged] + 4)
    selection = make_selection(columns=["commit_log_offset"], store="store", mode="DROPMALFORMED")
    split = Split(StoreDirectory(store).log_files()[0], 0, 8192, is_record_start=True)
    scan = scan_split(split, level=selection.level, on_damage=selection.on_damage, max_rows=2)
    watch = SinkWatch(DISK, str(store))
    monkeypatch.setattr(watch, "committed", lambda end: min(end, offsets[3]))
    rest = read_scan(scan, selection, None, watch)
    assert next(rest)["commit_log_offset"].to_pylist() == offsets[1:3]
    with pytest.raises(StopIteration) as ended:
        next(rest)
    assert ended.value.value == offsets[3]


def test_a_wrong_argument_is_told_at_the_call(store: Path, write_log: LogWriter) -> None:
    write_log(MESSAGES[:1], 8192)
    with pytest.raises(ConfigError, match="until: 'now' is neither"):
        reput.read_log(store, until="now")
    with pytest.raises(ConfigError, match="did you mean 'topic'"):
        reput.read_log(store, columns=["topics"])
    with pytest.raises(StoreFormatError, match="no such directory"):
        reput.read_log(store / "nothing")
    (store / "commitlog" / "notes").touch()
    with pytest.raises(StoreFormatError, match="foreign file"):
        reput.read_log(store)


def test_what_cannot_be_shown_is_replaced_and_told(store: Path, write_log: LogWriter) -> None:
    (offset,) = write_log([Message("topic", b"x", born_timestamp=0)], 8192)
    path = store / "commitlog" / f"{0:020d}"
    overwrite(path, offset + 40, b"\x7f" * 8)  # BORNTIMESTAMP
    overwrite(path, path.read_bytes().index(b"topic") + 1, b"\xff")
    (row,) = rows(store)
    assert (row["topic"], row["born_timestamp"], row["status"]) == (
        "t\ufffdpic",
        None,
        "TEXT_REPLACED,TIME_OUT_OF_RANGE",
    )


def test_a_log_without_messages_has_all_columns() -> None:
    table = reput.read_log(GOLDEN / "empty" / "store").read_all()
    assert table.schema == SCHEMA
    assert table.num_rows == 0


def test_counting_by_topic_agrees_with_the_queues() -> None:
    table = reput.read_log(GOLDEN / "clean" / "store", columns=["topic", "queue_id"]).read_all()
    counts = table.group_by(["topic", "queue_id"]).aggregate([([], "count_all")])
    found = {(row["topic"], row["queue_id"]): row["count_all"] for row in counts.to_pylist()}
    expected = {}
    for line in truth("clean", "queue"):
        topic, queue_id, first, last = line.split()
        expected[topic, int(queue_id)] = int(last) - int(first)
    assert found == expected
    assert pc.sum(counts["count_all"]).as_py() == 1000
