"""Names that users may have from 0.1, kept for one release."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.store.sinks.replay import ReplayedBatch

FORMER = [
    ("reput.jobs.export", "reput.jobs.lake"),
    ("reput.jobs.import_", "reput.jobs.lake"),
    ("reput.jobs.restore", "reput.jobs.backup"),
    ("reput.jobs.salvage", "reput.jobs.repair"),
    ("reput.jobs.sql", "reput.jobs.query"),
    ("reput.store.import_sink", "reput.store.sinks.import_sink"),
    ("reput.store.replay", "reput.store.sinks.replay"),
]


@pytest.mark.parametrize(("former", "now"), FORMER, ids=[former for former, _ in FORMER])
def test_a_former_import_path_gives_the_same_objects(former: str, now: str) -> None:
    names = import_module(former).__all__
    assert names
    for name in names:
        assert getattr(import_module(former), name) is getattr(import_module(now), name)


def test_a_store_for_an_external_dispatcher_may_be_opened_by_the_former_name(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, dispatch="spark") as store:
        store.put_message(reput.Message("orders", b"x"))
        assert store.dispatch_behind_bytes > 0
    assert (tmp_path / "config" / "reputDispatch.json").exists()


def test_preload_and_verified_records_have_their_former_names(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as store:
        store.put_message(reput.Message("orders", b"x"))
        store.wait_dispatched()
        assert store.warm_up() == store.preload()
        assert store.recovery.confirmed_records == store.recovery.verified_records


def test_the_lag_of_a_replayed_batch_has_its_former_name() -> None:
    assert ReplayedBatch(pa.record_batch({"n": [1]}), 0.5).behind_s == 0.5
