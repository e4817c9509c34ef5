import pytest

from reput.store import statistics
from reput.store.statistics import RANGE_NAMES, StoreStatsService, TopicCounts


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that stands still; `clock[0]` sets it."""
    now = [100.0]
    monkeypatch.setattr(statistics.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (0.0, "[<=0ms]"), (0.0009, "[<=0ms]"), (0.001, "[0~10ms]"), (0.0099, "[0~10ms]"), (0.010, "[10~50ms]"),
        (0.0999, "[50~100ms]"), (0.1, "[100~200ms]"), (0.2, "[200~500ms]"), (0.5, "[500ms~1s]"), (1.5, "[1~2s]"),
        (2, "[2~3s]"), (3, "[3~4s]"), (4, "[4~5s]"), (9.99, "[5~10s]"), (10, "[10s~]"), (1000, "[10s~]"),
    ],
)  # fmt: skip
def test_a_put_is_counted_in_the_range_of_rocketmq(seconds, name):
    stats = StoreStatsService({})
    stats.put_took(seconds)
    assert stats.put_distribution() == dict.fromkeys(RANGE_NAMES, 0) | {name: 1}
    assert stats.put_entire_time_max_ms == int(seconds * 1000)


def test_latencies_are_taken_from_the_ranges_by_proportion():
    stats = StoreStatsService({})
    assert stats.put_latency_ms(0.99) == 0
    stats.fast_put_times = 98
    stats.put_took(0.030)
    stats.put_took(25.0)
    assert stats.put_latency_ms(0.49) == 0.5
    assert stats.put_latency_ms(0.99) == 30
    assert stats.put_latency_ms(1.0) == 25_000


def test_rates_are_none_until_the_store_is_that_old(clock):
    topics = {"a": TopicCounts()}
    stats = StoreStatsService(topics)
    assert set(stats.per_second().values()) == {None}
    for second in range(1, 12):
        clock[0] = 100 + second
        topics["a"].put_messages += 50
        topics["a"].got_messages += 5
        stats.get_miss_times += 1
        stats.sample()
    grown = stats.per_second()
    assert {window for window, one in grown.items() if one is not None} == {1, 10}
    assert (grown[10].put_messages, grown[10].got_messages, grown[10].miss_times) == (50, 5, 1)
    assert grown[10].at == 10
    assert grown[1].put_messages == 50


def test_samples_are_a_second_apart_and_no_more_than_ten_minutes_old(clock):
    topics = {"a": TopicCounts()}
    stats = StoreStatsService(topics)
    for _ in range(100):
        stats.sample()
    assert len(stats._samples) == 1
    for second in range(2000):
        clock[0] = 100 + second
        topics["a"].put_messages = second * (2 if second > 1000 else 1)
        stats.sample()
    assert len(stats._samples) == 601
    assert stats.per_second()[600].put_messages == 2


def test_samples_of_many_topics_take_a_small_part_of_the_time(clock, monkeypatch):
    stats = StoreStatsService({})
    used = iter(range(1000))
    monkeypatch.setattr(statistics.time, "thread_time", lambda: next(used) / 64)  # 16 ms each
    for _ in range(40):
        clock[0] += 1
        stats.sample()
    assert len(stats._samples) == 1 + 10
