"""Counts of messages that wait, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reput.formats.metadata import TimerMetrics, TransactionMetrics
from reput.service.topic_metrics_manager import TopicMetricsManager

#: Each file, the name of its counts, and the number that is left of one message that ended twice.
_KINDS = {
    TimerMetrics: ("timermetrics", "timingCount", -1),
    TransactionMetrics: ("transactionMetrics", "transactionCount", 0),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_messages_are_counted_by_topic_and_a_timer_may_end_before_it_counts(
    tmp_path: Path, kind: type[TimerMetrics] | type[TransactionMetrics]
) -> None:
    (tmp_path / "config").mkdir()
    name, field, after = _KINDS[kind]
    manager = TopicMetricsManager(kind, str(tmp_path))
    assert manager.snapshot() is None
    manager.add({"orders": 2, "other": 1}, 1000)
    manager.add({"orders": 1, "other": -2}, 2000)
    manager.add({}, 3000)
    snapshot = manager.snapshot()
    assert snapshot is not None
    manager.persist(snapshot)
    written = json.loads((tmp_path / "config" / name).read_bytes())
    counts = {"orders": {"count": 3, "timeStamp": 2000}, "other": {"count": after, "timeStamp": 2000}}
    assert written[field] == counts
    assert written["dataVersion"]["counter"] == 2
    again = TopicMetricsManager(kind, str(tmp_path))
    assert (again.content(), again.snapshot()) == (manager.content(), None)
    assert [again.count(topic) for topic in ("orders", "other", "new")] == [3, 0, 0]
    again.add({"other": 1}, 4000)
    assert again.count("other") == after + 1
