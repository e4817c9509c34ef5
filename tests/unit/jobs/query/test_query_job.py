"""Messages by key, topic and time: the rows of a full read that are wanted, whatever is pruned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError
from reput.formats.message import Message
from reput.jobs.query.query_job import find_messages

CORPORA = Path(__file__).parents[3] / "golden/5.3.3"


def rows_of(store: Path) -> list[dict[str, Any]]:
    return reput.read_log(store).read_all().to_pylist()


@pytest.mark.parametrize("case", ["clean", "batch", "killed-undispatched", "retention", "transactions"])
def test_every_way_of_asking_gives_the_rows_of_a_full_read(case: str) -> None:
    store = CORPORA / case / "store"
    rows = rows_of(store)
    topics = sorted({row["topic"] for row in rows})
    keys = [key for row in rows[:: len(rows) // 5] for key in row["keys"]]
    times = sorted(row["store_timestamp"] for row in rows)
    begin, end = times[len(times) // 3], times[len(times) // 2]
    for asked in (
        {},
        {"topics": topics[:2]},
        {"keys": keys},
        {"topics": topics[-1:], "keys": keys},
        {"begin": begin, "end": end},
        {"topics": topics[:1], "begin": begin},
        {"keys": keys, "end": end},
        {"topics": ["nobody"]},
    ):
        expected = [
            row["commit_log_offset"]
            for row in rows
            if (asked.get("topics") is None or row["topic"] in asked["topics"])
            and (asked.get("keys") is None or {row["unique_key"], *row["keys"]} & set(asked["keys"]))
            and asked.get("begin", times[0]) <= row["store_timestamp"] <= asked.get("end", times[-1])
        ]
        found = find_messages(store, ["commit_log_offset"], **asked).read_all()
        assert found["commit_log_offset"].to_pylist() == expected, asked


def test_nothing_is_capped(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as store:
        store.put_messages([Message(f"topic-{n % 2}", b"", keys=["same"]) for n in range(5000)])
    assert find_messages(tmp_path, ["store"], keys=["same"]).read_all().num_rows == 5000
    assert find_messages(tmp_path, ["store"], ["topic-1"], ["same"]).read_all().num_rows == 2500


def test_damage_is_an_error(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as store:
        offsets = [result.commit_log_offset for result in store.put_messages([Message("orders", b"x")] * 100)]
    path = tmp_path / "commitlog" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(offsets[50] + 4)
        file.write(b"????")
    with pytest.raises(CorruptRecordError, match=f"damaged at offset {offsets[50]}"):
        find_messages(tmp_path, ["queue_offset"]).read_all()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(ConfigError, match="has no column 'boddy'"):
        find_messages(tmp_path, ["boddy"])
    assert find_messages(tmp_path).read_all().schema == pa.schema(reput.read_log(tmp_path).schema)
