"""The start of a store whose writer was killed: the log checked, queues and index in step with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab.bench import messages
from lab.bench.apache import NAME
from lab.bench.figures import Figure, stopwatch
from lab.bench.processes import run_killed_child
from lab.bench.setting import Setting
from reput import MessageStore
from reput.formats.index_file import HEADER_SIZE, decode_header
from reput.kernels.queues.unit_types import UNIT_TYPE


def measure(setting: Setting) -> list[Figure]:
    """Seconds until everything can be read, and until it is on the disk too.

    One store is killed, and copied for every start. Its checkpoint is real, from a clean exit a fourth of the log
    before: in its first file, so RocketMQ begins there too, and both have as much to do: all records read, their CRCs
    compared, queues and index in step with each of them. Queues are whole, and neither writes them again. RocketMQ
    makes the index anew, reput compares it. That both end with every unit and every key is checked.
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
        del store  # gives its maps back now, and not while the next one is timed
        if not report.was_killed or report.verified_records + report.dispatched_records != count:
            raise AssertionError(f"the recovery found {report}")
        _check_derived("reput", path, count)
        opened.values.append(watch.seconds)
        synced.values.append(both.seconds)
        if setting.apache is not None:
            with setting.apache.open(setting.copy(killed, "recovered")) as apache:
                if apache.end_offset != report.log_end.offset:
                    raise AssertionError(f"{NAME} recovered {apache.end_offset} of {report.log_end.offset} bytes")
                _check_derived(NAME, path, count)
                opened.add_other(apache.seconds)
                synced.add_other(apache.seconds + apache.sync())
    opened.note = (
        f"{log_bytes / 1e6:.0f} MB of log, {log_bytes / opened.median / 1e9:.2f} GB/s; CRC checked, "
        f"{report.verified_records:,} records compared with queues and index, {report.dispatched_records:,} dispatched"
    )
    setting.remove(killed)
    setting.remove(path)
    return [opened, synced]


def _check_derived(who: str, path: str, count: int) -> None:
    """All units and index entries of `count` messages are there."""
    units = [np.fromfile(file, UNIT_TYPE)["size"] for file in Path(path, "consumequeue").glob("*/*/*")]
    heads = [decode_header(np.fromfile(file, np.uint8, HEADER_SIZE).data) for file in Path(path, "index").iterdir()]
    found = sum(np.count_nonzero(sizes) for sizes in units), sum(head.index_count - 1 for head in heads)
    if found != (count, messages.KEYS * count):
        raise AssertionError(f"{who} recovered {found[0]} units and {found[1]} keys of {count} messages")
