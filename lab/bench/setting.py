"""Settings of a run: folders, sizes and times, and the store that the reading questions share."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from lab.bench import messages
from lab.bench.apache import Apache, ApacheError
from reput import MessageStore

_TABLE_ROWS = 524_288
_REPEATS = 3
_WARM_UP = 300_000
_SHORTEST_S = 0.2


class _Closable(Protocol):
    def close(self) -> None: ...


_Shared = TypeVar("_Shared", bound=_Closable)


class Setting:
    """One run.

    Attributes:
        directory: Everything is written below it, and removed at the end.
        quick: Whether everything is only to be tried: each figure once, and of some series only a part.
        repeats: How often each figure is measured.
        scale: 1 for a full run; a quick one takes a fraction of all counts and sizes.
        beside_apache: Whether RocketMQ's own code takes turns with ours.
        apache: Its store, to take turns with; None where it is left out.
        limits: Medians of the machine's limits by name, once `lab.bench.limits` has run.
    """

    def __init__(
        self, directory: str, *, quick: bool, scale: float, say: Callable[[str], None], beside_apache: bool = True
    ) -> None:
        self.apache: Apache | None = None
        self.beside_apache = beside_apache
        self.directory = os.path.abspath(directory)
        self.quick = quick
        self.repeats = 1 if quick else _REPEATS
        self.scale = scale
        self.say = say
        self.limits: dict[str, float] = {}
        self._stock: str | None = None
        self._apache_stock: str | None = None
        self._shared: dict[str, _Closable] = {}

    def count(self, full: int) -> int:
        """Number for something that a full run does `full` times."""
        return max(int(full * self.scale), 100)

    def seconds(self, full: float) -> float:
        """Seconds for something that a full run does for `full` seconds."""
        return max(full * self.scale, _SHORTEST_S)

    def bytes(self, full: int) -> int:
        """Number of bytes; whole MiB."""
        return max(int(full * self.scale) >> 20, 4) << 20

    def folder(self, name: str) -> str:
        """An empty folder of this name; what it held before is removed."""
        path = f"{self.directory}/{name}"
        self.remove(path)
        os.makedirs(path)
        return path

    def remove(self, path: str) -> None:
        """Remove a folder of this run."""
        assert path.startswith(self.directory)
        shutil.rmtree(path, ignore_errors=True)

    @property
    def stock_count(self) -> int:
        """Messages of `stock`: about 1 GB of log in a full run."""
        return self.count(2_200_000)

    def stock(self) -> str:
        """A cleanly closed store of `stock_count` messages, made when it is first asked for; leave it as it is."""
        if self._stock is None:
            self.say(f"a store of {self.stock_count:,} messages")
            self._stock = self.folder("stock")
            fill(self._stock, self.stock_count)
        return self._stock

    def apache_stock(self) -> str:
        """A copy of `stock` that RocketMQ may open and change; its log stays the same."""
        if self._apache_stock is None:
            self._apache_stock = self.copy(self.stock(), "stock-apache")
        return self._apache_stock

    def copy(self, store: str, name: str) -> str:
        """A copy of a store in the folder `name`, on the disk: nothing is left to be written when it is used."""
        path = self.folder(name)
        subprocess.run(["cp", "--archive", "--sparse=always", f"{store}/.", path], check=True)
        os.sync()
        return path

    def start_apache(self) -> None:
        """Let RocketMQ's store take turns from here on, warmed up; leave it out where it cannot be built."""
        self.say("RocketMQ's store, warming up")
        try:
            self.apache = Apache()
        except ApacheError as error:
            self.say(f"RocketMQ is left out: {error}")
            return
        self.apache.warm_up(f"{self.directory}/warm-up", self.count(_WARM_UP))

    def shared(self, name: str, make: Callable[[], _Shared]) -> _Shared:
        """Store that several questions share, made when it is first asked for and closed at the end."""
        if name not in self._shared:
            self._shared[name] = make()
        return cast(_Shared, self._shared[name])

    def clear(self) -> None:
        """End what this run began, and remove everything that it wrote."""
        for shared in self._shared.values():
            shared.close()
        if self.apache is not None:
            self.apache.close()
        self.remove(self.directory)

    def records_limit(self, limit: str) -> tuple[str, float]:
        """A limit in bytes/s as records/s."""
        return limit, self.limits.get(limit, 0.0) * 1e9 / messages.RECORD_SIZE


def fill(path: str, count: int) -> None:
    """Put `count` messages into the store at `path`, and close it cleanly."""
    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        put(store, count)


def put(store: MessageStore, count: int, *, first: int = 0) -> None:
    """Put messages `first` .. `first + count`, and wait until they are dispatched."""
    for start in range(first, first + count, _TABLE_ROWS):
        store.put_arrow(messages.table(min(_TABLE_ROWS, first + count - start), first=start))
        store.wait_dispatched(timeout=600)
