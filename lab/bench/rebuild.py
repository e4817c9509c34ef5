"""The job that makes queues and index anew from the log, with everything synced."""

from __future__ import annotations

from lab.bench.apache import Apache, forget_derived
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.jobs.rebuild import job
from reput.jobs.runner import LocalRunner


def measure(setting: Setting) -> list[Figure]:
    """Messages a second of the whole job."""
    runner = LocalRunner()
    whole = Figure("rebuild of queues and index, synced", "msg/s", goal=Goal(least=3_000_000))
    whole.limit, whole.note = (
        setting.records_limit("memcpy, two threads"),
        f"local, {runner.threads} threads; one round before, unmeasured",
    )
    if setting.apache is not None:
        whole.other = setting.apache.other(least=8)
    for i in range(1 + setting.repeats):
        output = setting.folder("rebuilt")
        result = job.rebuild(setting.stock(), output, runner=runner)
        if result.messages != setting.stock_count:
            raise AssertionError(f"{result.messages} of {setting.stock_count} messages were rebuilt")
        seconds = None if setting.apache is None else _start_of_apache(setting, setting.apache)
        if i:  # the first round has taken memory from the host; its removal gives that to the next ones
            whole.values.append(result.messages / result.seconds)
            if seconds is not None:
                whole.add_other(result.messages / seconds)
    setting.remove(output)
    return [whole]


def _start_of_apache(setting: Setting, apache: Apache) -> float:
    """Seconds of RocketMQ's way: a start that finds the log alone checks every record, and dispatches it again."""
    path = setting.apache_stock()
    forget_derived(path)
    with apache.open(path) as store:
        return store.seconds + store.sync()
