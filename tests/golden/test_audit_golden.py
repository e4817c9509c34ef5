"""Audit of what Apache RocketMQ wrote: clean, but for what kills, recoveries and retention leave by its own rules."""

from __future__ import annotations

from collections import Counter

import pytest

from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.golden import CASES, CORPORA
from tests.support.shares import sampled

#: Findings by code; every other corpus has none.
EXPECTED = {
    "4.9.7/killed-undispatched": {"not-dispatched": 2},
    "4.9.7/retention": {"unit-expired": 10, "index-entry-expired": 1},
    "4.9.7/torn": {"torn-tail": 1, "unit-behind-end": 1, "index-entry-behind-end": 1},
    "5.3.3/killed-undispatched": {"not-dispatched": 2},
    "5.3.3/retention": {"unit-expired": 12, "index-entry-expired": 1},
    "5.3.3/torn": {"torn-tail": 1, "unit-behind-end": 1, "index-entry-behind-end": 1},
    "5.5.0/killed-undispatched": {"not-dispatched": 2},
    "5.5.0/retention": {"unit-expired": 10, "index-entry-expired": 1},
    "5.5.0/torn": {"torn-tail": 1, "unit-behind-end": 1, "index-entry-behind-end": 1},
    "5.5.1/killed-undispatched": {"not-dispatched": 2},
    "5.5.1/retention": {"unit-expired": 12, "index-entry-expired": 1},
    "5.5.1/torn": {"torn-tail": 1, "unit-behind-end": 1, "index-entry-behind-end": 1},
}


def truth(case: str) -> tuple[int, int]:
    """How many records Apache reads, and how many units that lead to one: 4.9.7 shows units of deleted ones, too."""
    lines = [line.split(" ") for line in (CORPORA / case / "truth.txt").read_text().splitlines()]
    records = {int(line[1]) for line in lines if line[0] == "log"}
    return len(records), sum(line[0] == "unit" and int(line[4]) in records for line in lines)


@sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_a_store_of_apaches_has_the_findings_that_its_history_explains(case: str) -> None:
    # Files were made old for RocketMQ to delete them, their messages were not: no time to keep them.
    whole = audit(CORPORA / case / "store", runner=LocalRunner(1), file_reserved_time=0)
    cut = audit(CORPORA / case / "store", runner=LocalRunner(2), split_bytes=5_000, file_reserved_time=0)
    assert dict(Counter(finding.code for finding in whole.findings)) == EXPECTED.get(case, {})
    assert whole.is_clean
    assert cut.findings == whole.findings
    assert (cut.messages, cut.units, cut.queues, cut.index_entries) == (
        whole.messages, whole.units, whole.queues, whole.index_entries,
    )  # fmt: skip
    messages, units = truth(case)
    assert whole.messages == messages
    assert whole.units == (units if "undispatched" not in case else units * 3 // 4)
