"""How fast a consumer is, by its own counts."""

from __future__ import annotations

from reput.client.consuming.consume_statistics import ConsumeStatistics


def test_counts_are_told_of_the_last_minute_and_failures_of_the_last_hour() -> None:
    statistics = ConsumeStatistics()
    statistics.sample(0.0)
    statistics.pulled("t", 32, 0.5)
    statistics.pulled("t", 8, 0.1)
    for number in range(30):
        statistics.handled("t", 0.002, is_done=number % 3 > 0)
    assert statistics.status("t")["pullTPS"] == 0.0  # no sample yet
    statistics.sample(10.0)
    assert statistics.status("t") == {
        "consumeFailedMsgs": 10, "consumeFailedTPS": 1.0, "consumeOKTPS": 2.0, "consumeRT": 2.0, "pullRT": 300.0,
        "pullTPS": 4.0,
    }  # fmt: skip
    for sample in range(2, 9):
        statistics.sample(sample * 10.0)
    status = statistics.status("t")
    assert (status["consumeFailedMsgs"], status["consumeRT"], status["pullTPS"]) == (10, 2.0, 0.0)
    assert statistics.status("other")["consumeFailedMsgs"] == 0
