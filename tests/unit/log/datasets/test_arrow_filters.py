"""What a filter of Arrow is found to bound: no value that passes is left out, and no value too many is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reput.formats.java import INT64_MAX, INT64_MIN
from reput.log.datasets.arrow_filters import narrowed
from reput.log.directory import StoreDirectory
from reput.log.plans.pruning import Range, Wanted

CLEAN = StoreDirectory(Path(__file__).parents[3] / "golden" / "5.3.3" / "clean" / "store")
stored, born = pc.field("store_timestamp"), pc.field("born_timestamp")
offset, queue_offset = pc.field("commit_log_offset"), pc.field("queue_offset")
topic, queue_id, unique_key = pc.field("topic"), pc.field("queue_id"), pc.field("unique_key")


def at(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (stored >= at(500), Wanted(store_ms=Range(500, INT64_MAX))),
        (stored > at(500), Wanted(store_ms=Range(500, INT64_MAX))),
        (stored > at(500.001), Wanted(store_ms=Range(500, INT64_MAX))),
        (stored <= at(500), Wanted(store_ms=Range(INT64_MIN, 500))),
        (stored < at(-3), Wanted(store_ms=Range(INT64_MIN, -3))),
        (stored == at(500), Wanted(store_ms=Range(500, 500))),
        ((stored > at(5)) & (born < at(9)), Wanted(store_ms=Range(5, INT64_MAX), born_ms=Range(INT64_MIN, 9))),
        ((stored == at(5)) | (stored == at(9)), Wanted(store_ms=Range(5, 9))),
        ((stored > at(5)) | stored.is_null(), Wanted()),
        (~(stored > at(5)), Wanted(store_ms=Range(INT64_MIN, 5))),
        ((stored > at(5)) | (offset > 9), Wanted()),
        ((offset > 5) & (offset <= 9) & (queue_offset == 2**40), Wanted(
            commit_log_offset=Range(5, 9), queue_offset=Range(2**40, 2**40)
        )),
        (topic == "topic-1", Wanted(topics=frozenset({"topic-1"}))),
        (topic.isin(["topic-1", "topic-2", "nothing"]), Wanted(topics=frozenset({"topic-1", "topic-2"}))),
        (topic == "nothing", Wanted(topics=frozenset())),
        (topic.is_valid(), Wanted()),
        ((topic == "topic-1") & (queue_id >= 2), Wanted(topics=frozenset({"topic-1"}), queue_ids=frozenset({2, 3}))),
        (pc.starts_with(topic, "topic-1"), Wanted(topics=frozenset({"topic-1"}))),
        (unique_key == "A", Wanted(keys=frozenset({"A"}))),
        (unique_key.isin(["A", "B"]) & unique_key.is_valid(), Wanted(keys=frozenset({"A", "B"}))),
        ((unique_key == "A") | (unique_key == 'a "B" \\'), Wanted()),
        ((unique_key == "A") | (topic == "topic-1"), Wanted()),
        (unique_key != "A", Wanted()),
        (unique_key > "A", Wanted()),
        (pc.field("tags") == "topic > 5 store_timestamp", Wanted()),
        (pc.scalar(True), Wanted()),
    ],
    ids=lambda value: str(value) if isinstance(value, pc.Expression) else "",  # a set has no order
)  # fmt: skip
def test_a_filter_bounds_what_arrow_can_tell(expression: pc.Expression, wanted: Wanted) -> None:
    assert narrowed(Wanted(), expression, CLEAN) == wanted


def test_it_narrows_what_is_wanted_already() -> None:
    wanted = Wanted(topics=frozenset({"topic-1", "topic-2"}), store_ms=Range(3, 700))
    expression = topic.isin(["topic-2", "topic-3"]) & (stored > at(500))
    assert narrowed(wanted, expression, CLEAN) == Wanted(topics=frozenset({"topic-2"}), store_ms=Range(500, 700))


def test_a_filter_that_fits_no_column_is_arrows_error() -> None:
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel"):
        narrowed(Wanted(), stored == "yesterday and store_timestamp", CLEAN)
