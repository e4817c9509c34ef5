"""kill -9 and power cuts of a broker under retries, delays, transactions, and what it does between clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kinds.client_calls import ClientCalls
from tests.support.kinds.delays import Delays, Timers
from tests.support.kinds.kind import Kind
from tests.support.kinds.lives import Death, live
from tests.support.kinds.pop import Pop
from tests.support.kinds.retries import Retries
from tests.support.kinds.transactions import Transactions
from tests.support.shares import sampled

LAST = Death("stop", answers=10)


def keeps_its_promises(folder: Path, kind: Kind, death: Death) -> None:
    kind.life = "first"
    left = live(kind, folder / "store", folder / "first", death)
    kind.life = "last"
    live(kind, left, folder / "last", LAST)


@sampled(2)
@pytest.mark.parametrize(
    ("kind", "death"),
    [
        (Retries, Death("kill", answers=40, moment_s=0.2)),
        (Transactions, Death("power cut", operation=150, seed=1)),
        pytest.param(Retries, Death("power cut", operation=150, seed=2), marks=pytest.mark.slow),
        pytest.param(Delays, Death("kill", answers=100, moment_s=1.0), marks=pytest.mark.slow),
        pytest.param(Delays, Death("power cut", operation=200), marks=pytest.mark.slow),
        pytest.param(Timers, Death("kill", answers=100, moment_s=0.5), marks=pytest.mark.slow),
        pytest.param(Timers, Death("power cut", operation=300, seed=6), marks=pytest.mark.slow),
        pytest.param(Transactions, Death("kill", answers=100), marks=pytest.mark.slow),
        pytest.param(Pop, Death("kill", answers=100, moment_s=0.5), marks=pytest.mark.slow),
        pytest.param(Pop, Death("power cut", operation=300, seed=5), marks=pytest.mark.slow),
        pytest.param(ClientCalls, Death("kill", answers=100), marks=pytest.mark.slow),
        pytest.param(ClientCalls, Death("power cut", operation=200, seed=3), marks=pytest.mark.slow),
    ],
)
def test_a_broker_that_dies_has_kept_its_promises_and_goes_on(tmp_path: Path, kind: type[Kind], death: Death) -> None:
    keeps_its_promises(tmp_path, kind(), death)


@pytest.mark.slow
def test_a_broker_whose_start_loses_its_power_goes_on(tmp_path: Path) -> None:
    keeps_its_promises(tmp_path, Delays(), Death("power cut", operation=25, in_start=True, seed=4))
