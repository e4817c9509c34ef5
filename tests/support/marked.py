"""Markers of the test that runs: what `make test` does not have on every machine is started by marked tests alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: None outside of tests, as in benchmarks and campaigns, which may start anything.
_markers: frozenset[str] | None = None


@contextmanager
def running(item: pytest.Item) -> Iterator[None]:
    """Know the markers of a test while it runs, with its fixtures."""
    global _markers
    _markers = frozenset(mark.name for mark in item.iter_markers())
    try:
        yield
    finally:
        _markers = None


def need(marker: str) -> None:
    """Fail a test that starts something for which it has no marker."""
    assert _markers is None or marker in _markers, (
        f"this test starts what only a machine for the marker {marker!r} has: give it `pytest.mark.{marker}`"
    )
