"""The start of a store whose writer was killed: checked, and dispatched again where no checkpoint vouches for it."""

from __future__ import annotations

from bench import messages
from bench.apache import NAME
from bench.figures import Figure, stopwatch
from bench.processes import run_killed_child
from bench.setting import Setting
from reput import MessageStore


def measure(setting: Setting) -> list[Figure]:
    """Seconds until everything can be read, and until it is on the disk too.

    One store is killed, and copied for every start. Its checkpoint is real, from a clean exit a fourth of the log
    before: in its first file, so RocketMQ begins there too, and both have as much to do.
    """
    count = setting.count(4_600_000)
    log_bytes = count * messages.RECORD_SIZE
    opened, synced = Figure("recovery of a killed store", "s"), Figure("recovery of a killed store, synced", "s")
    opened.limit = ("memcpy, one thread", log_bytes / setting.limits["memcpy, one thread"] / 1e9)
    if setting.apache is not None:
        opened.other, synced.other = setting.apache.other(least=8), setting.apache.other()
    killed = setting.folder("killed")
    run_killed_child("killed", killed, str(count))
    for _ in range(setting.repeats):
        path = setting.copy(killed, "recovered")
        with stopwatch() as both:
            with stopwatch() as watch:
                store = MessageStore.open(path, flush_disk_type="ASYNC_FLUSH")
            store.close()
        report = store.recovery
        if not report.was_killed or report.dispatched_records != count:
            raise AssertionError(f"the recovery found {report}")
        opened.values.append(watch.seconds)
        synced.values.append(both.seconds)
        if setting.apache is not None:
            with setting.apache.open(setting.copy(killed, "recovered")) as apache:
                if apache.end_offset != report.log_end.offset:
                    raise AssertionError(f"{NAME} recovered {apache.end_offset} of {report.log_end.offset} bytes")
                opened.add_other(apache.seconds)
                synced.add_other(apache.seconds + apache.sync())
    opened.note = (
        f"{log_bytes / 1e6:.0f} MB of log, {log_bytes / opened.median / 1e9:.2f} GB/s; CRC checked, "
        f"{report.dispatched_records:,} records dispatched again"
    )
    setting.remove(killed)
    setting.remove(path)
    return [opened, synced]
