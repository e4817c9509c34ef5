"""Load from RocketMQ's own Java client: jobs of many threads that send or pull, in one JVM for the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from lab.bench.apache import VERSION
from lab.bench.broker.sides import Side, processor_seconds
from tests.support.rocketmq.apache import Apache as JavaProcess
from tests.support.rocketmq.apache import ApacheError, build

_JAVA_OPTIONS = ("-Xms512m", "-Xmx2g", "-XX:+UseG1GC")
#: Of a message; the first eight are the moment of its making.
BODY_SIZE = 128


@dataclass(frozen=True, slots=True)
class Job:
    """Threads that make the same kind of request one after the other.

    Attributes:
        kind: "send" or "pull"; a pull asks for 32 messages.
        topic: Where messages go, or come from.
        threads: How many.
        rate: Requests a second of all threads; 0: as fast as they are answered.
        batch: Messages a send.
        size: Bytes of a body.
        first: The queue offset where pulls begin, and begin again behind the last message of a queue.
    """

    kind: str
    topic: str
    threads: int = 1
    rate: float = 0
    batch: int = 1
    size: int = BODY_SIZE
    first: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """Result of a job: requests that were answered well, and microseconds of a request."""

    requests: int
    messages: int
    failed: int
    failure: str | None
    seconds: float
    p50: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A run of jobs.

    Attributes:
        told: By job.
        broker_seconds, client_seconds: Processor time meanwhile.
    """

    told: list[Told]
    broker_seconds: float
    client_seconds: float

    @property
    def one(self) -> Told:
        """Of the only job."""
        (told,) = self.told
        return told


class Load:
    """The JVM; it is connected to one broker at a time."""

    def __init__(self) -> None:
        """Build it where that was not done yet; SystemExit says that there is no JDK or no Maven."""
        try:
            build(VERSION)
        except ApacheError as error:
            raise SystemExit(f"bench: {error}") from None
        self._process = JavaProcess(VERSION, _JAVA_OPTIONS)

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()

    @contextmanager
    def connected(self, side: Side) -> Iterator[None]:
        """Have clients of a broker; each is started when it is first used."""
        self._process.run("load-connect", namesrv=side.namesrv)
        try:
            yield
        finally:
            self._process.run("load-leave")

    def run(self, side: Side, jobs: Sequence[Job], seconds: float) -> Measured:
        """Run jobs at the same time for some seconds."""
        return self._measured(side, jobs, seconds=seconds)

    def fill(self, side: Side, job: Job, messages: int) -> Measured:
        """Run one job until it has sent a number of messages."""
        return self._measured(side, [job], seconds=0, messages=messages)

    def _measured(self, side: Side, jobs: Sequence[Job], **arguments: float) -> Measured:
        before = side.processor_seconds(), processor_seconds(self._process.pid)
        told = self._process.run("load-run", jobs=[asdict(job) for job in jobs], **arguments)
        after = side.processor_seconds(), processor_seconds(self._process.pid)
        broker, client = (late - early for early, late in zip(before, after, strict=True))
        return Measured([Told(**one) for one in told], broker, client)

    def push(self, topic: str, group: str, count: int) -> float:
        """Seconds in which a push consumer of a new group gets a number of messages that are there already."""
        return float(self._process.run("load-push", topic=topic, group=group, count=count))

    def consume(self, topic: str, group: str, count: int) -> tuple[float, float]:
        """As `push`; seconds, and seconds of processor time."""
        before = processor_seconds(self._process.pid)
        seconds = self.push(topic, group, count)
        return seconds, processor_seconds(self._process.pid) - before

    def subscribe(self, topic: str, group: str) -> None:
        """Start a push consumer of a new group; returns when it gets what is sent now."""
        self._process.run("load-subscribe", topic=topic, group=group)

    def arrived(self, count: int) -> dict[str, float]:
        """Microseconds from send to listener of the last run's messages: p50, p99, p999 and max."""
        told: dict[str, Any] = self._process.run("load-arrived", count=count)
        return told
