"""Replays: the same messages, at the pace at which they came, each once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError, MessageIllegalError, StoreLockedError
from reput.formats.message import Message
from reput.formats.record_layout import SysFlag
from reput.store.sinks import replay as replay_module
from reput.store.sinks.replay import replay
from tests.support.hand_clock import HandClock
from tests.support.hand_log import HandLog

GOLDEN = Path(__file__).parents[3] / "golden"
KEPT = [
    "topic", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times",
    "prepared_transaction_offset", "tags", "unique_key", "keys", "properties", "body",
]  # fmt: skip


def rows_of(path: Path, **asked: Any) -> list[dict[str, Any]]:
    """The messages, but for what kind of address the store host has: it is the target's."""
    rows = reput.read_log(path, KEPT, **asked).read_all().to_pylist()
    return [row | {"sys_flag": row["sys_flag"] & ~SysFlag.STORE_HOST_V6} for row in rows]


@pytest.mark.parametrize("case", ["5.3.3/clean", "5.3.3/batch", "5.3.3/transactions", "5.5.0/clean"])
def test_everything_but_places_and_store_times_is_kept(case: str, tmp_path: Path) -> None:
    source, target = GOLDEN / case / "store", tmp_path / "target"
    expected = rows_of(source)
    done = replay(source, target)
    assert rows_of(target) == expected
    assert done.messages == len(expected) > 50
    if case == "5.3.3/clean":
        with reput.MessageStore.open(target, read_only=True) as store:
            assert sum(queue.max_offset for queue in store.queues()) == len(expected)


def test_a_message_that_no_store_takes_is_named_and_nothing_of_its_batch_is_put(tmp_path: Path) -> None:
    source = Path(shutil.copytree(GOLDEN / "5.3.3/clean/store", tmp_path / "source"))
    log = source / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(b"topic-1", b"../../x", 1))
    with pytest.raises(MessageIllegalError, match=r"source: of the records from commit log offset 0 to .*'../../x'"):
        replay(source, tmp_path / "target")
    assert rows_of(tmp_path / "target") == []


def test_topics_and_times_choose(tmp_path: Path) -> None:
    source = GOLDEN / "5.3.3/clean/store"
    times = sorted(reput.read_log(source, ["store_timestamp"]).read_all()["store_timestamp"].to_pylist())
    asked = {"topics": ["topic-1"], "begin": times[300], "end": times[800]}
    replay(source, tmp_path / "target", **asked)
    assert rows_of(tmp_path / "target") == rows_of(source, **asked) != []


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0, 1e6])
def test_the_pace_is_that_of_the_store_times(speed: float, tmp_path: Path) -> None:
    log = HandLog(tmp_path / "source", 4096)  # 7 ms between two messages
    log.append(500)
    clock = HandClock()
    done = replay(log.path, tmp_path / "target", speed=speed, clock=clock)
    assert done.messages == 500
    assert done.batches == max(1, -(-499 * 7 // (-(-int(speed * 1000) // 7) * 7)))
    per_batch = min(-(-int(speed * 1000) // 7), 500)
    assert sum(clock.waits) == pytest.approx((499 - per_batch + 1) * 7 / 1000 / speed)
    assert done.seconds == pytest.approx(sum(clock.waits))


def test_a_store_time_outside_the_years_1_to_9999_makes_nobody_wait(tmp_path: Path) -> None:
    for number, times in enumerate(([None, 1000, 1007], [1000, None, 1007], [1000, 1007, None], [None, None, 5])):
        read = pa.record_batch(
            {
                "commit_log_offset": [0, 10, 20],
                "store_size": [10, 10, 10],
                "store_timestamp": pa.array([t and t * 10**9 for t in times], pa.timestamp("us", "UTC")),
            }
        )
        clock = HandClock()
        pace = replay_module._Pace(1.0, clock)
        batches = list(replay_module._batches(iter([read]), 1000))
        for batch in batches:
            pace.wait_for(batch.last_ms)
        assert sum(clock.waits) <= 7000, number
        assert sum(batch.rows.num_rows for batch in batches) == 3


def test_progress_is_told_in_bytes_of_the_source(tmp_path: Path) -> None:
    log, told = HandLog(tmp_path / "source", 4096), []
    log.append(300)
    replay(
        log.path, tmp_path / "target", speed=0.1, clock=HandClock(), progress=lambda *words: told.append(words)
    )  # fmt: skip
    done = [one for one, *_ in told]
    assert done == sorted(done)
    assert (done[0], done[-1], len(done)) == (0, told[0][1], 21)
    assert {words[1:] for words in told} == {(told[0][1], "replay")}


def test_without_a_speed_nothing_waits(tmp_path: Path) -> None:
    log, clock = HandLog(tmp_path / "source", 4096), HandClock()
    log.append(100)
    assert replay(log.path, tmp_path / "target", clock=clock).batches == 1
    assert clock.waits == []


def test_the_messages_of_an_inner_batch_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they come with several reads: a batch ends behind whole records, for there a replay goes on."""
    monkeypatch.setattr(replay_module, "_BATCH_ROWS", 1)

    def read(*offsets: int) -> pa.RecordBatch:
        times = pa.array([0] * len(offsets), pa.timestamp("us", "UTC"))
        columns = {"commit_log_offset": list(offsets), "store_size": [10] * len(offsets), "store_timestamp": times}
        return pa.record_batch(columns)

    batches = list(replay_module._batches(iter([read(0, 10), read(10, 10), read(10, 20), read(30)]), None))
    assert [(batch.rows["commit_log_offset"].to_pylist(), batch.end_offset) for batch in batches] == [
        ([0], 10), ([10, 10, 10, 10], 20), ([20], 30), ([30], 40),
    ]  # fmt: skip


def test_again_puts_only_what_is_new_and_another_name_all(tmp_path: Path) -> None:
    log, target = HandLog(tmp_path / "source", 4096), tmp_path / "target"
    log.append(50)
    assert replay(log.path, target).messages == 50
    again = replay(log.path, target)
    assert (again.messages, again.resumed_at) == (0, log.end)
    new = log.append(10)
    assert replay(log.path, target).messages == 10
    assert [row["body"].decode() for row in rows_of(target)][-10:] == new
    assert replay(log.path, target, name="anew").messages == 60
    assert len(rows_of(target)) == 120


def test_a_second_run_of_a_replay_that_is_under_way_is_refused_and_each_message_comes_once(tmp_path: Path) -> None:
    log, target = HandLog(tmp_path / "source", 4096), tmp_path / "target"
    log.append(500)

    class _RunsAgain(HandClock):
        def wait(self, seconds: float) -> None:
            super().wait(seconds)
            with pytest.raises(StoreLockedError, match="the same replay"):
                replay(log.path, target)

    assert replay(log.path, target, speed=1.0, clock=_RunsAgain()).messages == 500
    assert len(rows_of(target)) == 500
    assert replay(log.path, target).messages == 0


def test_a_name_is_for_one_replay(tmp_path: Path) -> None:
    log = HandLog(tmp_path / "source", 4096)
    log.append(50)
    replay(log.path, tmp_path / "target", name="mine")
    with pytest.raises(ConfigError, match="something else was replayed"):
        replay(log.path, tmp_path / "target", name="mine", topics=["orders"])
    assert len(rows_of(tmp_path / "target")) == 50


@pytest.mark.parametrize("name", ["a/b", "../../../elsewhere", "x" * 300])
def test_a_name_that_is_none_of_a_folder_is_refused_before_anything_is_made(name: str, tmp_path: Path) -> None:
    log = HandLog(tmp_path / "source", 4096)
    log.append(5)
    with pytest.raises(ConfigError, match="no name of a folder"):
        replay(log.path, tmp_path / "target", name=name)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_source_that_has_lost_the_place_to_go_on_is_refused(tmp_path: Path) -> None:
    log = HandLog(tmp_path / "source", 4096)
    log.append(100)
    replay(log.path, tmp_path / "target")
    log.cut(30)
    log.append(3)
    with pytest.raises(ConfigError, match=r"no record starts at offset|no file has the offset"):
        replay(log.path, tmp_path / "target")


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf"), 10**400])
def test_a_speed_is_above_zero(speed: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a number above 0"):
        replay(GOLDEN / "5.3.3/clean/store", tmp_path / "target", speed=speed)
    assert not (tmp_path / "target").exists()


def test_a_store_is_not_replayed_into_itself(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store") as store:
        store.put_message(Message("orders", b"1"))
    with pytest.raises(ConfigError, match="the target is the source"):
        replay(tmp_path / "store", tmp_path / "store")
    with pytest.raises(ConfigError, match="lies inside the store"):
        replay(tmp_path / "store", tmp_path / "store" / "copy")
    assert not (tmp_path / "store" / "copy").exists()
    assert len(rows_of(tmp_path / "store")) == 1


def test_damage_ends_a_replay(tmp_path: Path) -> None:
    log = HandLog(tmp_path / "source", 1 << 16)
    log.append(100)
    offset = sorted(log.bodies)[60]
    with (log.folder / ("0" * 20)).open("r+b") as file:
        file.seek(offset + 4)
        file.write(b"????")
    with pytest.raises(CorruptRecordError, match=f"damaged at offset {offset}"):
        replay(log.path, tmp_path / "target")
