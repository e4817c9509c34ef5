"""Rebuild of a damaged log: refused, or built of all that is whole, with each range that was passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.counts import counted
from reput.errors import CorruptRecordError
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput
from tests.support.damage import at, flip
from tests.support.examples import examples
from tests.support.runners import PicklingRunner
from tests.support.small_rebuild import (
    ENTRIES,
    PUTS,
    QUEUE_FILE_SIZE,
    SLOTS,
    Put,
    Stored,
    dispatched_index,
    dispatched_queues,
    files_of,
    rebuild_small,
    write_log,
)

#: What is changed of a record: (position in it, bit).
MAGIC, PHYSICAL_OFFSET, BODY, TOTAL_SIZE = 4, 28, 88, 1


def spoil(store: Path, record: Stored, position: int) -> str:
    """Change one byte of a record; returns the path of its file."""
    file, begin = at(store, record.offset)
    flip(file, begin + position, 0x40)
    return str(file)


def apart(numbers: set[int]) -> set[int]:
    """Those of the numbers that are neighbours, or more than three apart.

    Behind damage a record counts only if the two that follow it prove themselves, too.
    """
    chosen: list[int] = []
    for number in sorted(numbers):
        if not chosen or number - chosen[-1] not in (2, 3):
            chosen.append(number)
    return set(chosen)


@settings(max_examples=examples(10))
@given(st.lists(PUTS, min_size=3, max_size=60), st.data(), st.integers(100, 10_000), st.sampled_from([1, 2]))
def test_all_that_is_whole_is_built_and_each_range_is_told_whatever_the_splits(
    tmp_path_factory: pytest.TempPathFactory, puts: list[Put], data: st.DataObject, split_bytes: int, threads: int
) -> None:
    path = tmp_path_factory.mktemp("store")
    stored = write_log(path / "store", puts)
    # Behind the last record nothing proves itself: there the log ends.
    lost = apart(data.draw(st.sets(st.integers(0, len(stored) - 2), min_size=1, max_size=6)))
    positions = {number: data.draw(st.sampled_from([MAGIC, PHYSICAL_OFFSET, TOTAL_SIZE])) for number in lost}
    paths = {number: spoil(path / "store", stored[number], position) for number, position in positions.items()}
    result = rebuild_small(
        path / "store", path / "out", damaged="skip", split_bytes=split_bytes, runner=LocalRunner(threads)
    )
    kept = [record for number, record in enumerate(stored) if number not in lost]
    assert files_of(path / "out") == dispatched_queues(kept) | dispatched_index(kept)
    assert result.messages == len(kept)
    for number in lost:
        (damage,) = (d for d in result.damages if d.begin <= stored[number].offset < d.end)
        assert damage.path == paths[number]
        assert not any(damage.begin <= record.offset < damage.end for record in kept)
    for damage, finding in zip(result.damages, result.findings, strict=True):
        assert finding.startswith(f"{damage.path}: damaged at offset {damage.begin}: ")
        assert finding.endswith(f"; passed over {counted(damage.end - damage.begin, 'byte')}")


@pytest.mark.parametrize("split_bytes", [300, 1 << 20])
def test_a_record_whose_body_is_damaged_is_passed_over_alone(tmp_path: Path, split_bytes: int) -> None:
    stored = write_log(tmp_path / "store", [Put(body=bytes(200), keys=("k",)) for _ in range(30)])
    spoil(tmp_path / "store", stored[12], BODY)
    result = rebuild_small(
        tmp_path / "store", tmp_path / "out", damaged="skip", split_bytes=split_bytes, runner=PicklingRunner()
    )
    kept = [*stored[:12], *stored[13:]]
    assert files_of(tmp_path / "out") == dispatched_queues(kept) | dispatched_index(kept)
    (damage,) = result.damages
    assert (damage.begin, damage.end) == (stored[12].offset, stored[13].offset)
    assert "body CRC" in damage.reason


@pytest.mark.parametrize("put", [Put(queue_step=1 << 40), Put(topic="../../../out"), Put(topic="a\0b")])
def test_a_whole_record_that_cannot_have_a_unit_is_passed_over_too(put: Put, tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(), put, Put(queue_id=1), Put(queue_id=1)])
    result = rebuild_small(tmp_path / "store", tmp_path / "out", damaged="skip")
    assert files_of(tmp_path / "out") == dispatched_queues([stored[0], *stored[2:]])
    (damage,) = result.damages
    assert (damage.begin, damage.end) == (stored[1].offset, stored[2].offset)
    assert (result.messages, result.units) == (4, 3)


def test_the_refusal_names_the_way_past(tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put() for _ in range(5)])
    path = spoil(tmp_path / "store", stored[2], MAGIC)
    with pytest.raises(CorruptRecordError, match="--damaged skip") as caught:
        rebuild_small(tmp_path / "store", tmp_path / "out")
    assert (caught.value.path, caught.value.offset) == (path, stored[2].offset)
    assert not (tmp_path / "out").exists()


def test_the_command_tells_what_it_passed_over_and_ends_with_1(tmp_path: Path) -> None:
    stored = write_log(tmp_path / "store", [Put(keys=("k",)) for _ in range(5)])
    path = spoil(tmp_path / "store", stored[2], MAGIC)
    call = ("rebuild", tmp_path / "store", "--runner", "local")
    sizes = [f"--set={key}={n}" for key, n in (("maxHashSlotNum", SLOTS), ("maxIndexNum", ENTRIES))]
    sizes.append(f"--set=mappedFileSizeConsumeQueue={QUEUE_FILE_SIZE}")
    refused = run_reput(*call, "--output", tmp_path / "1", *sizes)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "--damaged skip" in refused.err
    answer = run_reput(*call, "--output", tmp_path / "2", *sizes, "--damaged", "skip", "--json")
    (damage,) = answer.object()["damages"]
    assert (answer.status, damage["path"], damage["begin"]) == (1, path, stored[2].offset)
    assert damage["end"] - damage["begin"] == stored[2].size
    page = tmp_path / "report.html"
    text = run_reput(*call, "--output", tmp_path / "3", *sizes, "--damaged", "skip", "--report", page)
    assert text.status == 1
    for shown in (text.out, page.read_text()):
        assert f"damaged at offset {stored[2].offset}: " in shown
        assert f"; passed over {stored[2].size} bytes" in shown
        assert "build and sync" in shown
