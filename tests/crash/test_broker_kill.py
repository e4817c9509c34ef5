"""kill -9 of a broker under load: what clients were answered is there after it, and the next life goes on there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.asking import until
from tests.support.broker_ledger import Ledger
from tests.support.broker_load import Death, kill_starting, load_until_death

LAST = Death(100, is_stopped=True, is_drained=True)


@pytest.mark.parametrize(
    ("flush_disk_type", "kills"),
    [("SYNC_FLUSH", 1), *(pytest.param(name, 3, marks=pytest.mark.slow) for name in ("SYNC_FLUSH", "ASYNC_FLUSH"))],
)
def test_a_killed_broker_has_all_that_it_answered_and_groups_go_on(
    tmp_path: Path, flush_disk_type: str, kills: int
) -> None:
    store, ledger = tmp_path / "store", Ledger()
    for kill in range(kills):
        death = Death(200 + 331 * kill)
        assert not load_until_death(store, ledger, f"{kill}", death, flush_disk_type=flush_disk_type)
        ledger.check(store, tmp_path / f"check-{kill}", is_clean=False)
    assert load_until_death(store, ledger, "last", LAST, flush_disk_type=flush_disk_type)
    ledger.check(store, tmp_path / "check", is_clean=True)


@pytest.mark.slow
def test_a_broker_that_is_killed_while_it_starts_or_stops_has_all_that_it_answered(tmp_path: Path) -> None:
    store, ledger = tmp_path / "store", Ledger()
    assert not load_until_death(store, ledger, "first", Death(300))
    until(lambda: kill_starting(store, 0.3))  # one that is ready too early counts for nothing
    ledger.check(store, tmp_path / "check-0", is_clean=False)
    is_clean = load_until_death(store, ledger, "second", Death(300, is_stopped=True, stop_s=0.0))
    ledger.check(store, tmp_path / "check-1", is_clean=is_clean)  # it may be quicker than the kill
    assert load_until_death(store, ledger, "last", LAST)
    ledger.check(store, tmp_path / "check", is_clean=True)
