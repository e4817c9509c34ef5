"""Counts of a broker, and their growth by samples as 5.3.3's `StatsItem` takes them."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from reput.service.broker_stats_manager import BrokerStats, BrokerStatsManager
from reput.stats_window import StatsSnapshot
from reput.store.statistics import TopicCounts

DAY = date(2026, 5, 1)


class Counted:
    """A manager, the store's counts, and a clock that goes on by ten seconds with each sample."""

    def __init__(self) -> None:
        self.topics = {"orders": TopicCounts()}
        self.stats = BrokerStatsManager("c", self.topics)
        self.at_s, self.today = 5.0, DAY

    def put(self, messages: int) -> None:
        self.topics["orders"].put_messages += messages
        self.topics["orders"].put_bytes += 100 * messages

    def sample(self, times: int = 1) -> None:
        for _ in range(times):
            self.at_s += 10
            self.stats.sample(self.at_s, self.today)

    def grown(self, name: str, key: str) -> tuple[StatsSnapshot, StatsSnapshot, StatsSnapshot]:
        found = self.stats.stats_item(name, key)
        assert found is not None
        return found


def test_a_minute_is_six_samples() -> None:
    counted = Counted()
    counted.put(30)
    counted.sample()
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(30, 3.0, 1.0)
    counted.put(30)
    counted.sample(2)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(60, 2.0, 1.0)
    assert counted.grown("TOPIC_PUT_SIZE", "orders")[0] == StatsSnapshot(6000, 200.0, 100.0)
    assert counted.grown("BROKER_PUT_NUMS", "c")[0] == StatsSnapshot(60, 2.0, 0.0)
    assert counted.stats.tps_topic_put_nums("orders") == 2.0
    counted.sample(4)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(30, 0.5, 1.0)
    counted.sample()
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(0, 0.0, 0.0)


def test_a_counter_that_comes_later_has_begun_with_its_first_sample() -> None:
    counted = Counted()
    counted.sample(20)
    counted.put(30)
    counted.sample(3)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(30, 1.0, 1.0)
    counted.sample(10)
    counted.put(60)
    counted.sample()
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(60, 1.0, 1.0)


def test_an_hour_grows_every_ten_minutes_and_a_day_every_hour() -> None:
    counted = Counted()
    counted.put(600)
    counted.sample(59)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[1] == StatsSnapshot()
    counted.sample()
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[1] == StatsSnapshot(600, 1.0, 1.0)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[2] == StatsSnapshot()
    counted.sample(300)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[1] == StatsSnapshot(600, 600 / 3600, 1.0)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[2] == StatsSnapshot(600, 600 / 3600, 1.0)
    counted.sample(60)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[1] == StatsSnapshot(0, 0.0, 0.0)
    counted.sample(300 + 22 * 360)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[2].sum == 600
    counted.sample(360)
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[2].sum == 0


def test_what_groups_get_and_send_back_is_by_topic_and_group() -> None:
    counted = Counted()
    counted.stats.inc_group_get("g", "orders", 30, 3000)
    counted.stats.inc_group_get("g", "orders", 10, 1000)
    counted.stats.inc_group_get("h", "orders", 20, 2000)
    counted.stats.inc_send_back("g", "orders")
    counted.sample()
    assert counted.grown("GROUP_GET_NUMS", "orders@g")[0] == StatsSnapshot(40, 4.0, 20.0)
    assert counted.grown("GROUP_GET_SIZE", "orders@g")[0] == StatsSnapshot(4000, 400.0, 2000.0)
    assert counted.grown("SNDBCK_PUT_NUMS", "orders@g")[0] == StatsSnapshot(1, 0.1, 1.0)
    assert counted.grown("BROKER_GET_NUMS", "c")[0] == StatsSnapshot(60, 6.0, 0.0)
    assert counted.stats.tps_group_get_nums("g", "orders") == 4.0
    assert counted.stats.tps_group_get_nums("none", "orders") == 0.0


@pytest.mark.parametrize(
    ("name", "key"), [("NONE", "orders"), ("TOPIC_PUT_NUMS", "none"), ("TOPIC_PUT_NUMS", "orders")]
)
def test_a_counter_that_no_sample_has_is_none(name: str, key: str) -> None:
    counted = Counted()
    counted.sample()
    assert counted.stats.stats_item(name, key) is None


def test_a_sample_that_is_late_counts_by_its_time() -> None:
    counted = Counted()
    counted.sample()
    counted.put(60)
    counted.at_s += 20
    counted.sample()
    assert counted.grown("TOPIC_PUT_NUMS", "orders")[0] == StatsSnapshot(60, 2.0, 1.0)
    assert counted.grown("BROKER_PUT_NUMS", "c")[0] == StatsSnapshot(60, 1.5, 0.0)


def test_totals_of_midnight_are_those_of_the_days_last_sample() -> None:
    totals = BrokerStats()
    for day, put, got in ((1, 5, 3), (1, 10, 6), (2, 11, 7), (2, 20, 9), (3, 21, 9)):
        totals.record(date(2026, 5, day), put, got)
    assert (totals.yesterday_morning, totals.today_morning) == ((10, 6), (20, 9))


def test_a_sample_records_the_totals_of_the_store() -> None:
    counted = Counted()
    counted.put(7)
    counted.topics["orders"].got_messages = 4
    counted.sample()
    counted.today += timedelta(1)
    counted.sample()
    assert (counted.stats.totals.yesterday_morning, counted.stats.totals.today_morning) == ((0, 0), (7, 4))
