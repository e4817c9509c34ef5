"""Counters of a broker for its clients' requests, and their growth (`BrokerStatsManager`, `BrokerStats`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date

from reput.service.bounded_counter import BoundedCounter
from reput.service.histogram import Histogram
from reput.stats_window import Growth, StatsKey, StatsSnapshot, StatsWindow
from reput.store.statistics import TopicCounts

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"

#: The manager is to be asked for a sample so often.
SAMPLE_S = 10
#: (each how manieth sample, how many of these): of the last minute, hour and day (`StatsItem.init`).
_WINDOWS = ((1, 6), (60, 6), (360, 24))
#: As 5.3.3's `BrokerMetricsManager`.
_COMMIT_BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)
_CREATION_BOUNDS_MS = (10, 100, 1000, 3000, 5000)


class GroupGets:
    """Pulls, messages, and bytes of records that pulls of one group have brought from one topic.

    Attributes:
        retry_messages, retry_size: The part that pops took from the topic's retry topics.
    """

    __slots__ = ("messages", "pulls", "retry_messages", "retry_size", "size")

    def __init__(self) -> None:
        self.pulls = 0
        self.messages = self.retry_messages = 0
        self.size = self.retry_size = 0


class BrokerStats:
    """Messages put and got since the start, as they were at the last two midnights (`BrokerStats`).

    Attributes:
        yesterday_morning, today_morning: Each (put, got); 0 if the broker did not run.
    """

    def __init__(self) -> None:
        self.yesterday_morning = self.today_morning = self._now = (0, 0)
        self._day: date | None = None

    def record(self, day: date, put: int, got: int) -> None:
        """Note the totals, on a day of the broker's time zone."""
        if self._day is not None and day != self._day:
            self.yesterday_morning, self.today_morning = self.today_morning, self._now
        self._day, self._now = day, (put, got)


class BrokerStatsManager:
    """Counts since the broker's start, and their growth in the last minute, hour and day.

    Args:
        cluster: The key of counts of the whole broker.
        topic_counts: The store's, by topic. Puts are the records of its log, system topics included.

    Attributes:
        group_gets: By (topic, group).
        send_backs: Messages that came back since the last sample, by (topic, group).
        dead_letters: Messages that went to the dead letters of a group, by (topic, group).
        totals: Of days, to the last sample.
        transactions: Transactions that have ended, by (topic, whether it was a commit).
        commit_s: From the birth of a message to the commit of its transaction, by topic.
        topic_creation_ms: How long operators' changes of topics took, by (is it done, is it a system topic).
    """

    def __init__(self, cluster: str, topic_counts: Mapping[str, TopicCounts]) -> None:
        self._cluster = cluster
        self._topic_counts = topic_counts
        self.group_gets: dict[tuple[str, str], GroupGets] = {}
        self.send_backs: Counter[tuple[str, str]] = Counter()
        self.dead_letters: BoundedCounter[tuple[str, str]] = BoundedCounter()
        self.totals = BrokerStats()
        self.transactions: Counter[tuple[str, bool]] = Counter()
        self.commit_s: Histogram[str] = Histogram(_COMMIT_BOUNDS_S)
        self.topic_creation_ms: Histogram[tuple[bool, bool]] = Histogram(_CREATION_BOUNDS_MS)
        self._windows = tuple(StatsWindow(every * SAMPLE_S, count) for every, count in _WINDOWS)
        self._samples = 0
        self._sampled_puts: dict[str, tuple[int, int]] = {}
        self._sampled_gets: dict[tuple[str, str], tuple[int, int, int]] = {}

    def inc_group_get(self, group: str, topic: str, messages: int, size: int, *, is_retry: bool = False) -> None:
        """Count a pull that brings messages (`incGroupGetNums`, `incGroupGetSize`); is_retry: of a retry topic."""
        gets = self.group_gets.get((topic, group))
        if gets is None:
            gets = self.group_gets[topic, group] = GroupGets()
        gets.pulls += 1
        gets.messages += messages
        gets.size += size
        if is_retry:
            gets.retry_messages += messages
            gets.retry_size += size

    def inc_send_back(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages that a consumer has sent back (`incSendBackNums`)."""
        self.send_backs[topic, group] += count

    def inc_dead_letter(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages that a group could not consume; topic: where they were before."""
        self.dead_letters.inc((topic, group), ("", group), count)

    def transaction_ended(self, topic: str, age_ms: int, *, is_commit: bool) -> None:
        """Count a transaction that a producer has ended; `age_ms`: of its message."""
        self.transactions[topic, is_commit] += 1
        if is_commit:
            self.commit_s.add(topic, age_ms // 1000)

    def sample(self, at_s: float, today: date) -> None:
        """Take a sample, to be called every `SAMPLE_S`; `at_s`: of the monotonic clock, `today`: the broker's day."""
        self._samples += 1
        grown = self._growth()
        for (every, _), window in zip(_WINDOWS, self._windows, strict=True):
            window.add(grown)
            if self._samples % every == 0:
                window.end(at_s)
        topics = list(self._topic_counts.values())
        put, got = sum(one.put_messages for one in topics), sum(one.got_messages for one in topics)
        self.totals.record(today, put, got)

    def _growth(self) -> dict[StatsKey, Growth]:
        """Growth of the counters since the last sample, by RocketMQ's names and keys."""
        grown: dict[StatsKey, Growth] = {}
        put = got = 0
        for topic, one in list(self._topic_counts.items()):
            before, now = self._sampled_puts.get(topic, (0, 0)), (one.put_messages, one.put_bytes)
            if before != now:
                self._sampled_puts[topic] = now
                messages, size = now[0] - before[0], now[1] - before[1]
                grown[TOPIC_PUT_NUMS, topic] = Growth(messages, messages)
                grown[TOPIC_PUT_SIZE, topic] = Growth(size, messages)
                put += messages
        for key, gets in self.group_gets.items():
            before_gets = self._sampled_gets.get(key, (0, 0, 0))
            if before_gets[0] != gets.pulls:
                self._sampled_gets[key] = gets.pulls, gets.messages, gets.size
                pulls, messages = gets.pulls - before_gets[0], gets.messages - before_gets[1]
                grown[GROUP_GET_NUMS, "@".join(key)] = Growth(messages, pulls)
                grown[GROUP_GET_SIZE, "@".join(key)] = Growth(gets.size - before_gets[2], pulls)
                got += messages
        for key, times in self.send_backs.items():
            grown[SNDBCK_PUT_NUMS, "@".join(key)] = Growth(times, times)
        self.send_backs.clear()
        grown[BROKER_PUT_NUMS, self._cluster] = Growth(put, 0)
        grown[BROKER_GET_NUMS, self._cluster] = Growth(got, 0)
        return grown

    # -- what is asked

    def stats_item(self, name: str, key: str) -> tuple[StatsSnapshot, StatsSnapshot, StatsSnapshot] | None:
        """Growth of a counter in the last minute, hour and day; None before its first sample (`getStatsItem`)."""
        minute, hour, day = self._windows
        if not minute.has((name, key)):
            return None
        return minute.snapshot((name, key)), hour.snapshot((name, key)), day.snapshot((name, key))

    def tps_topic_put_nums(self, topic: str) -> float:
        """Messages put into a topic a second, in the last minute."""
        return self._windows[0].snapshot((TOPIC_PUT_NUMS, topic)).tps

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages that a group has pulled from a topic a second, in the last minute."""
        return self._windows[0].snapshot((GROUP_GET_NUMS, f"{topic}@{group}")).tps
