from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from reput.errors import ConfigError
from reput.kernels.records.record_batch import SCHEMA
from reput.kernels.records.record_scan import ScanLevel
from reput.log.selection import make_selection


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["topic", "bodies"]}, r"columns: a log has no column 'bodies'; did you mean 'body'\?"),
        ({"columns": ["storeTimestamp"]}, r"did you mean 'store_timestamp'\?"),
        ({"columns": []}, r"columns: name at least one"),
        ({"columns": "body"}, r"columns: give a list of texts, not one text: \['body'\]"),
        ({"topics": "orders"}, r"topics: give a list of texts"),
        ({"keys": "o-1"}, r"keys: give a list of texts"),
        ({"keys": [1]}, r"keys: 1 is no text"),
        (
            {"begin": datetime(2024, 1, 1)},
            r"begin: .* is neither milliseconds since 1970 nor a datetime with",
        ),
        ({"end": "2024-01-01"}, r"end: '2024-01-01' is neither"),
        ({"end": 1.5}, r"end: 1.5 is neither"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_right(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_selection(store="s", **options)  # type: ignore[arg-type]


def test_columns_keep_the_order_they_were_asked_in() -> None:
    assert make_selection(columns=["status", "topic"], store="s").schema.names == ["status", "topic"]
    assert make_selection(store="s").schema == SCHEMA


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"columns": ["queue_offset", "topic", "body", "properties"]}, ScanLevel.HEADER),
        ({"columns": ["queue_offset"], "topics": ["orders"]}, ScanLevel.QUEUES),
        ({"columns": ["tags"]}, ScanLevel.PROPERTIES),
        ({"columns": ["queue_offset"], "keys": ["o-1"]}, ScanLevel.PROPERTIES),
    ],
)
def test_a_scan_extracts_no_more_than_is_needed(options: dict[str, list[str]], level: ScanLevel) -> None:
    assert make_selection(store="s", **options).level is level  # type: ignore[arg-type]


def test_bounds_between_two_milliseconds_include_what_lies_between_them() -> None:
    begin = datetime(1970, 1, 1, 0, 0, 1, 1, UTC)
    selection = make_selection(begin=begin, end=begin + timedelta(milliseconds=5), store="s")
    assert (selection.begin_ms, selection.end_ms) == (1001, 1005)
    east = datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert make_selection(begin=east, end=7, store="s").begin_ms == 0
    later = make_selection(begin=np.int64(1 << 54), end=np.int32(7), store="s")  # microseconds of which no int64 has
    assert (later.begin_ms, later.end_ms) == (1 << 54, 7)


def test_a_selection_travels() -> None:
    selection = make_selection(topics=["orders"], keys=["o-1"], store="s")
    assert pickle.loads(pickle.dumps(selection)) == selection
