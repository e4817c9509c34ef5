"""A few seconds of the soak, and whether it would notice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import reput
from lab.campaign.soak import main as soak
from lab.campaign.soak.ledger import Deliveries, Ledger
from lab.campaign.soak.load import BROKERS, LOG_FILE_SIZE, STORES, body_of
from lab.campaign.soak.publish import report, tables
from lab.campaign.soak.samples import compare_thirds
from lab.campaign.soak.telling import Acknowledgement


@pytest.mark.slow
def test_a_few_seconds_of_everything_lose_nothing(tmp_path: Path) -> None:
    output = tmp_path / "soak.json"
    arguments = ["--minutes=0.2", "--seed=1", "--rate=300", "--kill-every=4", "--sample-every=2"]
    arguments += ["--no-spark", "--no-brokers"]
    assert soak.main([*arguments, f"--folder={tmp_path}", f"--output={output}"]) == 0
    figures = json.loads(output.read_text())
    assert figures["failures"] == []
    totals = figures["totals"]
    assert all(totals[name] > 0 for name in ("kills", "got", "queried", "read", "acknowledgements compared")), totals
    assert totals["audits"] >= len(STORES)
    assert {store["acknowledged"] > 0 for store in figures["stores"].values()} == {True}
    assert "steady-sync" in tables(figures)
    assert len(report(figures).plots) == 7


@pytest.mark.java
def test_java_clients_of_a_broker_that_is_killed_lose_nothing_and_go_on(tmp_path: Path) -> None:
    output = tmp_path / "soak.json"
    arguments = ["--minutes=0.5", "--seed=1", "--rate=60", "--kill-every=10", "--sample-every=2", "--no-spark"]
    assert soak.main([*arguments, f"--folder={tmp_path}", f"--output={output}"]) == 0
    figures = json.loads(output.read_text())
    assert figures["failures"] == []
    stores = figures["stores"]
    assert all(stores[store.name]["acknowledged"] for store in BROKERS)
    assert stores["broker-killed"]["kills"] > stores["broker-steady"]["kills"]
    totals = figures["totals"]
    assert totals["consumed by Java clients"] > stores["broker-killed"]["acknowledged"]
    kinds = "timed messages answered", "messages popped", "dead letters", "transactions checked", "requests answered"
    assert all(totals[name] > 0 for name in kinds), totals


def filled(path: Path) -> tuple[Ledger, list[Acknowledgement]]:
    """A store with some messages, and the ledger that knows them."""
    ledger, answers = Ledger(path), []
    with reput.MessageStore.open(path, **STORES[0].options) as store:
        for number in range(20):
            key = f"key-{number}"
            result = store.put_message(reput.Message("single", body_of(key), keys=[key]), number % 4)
            answers.append(Acknowledgement(result.commit_log_offset, "single", number % 4, result.queue_offset, key))
    for answer in answers:
        ledger.add(answer)
    return ledger, answers


def test_the_ledger_of_a_whole_log_holds(tmp_path: Path) -> None:
    ledger, answers = filled(tmp_path / "store")
    assert ledger.check() == (20, 20)
    assert len(ledger.entries) == len(answers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "another"}, "is lost"),
        ({"queue_offset": 77}, "is at"),
        ({"offset": 1}, "is at"),
        ({"queue_id": 9}, "is at"),
    ],
)
def test_a_log_that_is_not_what_was_acknowledged_is_told(tmp_path: Path, change: dict[str, object], said: str) -> None:
    ledger, answers = filled(tmp_path / "store")
    changed = answers[7]._replace(**change)
    ledger.entries[changed.key] = changed
    with pytest.raises(AssertionError, match=said):
        ledger.check()


def test_a_log_file_that_went_before_it_expired_is_told(tmp_path: Path) -> None:
    ledger, _ = filled(tmp_path / "store")
    log = tmp_path / "store" / "commitlog"
    os.rename(log / f"{0:020}", log / f"{LOG_FILE_SIZE:020}")
    with pytest.raises(AssertionError, match="nothing behind 0 has expired"):
        ledger.check()


def test_a_group_waits_for_what_has_not_come_to_it() -> None:
    group = Deliveries()
    group.consumed("before its answer", is_acknowledged=False)
    for key in ("before its answer", "got", "not got"):
        group.acknowledged(key)
    for _ in range(2):
        group.consumed("got", is_acknowledged=True)
    assert group.waiting == {"not got"}


def test_what_grows_is_not_flat() -> None:
    seconds = [float(second) for second in range(0, 3600, 15)]
    steady = compare_thirds("descriptors", seconds, [40.0 for _ in seconds])
    growing = compare_thirds("descriptors", seconds, [40 + second / 200 for second in seconds])
    assert steady is not None
    assert growing is not None
    assert (steady.is_flat, growing.is_flat) == (True, False)
    assert (steady.hourly, growing.hourly) == (0, 18)


def test_a_process_that_was_not_seen_to_the_end_is_not_flat() -> None:
    seconds = [float(second) for second in range(0, 3600, 15)]
    assert compare_thirds("descriptors", seconds, [40.0 if second < 1800 else None for second in seconds]) is None
