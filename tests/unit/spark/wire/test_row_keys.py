"""Unique keys of a sink's rows."""

from __future__ import annotations

from reput.spark.wire.row_keys import RowKeys

ROWS = (0, 1, 65_535, 65_536, 65_537, 1_000_000)


def test_a_row_has_its_own_key_and_the_same_one_each_time() -> None:
    tasks = [("query", 0, 0), ("query", 0, 1), ("query", 1, 0), ("other", 0, 0)]
    keys = [[RowKeys(*task).key(row) for row in ROWS] for task in tasks]
    assert keys == [[RowKeys(*task).key(row) for row in ROWS] for task in tasks]
    flat = [key for row in keys for key in row]
    assert len(set(flat)) == len(flat)


def test_a_key_has_the_form_of_rocketmqs_ids() -> None:
    for row in ROWS:
        key = RowKeys("query", 7, 3).key(row)
        assert len(key) == 32
        assert bytes.fromhex(key).hex().upper() == key
        assert key[20:28] == "00000000"  # the begin of a month
