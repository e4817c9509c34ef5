"""A plan: its parts give the rows of the log, however it is cut, and no border is found by the bytes."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reput
from reput.errors import CorruptRecordError
from reput.files import DISK
from reput.formats.paths import offset_to_file_name
from reput.kernels.records.record_batch import SCHEMA
from reput.kernels.records.record_search import find_record
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import cut_part, part_bytes, read_part
from reput.log.point_reads import Points
from reput.log.selection import make_selection
from reput.log.splits import Split
from tests.support.damaged_copy import damaged_copy
from tests.support.forged_log import forged_log
from tests.support.shares import sampled

CORPORA = Path(__file__).parents[3] / "golden" / "5.3.3"
CASES = sorted(path.name for path in CORPORA.iterdir())
CLEAN = CORPORA / "clean" / "store"


def planned_rows(path: Path, **options: Any) -> pa.Table:
    """What the parts of a plan hold, one after the other."""
    selection = make_selection(store=path.name)
    plan = plan_read(StoreDirectory(path), selection, PlanOptions(**{"processors": 2, **options}))
    return pa.Table.from_batches([batch for part in plan.parts for batch in read_part(part, selection, DISK)], SCHEMA)


def splits_of(path: Path, **options: Any) -> list[Split]:
    """The parts of a plan that wants everything: only stretches."""
    plan = plan_read(StoreDirectory(path), make_selection(store=""), PlanOptions(**{"processors": 2, **options}))
    return [part for part in plan.parts if isinstance(part, Split)]


class TestPlan:
    @sampled(4)
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize(
        "plan",
        [{"split_bytes": 300}, {"split_bytes": 9000}, {"processors": 1}, {"processors": 64}],
        ids=str,
    )
    def test_its_rows_are_those_of_the_log(self, case: str, plan: dict[str, int]) -> None:
        store = CORPORA / case / "store"
        assert planned_rows(store, **plan) == reput.read_log(store).read_all()

    @pytest.mark.parametrize("case", ["clean", "killed"])
    def test_a_log_flushed_up_to_a_time_has_the_rows_before_the_first_later_one(self, case: str) -> None:
        store = CORPORA / case / "store"
        log = reput.read_log(store).read_all()
        times = log["store_timestamp"].cast(pa.int64()).to_pylist()
        flushed_ms = times[len(times) // 2] // 1000
        flushed = next(row for row, time in enumerate(times) if time > flushed_ms * 1000)
        assert planned_rows(store, flushed_ms=flushed_ms, split_bytes=2000) == log[:flushed]
        assert planned_rows(store, flushed_ms=0).num_rows == 0

    def test_bodies_full_of_true_looking_records_give_no_rows(self, tmp_path: Path) -> None:
        count = forged_log(tmp_path / "store")
        log = reput.read_log(tmp_path / "store").read_all()
        assert log.num_rows == count
        data = np.frombuffer((tmp_path / "store" / "commitlog" / offset_to_file_name(0)).read_bytes(), np.uint8)
        assert find_record(data, 0, 300) not in log["commit_log_offset"].to_pylist()  # the bytes do mislead
        for split_bytes in range(500, 4000, 171):
            assert planned_rows(tmp_path / "store", split_bytes=split_bytes) == log

    def test_splits_join_without_gap_and_begin_at_records(self) -> None:
        offsets = set(reput.read_log(CLEAN, ["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist())
        splits = splits_of(CLEAN, split_bytes=10_000)
        assert len(splits) > 20
        assert {split.begin for split in splits} <= offsets
        assert all(a.end == b.begin for a, b in pairwise(splits) if a.file == b.file)

    def test_files_with_a_successor_are_whole_splits_where_there_are_enough(self) -> None:
        files = StoreDirectory(CLEAN).log_files()
        splits = splits_of(CLEAN)
        assert [(split.begin, split.end) for split in splits[:-1]] == [
            (file.start_offset, file.end_offset) for file in files[: len(splits) - 1]
        ]
        assert splits[-1].end < splits[-1].file.end_offset

    def test_damage_in_a_walked_file_is_told_by_the_planner(self, tmp_path: Path) -> None:
        path, file, offset = damaged_copy(tmp_path / "store", 0)
        with pytest.raises(CorruptRecordError, match="body CRC") as caught:
            splits_of(path, split_bytes=5000)
        assert (caught.value.path, caught.value.offset) == (file, offset)


def test_known_records_are_cut_to_tasks_and_a_stretch_is_not() -> None:
    file = StoreDirectory(CLEAN).log_files()[0]
    points = Points(file, np.arange(0, 1000, 100), np.full(10, 100))
    pieces = [piece for piece in cut_part(points, 300) if isinstance(piece, Points)]
    assert [part_bytes(piece) for piece in pieces] == [300, 300, 300, 100]
    assert np.concatenate([piece.offsets for piece in pieces]).tolist() == points.offsets.tolist()
    split = Split(file, 0, 1000, True)
    assert cut_part(split, 300) == [split]


#: Plans the read of a store for each way to choose messages, in a process of its own as Spark's planner is.
_PLANS = """
import sys
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.selection import make_selection
names = sys.argv[2].split(",")
times = {"begin": 0, "end": 1 << 40}
for chosen in ({}, {"topics": names}, {"keys": ["one", "two"]}, times, {"topics": names, **times}):
    plan = plan_read(StoreDirectory(sys.argv[1]), make_selection(store="", **chosen), PlanOptions(processors=2))
    assert plan.read_bytes < plan.log_bytes or not {"topics", "keys"} & chosen.keys(), plan
print([name for name in ("pandas",) if name in sys.modules])
"""


def test_planning_does_not_import_pandas() -> None:
    topics = reput.read_log(CLEAN, ["topic"]).read_all()["topic"].unique().to_pylist()
    arguments = [sys.executable, "-c", _PLANS, str(CLEAN), ",".join(topics[:2])]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "[]", result.stderr
