"""A whole store against a dict: what a hypothesis machine makes up, with kills, power cuts, reopening and threads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import run_state_machine_as_test

from lab.campaign.cases import Part
from tests.support.store_model import StoreModel

_LIVES, _STEPS = 2, 40
_SETTINGS = settings(
    max_examples=_LIVES, stateful_step_count=_STEPS, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def run(folder: Path, seed: int) -> Counter[str]:
    """Some lives of many steps, each compared with the dict."""
    counts = Counter({"messages": 0})

    class Counted(StoreModel):  # type: ignore[misc]
        def check_queues(self) -> None:
            counts["steps"] += 1
            super().check_queues()

        def teardown(self) -> None:
            counts["lives"] += 1
            counts["messages"] += sum(map(len, self.queues.values()))
            super().teardown()

    run_state_machine_as_test(with_seed(seed)(Counted), settings=_SETTINGS)
    return counts


PART = Part(
    "model",
    "a hypothesis machine: any order of puts, threads, kills, power cuts and starts",
    100,
    run,
    ("lives", "steps", "messages"),
)
