"""Statistics of a log, and SQL over it: jobs that read headers alone."""

from __future__ import annotations

from lab.bench import messages
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.setting import Setting
from reput.jobs.query.sql_job import Source, query_sql
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics import job

_SQL = f'select queue_id, count(*) n, sum(store_size) from "{messages.TOPIC}" group by queue_id'


def measure(setting: Setting) -> list[Figure]:
    """Messages a second, each after a round that is not measured."""
    runner = LocalRunner()
    figure = Figure("statistics by topic, queue and hour", "msg/s", goal=Goal(least=4_000_000))
    figure.limit = setting.records_limit("memcpy, two threads")
    figure.note = f"local, {runner.threads} threads"
    for i in range(1 + setting.repeats):
        result = job.statistics(setting.stock(), runner=runner, by=("topic", "queue"))
        if result.messages != setting.stock_count:
            raise AssertionError(f"{result.messages} of {setting.stock_count} messages were counted")
        if i:
            figure.values.append(result.messages / result.seconds)
    sql = Figure("query by SQL, two small columns", "msg/s", limit=setting.records_limit("memcpy, one thread"))
    for i in range(1 + setting.repeats):
        with stopwatch() as watch:
            rows = query_sql(Source(path=setting.stock()), _SQL).reader.read_all()
        if sum(rows["n"].to_pylist()) != setting.stock_count:
            raise AssertionError(f"{sum(rows['n'].to_pylist())} of {setting.stock_count} messages were read")
        if i:
            sql.values.append(setting.stock_count / watch.seconds)
    return [figure, sql]
