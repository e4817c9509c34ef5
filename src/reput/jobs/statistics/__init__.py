"""`reput stats`: messages, sizes, latencies and disk use."""

from reput.jobs.statistics.job import Statistics, statistics

__all__ = ["Statistics", "statistics"]
