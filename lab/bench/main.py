"""Measures every hot path beside the machine's limits: `make bench`, or `python -m lab.bench.main` at the root.

Prints a table, which goals were met, and a table beside RocketMQ's own store, which takes turns with ours where a JDK
and Maven are there. Keeps all values in `<directory>/<timestamp>.json`. A goal that is missed is no error: the exit
status is 0. It takes about ten minutes and 8 GB of disk; a machine that does other work gives less. The broker's
questions (`--only broker`) are asked if they are named: another 25 minutes. `lab.bench.publish` makes the pages
of figures of a run with `--all`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

import reput
from lab.bench import (
    audit,
    backup,
    commands,
    dispatch,
    export,
    follow,
    get_message,
    import_,
    limits,
    many_queues,
    memory,
    open_store,
    put_arrow,
    put_message,
    put_messages,
    query_message,
    read_log,
    rebuild,
    recovery,
    spark_sink,
    spark_source,
    spark_stream,
    spark_wire,
    statistics,
    sync_flush,
    tables,
)
from lab.bench.broker import (
    batches,
    clients,
    cold,
    pops,
    pulls,
    push,
    replication,
    requests,
    sends,
    stalls,
    start,
    timers,
)
from lab.bench.figures import Figure
from lab.bench.report import print_figures, print_others, print_verdicts
from lab.bench.setting import Setting

_DIRECTORY = "build/bench"
_QUICK_SCALE = 0.01
_WIDTH = 230
#: In the order of measuring: `put_arrow` is first, for it shows what memory costs that nothing has used yet.
QUESTIONS: dict[str, Callable[[Setting], list[Figure]]] = {
    "put_arrow": put_arrow.measure,
    "put_messages": put_messages.measure,
    "put_message": put_message.measure,
    "sync_flush": sync_flush.measure,
    "get_message": get_message.measure,
    "query_message": query_message.measure,
    "rebuild": rebuild.measure,
    "export": export.measure,
    "import": import_.measure,
    "audit": audit.measure,
    "backup": backup.measure,
    "recovery": recovery.measure,
    "read_log": read_log.measure,
    "statistics": statistics.measure,
    "spark_sink": spark_sink.measure,
    "open_store": open_store.measure,
    "many_queues": many_queues.measure,
    "memory": memory.measure,
    "commands": commands.measure,
    "spark_source": spark_source.measure,
    "spark_stream": spark_stream.measure,
    "spark_wire": spark_wire.measure,
    "dispatch": dispatch.measure,
    "tables": tables.measure,
    "follow": follow.measure,
    # The broker beside RocketMQ's. The first five start brokers of their own, the others share two: what reads comes
    # first, as the others write gigabytes, after which the messages at the start of the log are not in memory.
    "broker.start": start.measure,
    "broker.cold": cold.measure,
    "broker.timers": timers.measure,
    "broker.replication": replication.measure,
    "broker.sync": sends.measure_sync,
    "broker.pulls": pulls.measure,
    "broker.push": push.measure,
    "broker.pops": pops.measure,
    "broker.requests": requests.measure,
    "broker.clients": clients.measure,
    "broker.sends": sends.measure,
    "broker.batches": batches.measure,
    "broker.stalls": stalls.measure,
}
_BROKER = "broker"

#: They take long.
_ONLY_IF_NAMED = {name for name in QUESTIONS if name.startswith(f"{_BROKER}.")}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, keep; the exit status."""
    options = _parse(arguments)
    scale = options.scale or (_QUICK_SCALE if options.quick else 1)
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"bench: {time.perf_counter() - started:5.0f} s  {text}", file=sys.stderr, flush=True)

    setting = Setting(
        f"{options.directory}/data-{os.getpid()}",
        quick=options.quick,
        scale=scale,
        say=say,
        beside_apache=not options.without_apache,
    )
    names = list(QUESTIONS) if options.all else _chosen(options.only)
    result: dict[str, object] = {"begun": datetime.now(UTC).isoformat(timespec="seconds"), **_machine()}
    try:
        if setting.beside_apache and not all(name.startswith(f"{_BROKER}.") for name in names):
            setting.start_apache()
        answers = _ask(setting, names)
    finally:
        setting.clear()
    result |= {
        "seconds": time.perf_counter() - started,
        "load_at_the_end": os.getloadavg()[0],
        "scale": scale,
        "repeats": setting.repeats,
        "questions": {name: [figure.to_json() for figure in figures] for name, figures in answers.items()},
    }
    path = Path(options.directory, f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
    if options.json:
        print(json.dumps(result))
    else:
        _print(result, answers)
    say(f"kept in {path}")
    return 0 if len(answers) == len(names) + 1 else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.main",
        description="Measure every hot path beside RocketMQ's own store and the machine's limits.",
        epilog="example: python -m lab.bench.main --only put_arrow --scale 0.1",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*QUESTIONS, _BROKER],
        help=f"one question, or all of {_BROKER}; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="ask every question, also those that take long: an hour")
    parser.add_argument("--without-apache", action="store_true", help="leave RocketMQ's own store out")
    parser.add_argument("--quick", action="store_true", help="try everything once, on a hundredth: no figures to trust")
    parser.add_argument("--scale", type=_positive, metavar="X", help="multiply all counts and sizes (1; --quick: 0.01)")
    parser.add_argument(
        "--directory", default=_DIRECTORY, metavar="DIR", help="on the disk to be measured (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    return parser.parse_args(arguments)


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise ValueError(text)
    return value


def _chosen(only: list[str] | None) -> list[str]:
    """The questions that are asked: those that are named, alone or with others of their kind, or all but some."""
    if only is None:
        return [name for name in QUESTIONS if name not in _ONLY_IF_NAMED]
    return [name for name in QUESTIONS if any(name == one or name.startswith(f"{one}.") for one in only)]


def _ask(setting: Setting, names: list[str]) -> dict[str, list[Figure]]:
    """The machine's limits, then the questions by name."""
    setting.say("limits")
    answers = {"limits": limits.measure(setting)}
    for name, measure in QUESTIONS.items():
        if name in names:
            setting.say(name)
            try:
                answers[name] = measure(setting)
            except Exception:  # An hour of other figures is not lost by one question.
                traceback.print_exc()
                setting.say(f"{name}: no figures, by the error above")
    return answers


def _machine() -> dict[str, object]:
    """Machine and versions that the figures depend on."""
    return {
        "reput": reput.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "pyarrow")},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": len(os.sched_getaffinity(0)),
        "load_at_the_start": os.getloadavg()[0],
    }


def _print(result: dict[str, object], answers: dict[str, list[Figure]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    print_figures(console, answers)
    console.print(
        "A rate is a part of its limit, a time a multiple of it. Recycled page cache is memory that was used before.\n"
    )
    console.print(", ".join(f"{name} {value}" for name, value in result.items() if name != "questions"), soft_wrap=True)
    console.print()
    print_verdicts(console, answers)
    print_others(console, answers)


if __name__ == "__main__":
    sys.exit(main())
