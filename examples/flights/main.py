"""The main job: the flights that left New York in 2013 go through a broker, its store, Spark, and into a report.

Run it from the root of the project: `python -m examples.flights.main`, or `make run`. Exit status: 0 all steps agree,
1 a step found a difference (and names it), 2 could not run.
"""

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import reput
from examples.flights import network, steps
from examples.flights.compare import compare_counts, compare_delays, compare_statistics, compare_stores
from examples.flights.counts import COUNT_COLUMNS, Counts, count_in_arrow, count_on_spark
from examples.flights.events import DEPARTED, TOPICS, airline_names, as_messages, read_events
from examples.flights.plots import flight_plots
from reput.jobs.audit.job import audit
from reput.jobs.lake.export_job import export
from reput.jobs.query.sql_job import Source, query_sql
from reput.jobs.rebuild.job import rebuild
from reput.jobs.report.plot import Plot, Series, bars_by_size
from reput.jobs.report.report import Report
from reput.jobs.report.table import Table, format_value
from reput.jobs.runner import Runner
from reput.jobs.statistics.job import statistics
from reput.spark.runner import SparkRunner, choose_runner

DEFAULT_STORE = "build/flights/store"
DEFAULT_REPORT = "build/flights/report.html"
DELAY_SQL = f'select count(*) as messages, sum(delay_minutes)::bigint as delay_minutes from "{DEPARTED}"'

#: Of the exported files: their folders are named by topic and day.
_PARTITIONS = ds.partitioning(pa.schema([("topic", pa.string()), ("date", pa.date32())]), flavor="hive")

RunnerName = Literal["auto", "local", "spark"]


@dataclass(slots=True)
class Step:
    """One line of the final table."""

    name: str
    seconds: float = 0.0
    messages: int = 0
    result: str = ""
    findings: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Messages a second; 0 for a step that handles none."""
        return self.messages / self.seconds

    def check(self, findings: Iterable[str], agreement: str) -> None:
        """Take the findings, and the result that holds when there is none."""
        self.findings += findings
        self.result = f"{len(self.findings)} differences" if self.findings else agreement


class Steps:
    """The steps done so far, and the progress bar of the present one."""

    def __init__(self, bars: Progress) -> None:
        self.done: list[Step] = []
        self._bars = bars
        self._bar = bars.add_task("")

    @contextmanager
    def step(self, name: str, messages: int = 0) -> Iterator[Step]:
        """Time what happens within."""
        self._bars.reset(self._bar, description=name, total=None)
        step = Step(name, messages=messages)
        begin = time.perf_counter()
        yield step
        step.seconds = time.perf_counter() - begin
        self.done.append(step)

    def progress(self, done: int, total: int, description: str) -> None:
        """A `reput.progress.Progress`."""
        self._bars.update(self._bar, completed=done, total=total, description=description)


def main(arguments: list[str] | None = None) -> int:
    """Run the job; the exit status."""
    options = _parse(arguments)
    console = Console()
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True) as bars:
            report = run(Steps(bars), options.days, Path(options.store), options.runner)
        Path(options.report).parent.mkdir(parents=True, exist_ok=True)
        given = sys.argv[1:] if arguments is None else arguments
        report.command = shlex.join(["python", "-m", "examples.flights.main", *given])
        report.write_html(options.report)
    except (OSError, reput.ReputError) as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    report.print(console)
    console.print(f"report: {options.report}", soft_wrap=True, highlight=False)
    return 1 if report.findings else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the flights of 2013 through reput.", epilog="example: --days 7")
    parser.add_argument("--days", type=int, choices=range(1, 366), metavar="N", help="the first N days only")
    parser.add_argument("--store", default=DEFAULT_STORE, metavar="DIR", help="a new directory (default: %(default)s)")
    parser.add_argument("--report", default=DEFAULT_REPORT, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--runner", default="spark", choices=["auto", "local", "spark"], help="(default: %(default)s)")
    return parser.parse_args(arguments)


def run(timed: Steps, days: int | None, store_path: Path, runner_name: RunnerName) -> Report:
    """All steps, and the report of them. The rebuilt store and the exported files come to lie beside the store."""
    rebuilt_path = store_path.with_name(store_path.name + "-rebuilt")
    lake_path = store_path.with_name(store_path.name + "-lake")
    _make_room(store_path, rebuilt_path, lake_path)
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(_start_runner, runner_name)
        with timed.step("events made") as step:
            events = as_messages(read_events(days))
            step.messages = len(events)
            step.result = f"{len(TOPICS)} topics"
        _use_broker(timed, events, store_path)
        _use_store(timed, events, store_path)
        with timed.step("runner awaited") as step:
            runner = starting.result()
            step.result = "Spark, started beside" if isinstance(runner, SparkRunner) else "threads"
    _rebuild(timed, len(events), store_path, rebuilt_path, runner)
    _audit(timed, len(events), store_path, runner)
    counts = _count(timed, events, store_path, lake_path, runner)
    disk = _ask(timed, events, counts, store_path, runner)
    report = _report(timed.done, events, counts, disk)
    report.paths = {"store": str(store_path)}
    return report


def _start_runner(name: RunnerName) -> Runner:
    """The runner, after a first task that does nothing: Java loads most of its classes for it, and Python starts."""
    runner = choose_runner(name, total_bytes=0)
    runner.run(len, [()], description="first task")
    return runner


def _make_room(store: Path, rebuilt: Path, lake: Path) -> None:
    """Remove what an earlier run left at the default place; anywhere else, refuse to touch what exists."""
    for path in (store, rebuilt, lake):
        if path.exists() and store != Path(DEFAULT_STORE):
            raise FileExistsError(f"{path} exists: remove it, or name another --store")
        shutil.rmtree(path, ignore_errors=True)
    store.parent.mkdir(parents=True, exist_ok=True)


def _use_broker(timed: Steps, events: pa.Table, path: Path) -> None:
    """Send to a broker, and consume from it, over the network."""
    with ExitStack() as stack:
        with timed.step("broker started") as step:
            namesrv = stack.enter_context(network.running_broker(path))
            step.result = "with a name server, in a process of its own"
        with timed.step("sent over the network", len(events)) as step:
            step.check(network.send(namesrv, events, timed.progress), "all rows acknowledged, each queue in its order")
        with timed.step("consumed by a group") as step:
            step.messages = pc.sum(pc.equal(events["topic"], network.CONSUMED)).as_py()
            step.check(network.consume(namesrv, events, timed.progress), f"{network.CONSUMED}: all rows are equal")


def _use_store(timed: Steps, events: pa.Table, path: Path) -> None:
    """Consume from the broker's store, once it is stopped, and query it."""
    with reput.MessageStore.open(str(path), **steps.STORE_OPTIONS) as store:
        with timed.step("consumed from the store", len(events)) as step:
            step.check(steps.consume(store, events, timed.progress), "columns, bodies and order are equal")
        with timed.step("queried by tail number") as step:
            step.messages, findings = steps.query(store, events, timed.progress)
            step.check(findings, f"{steps.TAIL_COUNT} aircraft, all found")


def _rebuild(timed: Steps, messages: int, live: Path, rebuilt: Path, runner: Runner) -> None:
    with timed.step("rebuilt", messages) as step:
        rebuild(str(live), str(rebuilt), runner=runner, progress=timed.progress)
        step.check([], "queues and index")
    with timed.step("compared byte for byte", messages) as step:
        size, findings = compare_stores(live, rebuilt, timed.progress)
        step.check(findings, f"{format_value(round(size / 1e6))} MB are equal")


def _audit(timed: Steps, messages: int, store: Path, runner: Runner) -> None:
    with timed.step("audited", messages) as step:
        result = audit(str(store), runner=runner, progress=timed.progress)
        units, entries = format_value(result.units), format_value(result.index_entries)
        step.check(map(str, result.findings), f"{units} units, {entries} index entries right")


def _count(timed: Steps, events: pa.Table, store_path: Path, lake: Path, runner: Runner) -> Counts:
    """Count on Spark and in the exported Parquet files; both must be what the events themselves give."""
    expected = count_in_arrow(events)
    groups = f"{format_value(len(expected.counts))} groups are equal"
    if isinstance(runner, SparkRunner):
        with timed.step("counted on Spark", len(events)) as step:
            step.check(compare_counts("Spark", expected, count_on_spark(runner.session, str(store_path))), groups)
    with timed.step("exported to Parquet", len(events)) as step:
        exported = export(store_path, lake, runner=runner, progress=timed.progress)
        size = sum(topic.bytes for topic in exported.topics)
        step.result = f"{sum(topic.files for topic in exported.topics)} files, {size / 1e6:.1f} MB"
    with timed.step("counted in Parquet", len(events)) as step:
        rows = ds.dataset(lake / "messages", format="parquet", partitioning=_PARTITIONS).to_table(columns=COUNT_COLUMNS)
        found = count_in_arrow(rows)
        step.check(compare_counts("Parquet", expected, found), groups)
    return found


def _ask(timed: Steps, events: pa.Table, counts: Counts, store_path: Path, runner: Runner) -> Plot:
    """Statistics by the job, and a query by SQL over bodies; both must be what the counts say. Who uses the disk."""
    with timed.step("statistics", len(events)) as step:
        result = statistics(store_path, runner=runner, by=("topic", "tag"), bucket=None, progress=timed.progress)
        groups = f"{format_value(len(result.table))} groups are equal"
        step.check([*result.findings, *compare_statistics(counts, result.table)], groups)
    with timed.step("queried by SQL") as step:
        (row,) = query_sql(Source(path=store_path), DELAY_SQL).reader.read_all().to_pylist()
        step.messages = row["messages"]
        step.check(compare_delays(counts, row), f"{format_value(row['delay_minutes'])} minutes of delay are equal")
    topics = result.disk.topics
    sizes = dict(zip(topics["topic"].to_pylist(), topics["bytes"].to_pylist(), strict=True))
    return bars_by_size("Disk use by topic", "topic", sizes)


def _report(done: list[Step], events: pa.Table, counts: Counts, disk: Plot) -> Report:
    findings = [f"{step.name}: {finding}" for step in done for finding in step.findings]
    facts = {
        "messages": len(events),
        "bytes of bodies": pc.sum(pc.binary_length(events["body"])).as_py(),
        "topics": len(TOPICS),
        "seconds": sum(step.seconds for step in done),
        "result": f"{len(findings)} differences" if findings else "all steps agree",
    }
    rows = [
        (step.name, round(step.seconds, 2), step.messages or None, round(step.rate) or None, step.result)
        for step in done
    ]  # nothing where a step handles no messages
    table = Table("Steps", ("step", "seconds", "messages", "messages/s", "result"), rows)
    with_messages = [step for step in done if step.messages]
    rates = Series("rate", [step.name for step in with_messages], [round(step.rate) for step in with_messages])
    plot = Plot("bar", "Rate of each step", "", "messages a second", [rates])
    title = "Flights from New York, 2013"
    return Report(title, facts, [table], [plot, *flight_plots(counts, airline_names()), disk], findings)


if __name__ == "__main__":
    sys.exit(main())
