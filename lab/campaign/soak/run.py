"""The run itself: load, kills, checks and samples by the clock, until the time is over."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import reput
from lab.campaign.soak.broker import BrokerChild, ClientsChild
from lab.campaign.soak.children import Child, StoreChild, WriterChild, module
from lab.campaign.soak.load import BROKERS, STORES, body_of
from lab.campaign.soak.samples import Sample, children_of, disk_mb, look_at
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.invariants import Acknowledged, check_acknowledged

_MOST_FAILURES = 50
#: Every so many kills a copy of what is left is opened, closed, and audited.
_KILLS_AN_AUDIT = 5
#: What the writers and the reader count: a run ends only after each of these.
_WORK = ("got", "queried", "read")
#: Of a broker's deaths, those by SIGTERM.
_STOPS = 0.3
#: What consumers may take for the last messages, once nobody sends any more: the broker may just have started.
_DRAIN_S = 120


class Soak:
    """All processes, and what was found.

    Args:
        folder: Where stores and notes go.
        seed: Of the times of the kills.
        rate: Messages a second and store.
        kill_every_s: Mean time between two kills of one writer or broker.
        spark: Whether a Spark session reads along.
        brokers: Whether there are brokers with Java clients, too.
        minutes: How long.
    """

    def __init__(
        self, folder: Path, *, seed: int, rate: float, kill_every_s: float, spark: bool, brokers: bool, minutes: float
    ):
        self._folder = folder
        self._chance = random.Random(seed)
        self._kill_every_s = kill_every_s
        self._seconds = minutes * 60
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.sampled_at: list[float] = []
        self.samples: dict[str, list[Sample | None]] = {}
        self.disk: list[float] = []
        self.progress: dict[str, list[float]] = {}
        self.writers: list[StoreChild] = [WriterChild(store, folder, rate) for store in STORES]
        served = [BrokerChild(store, folder, self._chance) for store in BROKERS if brokers]
        self.clients = [ClientsChild(broker, folder, rate) for broker in served]
        self.writers += served
        self._deaths = {writer.role: self._next_death() for writer in self.writers}
        self._check_at = dict.fromkeys(self._deaths, 2 * kill_every_s)
        paths = [str(writer.path) for writer in self.writers]
        reader = Child("reader", folder, module("lab.campaign.soak.reader"), paths)
        self.children: list[Child] = [*self.writers, *self.clients, reader]
        if spark:
            (folder / "spark").mkdir()
            arguments = [str(folder / "spark"), *paths]
            self.children.append(Child("spark", folder, module("lab.campaign.soak.spark"), arguments))
        #: Those that live from the beginning to the end without a JVM, whose memory must be flat.
        self.lasting = [*(writer.role for writer in self.writers if not writer.store.is_killed), reader.role]

    def run(self, say: Callable[[str], None], sample_every_s: float) -> None:
        """Until the time is over, or too much has failed; then all die at once, and everything is looked at."""
        self._started = time.monotonic()
        sample_at = 0.0
        try:
            while not self._is_over(now := time.monotonic() - self._started):
                self._listen()
                for writer in self.writers:
                    if writer.store.is_killed and self._is_to_die(writer):
                        self._kill(writer)
                    elif not writer.store.is_killed and now >= self._check_at[writer.role]:
                        self._check(writer)
                        self._check_at[writer.role] = now + 2 * self._kill_every_s
                if now >= sample_at:
                    self._sample(now)
                    say(f"{now:6.0f} s  {self._status()}")
                    sample_at += sample_every_s
                time.sleep(1)
            self._drain()
        finally:
            for child in self.children:
                child.kill()
        for writer in self.writers:
            self._check(writer)
            self._finish(writer)
        self._take_failures()

    def _is_over(self, now: float) -> bool:
        """A busy machine may make a short run longer: every process is to have done something."""
        if len(self.failures) >= _MOST_FAILURES:
            return True
        told = all(child.counts for child in self.children)
        totals = self.totals()
        worked = all(totals[name] for name in _WORK)  # a reader that saw no store yet has told, but not worked
        wrote = all(writer.ledger.acknowledged for writer in self.writers)
        killed = all(writer.counts["kills"] for writer in self.writers if writer.store.is_killed)
        return now >= self._seconds and told and worked and wrote and killed

    def _drain(self) -> None:
        """Let consumers get all that was acknowledged."""
        for clients in self.clients:
            clients.stop_sending()
        deadline = time.monotonic() + _DRAIN_S
        while any(clients.missing() for clients in self.clients) and time.monotonic() < deadline:
            time.sleep(1)
            self._listen()
        for clients in self.clients:
            missing = clients.missing()
            if missing:
                self.failures.append(f"{clients.role}: {len(missing)} messages are missing, as {missing[0]}")

    def _next_death(self) -> tuple[float, bool]:
        """Seconds of a life, and whether they count from when its store is open: else it may die before."""
        return self._chance.uniform(0.1, 1.9) * self._kill_every_s, self._chance.random() < 0.5

    def _is_to_die(self, writer: StoreChild) -> bool:
        seconds, opened = self._deaths[writer.role]
        since = writer.opened_at if opened else writer.started_at
        return since is not None and time.monotonic() - since >= seconds

    def _listen(self) -> None:
        for child in self.children:
            child.listen()
        for writer in self.writers:
            writer.ledger.let_expire()
        self._take_failures()

    def _take_failures(self) -> None:
        for child in self.children:
            self.failures += child.failures
            child.failures = []

    def _kill(self, writer: StoreChild) -> None:
        """Kill a writer; what is left is compared with what it said, and its next life begins."""
        if isinstance(writer, BrokerChild) and writer.opened_at is not None and self._chance.random() < _STOPS:
            writer.stop()
            writer.counts["stops of brokers"] += 1
        else:
            writer.kill()
            writer.counts["kills"] += 1
        for clients in self.clients:
            clients.listen()
        self._check(writer)
        if writer.counts["kills"] % _KILLS_AN_AUDIT == 0:
            self._audit_a_copy(writer)
        writer.replace()
        self._deaths[writer.role] = self._next_death()

    def _check(self, writer: StoreChild) -> None:
        try:
            checked = writer.ledger.check()
        except (AssertionError, reput.ReputError) as error:
            self.failures.append(f"{writer.role}: {type(error).__name__}: {error}")
            writer.ledger.entries.clear()  # told once
            return
        self.counts["checks of a log"] += 1
        self.counts["records compared"] += checked.records
        self.counts["acknowledgements compared"] += checked.acknowledged

    def _audit_a_copy(self, writer: StoreChild) -> None:
        copy = self._folder / "copy"
        if writer.path.is_dir():
            shutil.copytree(writer.path, copy)
            self._recover_and_audit(copy, writer)
            shutil.rmtree(copy)

    def _recover_and_audit(self, path: Path, writer: StoreChild) -> None:
        try:
            with reput.MessageStore.open(path, **writer.store.options):
                pass
            audited = audit(path, runner=LocalRunner(), file_reserved_time=0)  # files are made old before their time
            assert audited.is_clean, (
                f"{len(audited.findings)} findings of an audit, the worst one: {audited.findings[0]}"
            )
        except (AssertionError, reput.ReputError) as error:
            self.failures.append(f"{writer.role}: {type(error).__name__}: {error}")
        self.counts["audits"] += 1

    def _finish(self, writer: StoreChild) -> None:
        """After the last kill: every message by its queue, its place and its key; then a clean exit and an audit."""
        try:
            places = {row[4][0]: row[0] for row in writer.ledger.rows()}
            with reput.MessageStore.open(writer.path, **writer.store.options) as store:
                check_acknowledged(
                    store,
                    [
                        Acknowledged(one.topic, one.queue_id, one.queue_offset, places[key], key, body_of(key))
                        for key, one in writer.ledger.entries.items()
                    ],
                )
            self.counts["messages looked up at the end"] += len(writer.ledger.entries)
        except (AssertionError, KeyError, reput.ReputError) as error:
            self.failures.append(f"{writer.role}: {type(error).__name__}: {error}")
        self._recover_and_audit(writer.path, writer)

    def _sample(self, now: float) -> None:
        self.sampled_at.append(round(now, 1))
        found: dict[str, Sample | None] = {child.role: look_at(child.pid) for child in self.children}
        for child in self.children:
            if child.role == "spark":
                for pid, command in children_of(child.pid):
                    role = "spark: JVM" if command == "java" else "spark: Python workers"
                    one, before = look_at(pid), found.get(role)
                    found[role] = one.plus(before) if one is not None and before is not None else one or before
        for role in found.keys() | self.samples.keys():
            series = self.samples.setdefault(role, [None] * (len(self.sampled_at) - 1))
            series.append(found.get(role))
        self.disk.append(sum(disk_mb(writer.path) for writer in self.writers))
        for name, total in self.totals().items():
            series_of_totals = self.progress.setdefault(name, [0] * (len(self.sampled_at) - 1))
            series_of_totals.append(total)

    def totals(self) -> Counter[str]:
        """Sums of all processes so far."""
        totals = Counter({"messages acknowledged": sum(writer.ledger.acknowledged for writer in self.writers)})
        for child in self.children:
            totals += child.counts
        return totals

    def _status(self) -> str:
        totals = self.totals()
        return (
            f"{totals['messages acknowledged']} acknowledged, {totals['kills']} kills, "
            f"{self.counts['checks of a log']} checks, {totals['Spark reads']} Spark reads, "
            f"{totals['consumed by Java clients']} consumed by Java clients, "
            f"{len(self.failures)} failures"
        )
