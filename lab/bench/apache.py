"""RocketMQ's own store in a JVM that lives as long as the run, stays warm, and takes turns with ours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Self

from lab.bench import messages
from lab.bench.figures import Other
from tests.support.rocketmq.apache import Apache as Process
from tests.support.rocketmq.apache import ApacheError, build

__all__ = ["NAME", "VERSION", "Apache", "ApacheError", "Broker", "OpenStore", "forget_derived"]

VERSION = "5.3.3"
NAME = f"RocketMQ {VERSION}"
_JAVA_OPTIONS = ("-Xms512m", "-Xmx512m", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC")
#: A batch of them has half a megabyte; maxMessageSize allows four.
_BATCH_ROWS = 1_000
#: With the limits of one pull out of the way of pulls of 1 000.
_CONFIG = {"maxTransferCountOnMessageInMemory": 1_000, "maxTransferBytesOnMessageInMemory": 4 << 20}


class Apache:
    """A JVM that has at most one store open.

    Attributes:
        batch: Messages a call by which putting many is faster: 0 is putMessage, else putMessages. Known once warm.
    """

    def __init__(self) -> None:
        """Build it where that was not done yet.

        Raises:
            ApacheError: There is no JDK or no Maven, or Maven has no way to its repository.
        """
        build(VERSION)
        self._process = Process(VERSION, _JAVA_OPTIONS)
        self.batch = 0

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()

    def open(self, path: str, flush_disk_type: str = "ASYNC_FLUSH") -> OpenStore:
        """Open a store; it is closed by its `with` block."""
        _, end_offset = self._process.run("open", path=path, config=_CONFIG | {"flushDiskType": flush_disk_type})
        return OpenStore(self._process, end_offset)

    def warm_up(self, path: str, count: int) -> None:
        """Let the JVM compile what will be measured, in a store at `path` that is removed again."""
        dispatched = {}
        for batch in (0, _BATCH_ROWS, 0, _BATCH_ROWS):
            shutil.rmtree(path, ignore_errors=True)
            with self.open(path) as store:
                dispatched[batch] = store.put(count, batch=batch)["dispatched"]
                store.query(count // 10, count)
        self.batch = min(dispatched, key=lambda batch: dispatched[batch])
        forget_derived(path)
        self.open(path).close()
        shutil.rmtree(path)

    def other(self, least: float | None = None) -> Other:
        """A column beside a figure of ours."""
        return Other(NAME, least=least)


class Broker:
    """RocketMQ's broker on a store, a name server and a client in one JVM; a context manager that ends it."""

    def __init__(self, path: str) -> None:
        self._process = Process(VERSION, _JAVA_OPTIONS)
        self._process.run("bench-serve", path=path, topic=messages.TOPIC, queues=messages.QUEUES, max=_BATCH_ROWS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def pull(self, count: int, batch: int) -> float:
        """Messages a second, all `count` of the store, pulled by eight threads and looked at, `batch` a call."""
        seconds: float = self._process.run(
            "bench-pull", topic=messages.TOPIC, queues=messages.QUEUES, count=count, threads=8, max=batch
        )
        return count / seconds


class OpenStore:
    """The store that is open.

    Attributes:
        end_offset: Of its log.
        seconds: That its `load` took: what recovers, and dispatches again. Its `start` is not in it: that sleeps for a
            second where the dispatch thread has not read the last record yet.
    """

    def __init__(self, process: Process, end_offset: int) -> None:
        self._process = process
        self.end_offset = end_offset
        self.seconds = float(process.run("bench-load"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut it down cleanly."""
        self._process.run("close")

    def put(
        self, count: int, *, first: int = 0, threads: int = 1, batch: int = 0, timed: bool = False
    ) -> dict[str, float]:
        """Seconds until `appended` and `dispatched`; with `timed` also `p50` and `p99` of a call in us."""
        answer: dict[str, float] = self._process.run(
            "bench-put", first=first, count=count, threads=threads, batch=batch, timed=timed
        )
        if answer["bytes"] != count * messages.RECORD_SIZE:
            raise AssertionError(f"{NAME} wrote {answer['bytes'] / count} bytes a message, not {messages.RECORD_SIZE}")
        return answer

    def get(self, calls: int, count: int, *, decode: bool = False) -> float:
        """Microseconds a pull of `count` messages: as buffers, or decoded by MessageDecoder."""
        return self._seconds("bench-get", calls=calls, max=count, decode=decode) / calls * 1e6

    def query(self, calls: int, count: int) -> float:
        """Keys a second, one a call, at random out of the first `count` messages."""
        return calls / self._seconds("bench-query", calls=calls, messages=count)

    def sync(self) -> float:
        """Seconds until log, queues, index and checkpoint are on the disk; `shutdown` would sleep for three first."""
        return self._seconds("bench-sync")

    def _seconds(self, command: str, **arguments: Any) -> float:
        return float(self._process.run(command, **arguments))


def forget_derived(path: str) -> None:
    """Leave of a closed store its log alone, as if it had been killed."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(f"{path}/{name}")
    os.unlink(f"{path}/checkpoint")
    Path(path, "abort").touch()
