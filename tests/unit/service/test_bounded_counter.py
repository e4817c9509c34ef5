"""Counts by names that clients make up."""

from __future__ import annotations

import pytest

from reput.service import bounded_counter
from reput.service.bounded_counter import BoundedCounter


def test_new_keys_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_counter, "MOST_KEYS", 2)
    counter = BoundedCounter[str]()
    for key in ("a", "b", "c", "a", "d"):
        counter.inc(key, "rest")
    assert counter == {"a": 2, "b": 1, "rest": 2}
