"""`reput stats`: messages, sizes, latencies and disk use."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.statistics.job import Statistics, statistics

__all__ = ["Statistics", "statistics"]
