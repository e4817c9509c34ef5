"""Rebuild against a plain dispatch of record after record, and what it does with hostile logs and directories."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.errors import ConfigError, CorruptRecordError, StoreFormatError
from reput.formats.index_file import IndexHeader, decode_header
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import SysFlag
from reput.jobs.rebuild import RebuildOptions, index_builder, rebuild
from reput.jobs.runner import LocalRunner
from reput.progress import Progress
from tests.support.examples import examples
from tests.support.runners import PicklingRunner
from tests.support.small_rebuild import (
    LOG_START,
    PUTS,
    Put,
    dispatched_index,
    dispatched_queues,
    encode,
    files_of,
    rebuild_small,
    write_log,
)

#: Records whose queue offset an earlier record has, and gaps of lost messages that had room in the log.
CRASHED = st.builds(replace, PUTS, queue_step=st.sampled_from([0, 0, 0, 0, -1, -3]))
LOST = st.builds(replace, PUTS, queue_step=st.sampled_from([0, 0, 0, 2, 15]))


def with_room(puts: list[Put]) -> list[Put]:
    """A placeholder before each gap, no two repeats in a row: they outvote the record before them."""
    roomy: list[Put] = []
    for put in puts:
        if put.queue_step > 0:
            roomy.append(Put(sys_flag=SysFlag.TRANSACTION_ROLLBACK, body=bytes(22 * put.queue_step)))
        roomy.append(replace(put, queue_step=0) if put.queue_step < 0 and roomy and roomy[-1].queue_step < 0 else put)
    return roomy


@settings(max_examples=examples(25))
@given(
    st.lists(PUTS, max_size=80),
    st.integers(100, 10_000),
    st.sampled_from([1, 2]),
    st.dictionaries(st.integers(0, 2), st.integers(0, 60)),
)
def test_rebuild_equals_dispatch_whatever_the_splits(
    tmp_path_factory: pytest.TempPathFactory, puts: list[Put], split_bytes: int, threads: int, first: dict[int, int]
) -> None:
    path = tmp_path_factory.mktemp("store")
    stored = write_log(path / "store", puts, first)
    result = rebuild_small(path / "store", path / "out", runner=LocalRunner(threads=threads), split_bytes=split_bytes)
    assert files_of(path / "out") == dispatched_queues(stored) | dispatched_index(stored)
    assert not result.in_order
    assert result.messages == len(puts)
    assert result.log_bytes == sum(record.size for record in stored)
    assert result.units == sum(put.has_unit for put in puts)
    assert result.keys == sum(len(put.keys) for put in puts if put.sys_flag != SysFlag.TRANSACTION_ROLLBACK)


@settings(max_examples=examples(25))
@given(st.one_of(st.lists(CRASHED, max_size=60), st.lists(LOST, max_size=60)).map(with_room), st.integers(100, 10_000))
def test_of_repeated_queue_offsets_the_first_wins_and_gaps_are_filled(
    tmp_path_factory: pytest.TempPathFactory, puts: list[Put], split_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("store")
    stored = write_log(path / "store", puts)
    rebuild_small(path / "store", path / "out", split_bytes=split_bytes)
    assert files_of(path / "out") == dispatched_queues(stored) | dispatched_index(stored)


@pytest.mark.parametrize("step", [-1, 1])
def test_a_repeat_or_a_gap_between_two_splits_is_found_by_the_merge(step: int, tmp_path: Path) -> None:
    puts = [Put(body=bytes(400)), Put(body=bytes(400)), Put(body=bytes(400), queue_step=step), Put()]
    stored = write_log(tmp_path / "store", puts)
    result = rebuild_small(tmp_path / "store", tmp_path / "out", split_bytes=512)
    assert result.in_order
    assert files_of(tmp_path / "out") == dispatched_queues(stored)


def test_a_body_that_forges_records_changes_nothing(tmp_path: Path) -> None:
    before = [Put(body=bytes(100)), Put(body=bytes(200))]
    fake = Put(topic="forged", keys=("stolen",))
    place = write_log(tmp_path / "other", [*before, Put()])[-1].offset + 88
    body = b"".join(encode(fake, 50 + i, place + i * len(encode(fake, 0, 0))) for i in range(3))
    stored = write_log(tmp_path / "store", [*before, Put(body=body, keys=("k1",)), Put(queue_id=1)])
    outputs = []
    for split_bytes in range(300, 800, 50):
        outputs.append(tmp_path / f"out-{split_bytes}")
        rebuild_small(tmp_path / "store", outputs[-1], split_bytes=split_bytes)
    expected = dispatched_queues(stored) | dispatched_index(stored)
    assert [files_of(output) for output in outputs] == [expected] * len(outputs)


@pytest.mark.parametrize(
    ("put", "reason"),
    [
        (Put(queue_step=1 << 40), "queue offset 1099511627777, but before it the log can hold at most"),
        (Put(topic="../../../out"), "'../../../out' cannot name a folder"),
        (Put(topic=".."), "'..' cannot name a folder"),
        (Put(topic="a\0b"), "cannot name a folder"),
        (Put(topic="中" * 200), "cannot name a folder"),
    ],
)
def test_a_hostile_record_is_named_and_leaves_nothing(put: Put, reason: str, tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(), put, Put(queue_id=1)])
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        rebuild_small(tmp_path / "store", tmp_path / "out")
    assert caught.value.offset == stored[1].offset
    assert caught.value.path == str(tmp_path / "store/commitlog" / offset_to_file_name(LOG_START))
    assert os.listdir(tmp_path) == ["store"]


def test_the_queue_offset_of_a_prepared_message_means_nothing(tmp_path: Path) -> None:
    log = encode(Put(sys_flag=SysFlag.TRANSACTION_PREPARED), 1 << 40, 0)
    (tmp_path / "store/commitlog").mkdir(parents=True)
    (tmp_path / "store/commitlog" / offset_to_file_name(0)).write_bytes(log + bytes(1000))
    result = rebuild_small(tmp_path / "store", tmp_path / "out")
    assert (result.messages, result.units, files_of(tmp_path / "out")) == (1, 0, {})


def test_an_output_with_content_is_refused_and_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put()])
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    with pytest.raises(StoreFormatError, match="exists already and is not an empty folder"):
        rebuild_small(tmp_path / "store", tmp_path / "store")
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before


def test_an_empty_output_folder_is_taken(tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(keys=("k",))])
    (tmp_path / "out").mkdir()
    rebuild_small(tmp_path / "store", tmp_path / "out")
    assert files_of(tmp_path / "out") == dispatched_queues(stored) | dispatched_index(stored)


def test_tasks_items_and_results_can_travel_to_another_process(tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(queue_id=i % 3, keys=("k",), body=bytes(300)) for i in range(50)])
    rebuild_small(tmp_path / "store", tmp_path / "out", runner=PicklingRunner())
    assert files_of(tmp_path / "out") == dispatched_queues(stored) | dispatched_index(stored)


def test_a_fault_that_another_process_found_is_raised_whole(tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(), Put(topic="..")])
    with pytest.raises(CorruptRecordError, match="cannot name a folder") as caught:
        rebuild_small(tmp_path / "store", tmp_path / "out", runner=PicklingRunner())
    assert caught.value.offset == stored[1].offset


class InterruptedRunner(LocalRunner):
    """Runs the first phase, and is interrupted when the second has run; notes what is there at that moment."""

    def __init__(self, folder: Path) -> None:
        super().__init__(threads=1)
        self._folder = folder
        self._runs = 0
        self.seen: list[str] = []

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        description: str,
        progress: Progress | None = None,
    ) -> list[Any]:
        results = super().run(task, items, description=description, progress=progress)
        self._runs += 1
        if self._runs == 2:
            self.seen = sorted(os.listdir(self._folder))
            raise KeyboardInterrupt
        return results


def test_nothing_has_the_name_of_the_output_before_all_is_done(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put(keys=("k",))])
    runner = InterruptedRunner(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        rebuild_small(tmp_path / "store", tmp_path / "out", runner=runner)
    assert runner.seen == sorted(os.listdir(tmp_path)) == ["out.unfinished", "store"]


def test_files_that_no_rebuild_left_do_not_get_into_one(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put(keys=("k",))])
    (tmp_path / "out.unfinished/consumequeue/stale/0").mkdir(parents=True)
    with pytest.raises(StoreFormatError, match="no unfinished rebuild left it"):
        rebuild_small(tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "out").exists()


class AttemptDied(Exception):
    """Stands for the SIGKILL of a process in the middle of a task."""


class SecondAttemptRunner(LocalRunner):
    """Runs a task whose process died once more, as Spark does."""

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        description: str,
        progress: Progress | None = None,
    ) -> list[Any]:
        def attempts(item: Any) -> Any:
            with contextlib.suppress(AttemptDied):
                return task(item)
            return task(item)

        return super().run(attempts, items, description=description, progress=progress)


def test_an_index_file_begun_by_an_attempt_that_died_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = write_log(tmp_path / "store", [Put(keys=("k",)), Put(keys=("k", "l"))])
    encode_header = index_builder.encode_header
    seen: list[list[Path]] = []

    def dying(header: IndexHeader) -> bytes:
        if not seen:
            seen.append([path for path in tmp_path.glob("**/index/*") if path.is_file()])
            raise AttemptDied
        return encode_header(header)

    monkeypatch.setattr(index_builder, "encode_header", dying)
    rebuild_small(tmp_path / "store", tmp_path / "out", runner=SecondAttemptRunner(threads=1))
    assert seen == [[]], "a file that is not whole has its name already"
    assert files_of(tmp_path / "out") == dispatched_queues(stored) | dispatched_index(stored)


def test_without_the_index_no_index_folder_is_made(tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(keys=("k",))])
    result = rebuild_small(tmp_path / "store", tmp_path / "out", index=False)
    assert files_of(tmp_path / "out") == dispatched_queues(stored)
    assert os.listdir(tmp_path / "out") == ["consumequeue"]
    assert result.keys == 0


def test_index_files_of_one_moment_have_names_in_their_order(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put(keys=tuple("abcdefgh")) for _ in range(30)])
    rebuild_small(tmp_path / "store", tmp_path / "out")
    names = sorted(os.listdir(tmp_path / "out/index"))
    begins = [decode_header((tmp_path / "out/index" / name).read_bytes()).begin_phy_offset for name in names]
    assert names[:2] == ["20231114101320000", "20231114101320001"]
    assert len(names) == 22
    assert begins == sorted(begins)


@pytest.mark.parametrize("timestamp", [-5, (1 << 63) - 1])
def test_a_store_time_that_is_no_date_makes_an_index_file_all_the_same(timestamp: int, tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(keys=("k",), timestamp=timestamp)])
    rebuild_small(tmp_path / "store", tmp_path / "out")
    header = decode_header(next((tmp_path / "out/index").iterdir()).read_bytes())
    assert (header.begin_timestamp, header.begin_phy_offset) == (timestamp, stored[0].offset)


def test_file_sizes_come_from_the_store(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put(keys=("k1", "k2", "k3")), Put(keys=("k4",), queue_id=1)])
    rebuild_small(tmp_path / "store", tmp_path / "first")
    os.rename(tmp_path / "first/consumequeue", tmp_path / "store/consumequeue")
    os.rename(tmp_path / "first/index", tmp_path / "store/index")
    rebuild(tmp_path / "store", tmp_path / "out", runner=LocalRunner())
    assert files_of(tmp_path / "out") == files_of(tmp_path / "store")


def test_options_are_one_object_or_given_by_name(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put(keys=("k1",)), Put(queue_id=1)])
    options = RebuildOptions(mapped_file_size_consume_queue=160, max_hash_slot_num=7, max_index_num=20)
    runner = LocalRunner()
    rebuild(tmp_path / "store", tmp_path / "object", runner=runner, options=options)
    rebuild(
        tmp_path / "store", tmp_path / "names", runner=runner,
        mapped_file_size_consume_queue=160, max_hash_slot_num=7, max_index_num=20,
    )  # fmt: skip
    rebuild(tmp_path / "store", tmp_path / "both", runner=runner, options=options, index=False)
    files = files_of(tmp_path / "object")
    assert files_of(tmp_path / "names") == files
    assert files_of(tmp_path / "both") == {name: data for name, data in files.items() if "index" not in str(name)}
    with pytest.raises(TypeError, match="max_slots"):
        rebuild(tmp_path / "store", tmp_path / "out", runner=runner, max_slots=7)


def test_file_sizes_that_rocketmq_does_not_allow_are_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Put()])
    with pytest.raises(ConfigError, match="maxIndexNum=1"):
        rebuild(tmp_path / "store", tmp_path / "out", runner=LocalRunner(), max_index_num=1)
    assert os.listdir(tmp_path) == ["store"]
