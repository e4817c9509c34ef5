"""A broker on a disk that loses its power: run by `lives`.

    python -m tests.support.kinds.disk_broker STORE LEFT NUMBER IN_START SEED KEYS

It serves STORE until an operation of the file layer, by its number from when it is ready on, or, with IN_START,
from its start on. Then no client hears anything more, and LEFT is what the disk has: what was synced and, with a seed,
some of the rest, torn and in any order. Of the log it has what was synced alone: a record that nobody was answered for,
and whose properties are torn, would count as whole, and be delivered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import stat
import sys
import threading
from pathlib import Path

from tests.support.broker import controller_of
from tests.support.faulty_files import FaultyFiles, Operation


class _Disk(FaultyFiles):
    """See above."""

    def cut_power(
        self, path: Path, target: Path, chance: random.Random | None = None, written: dict[int, Path] | None = None
    ) -> None:
        super().cut_power(path, target, None if path.name == "commitlog" else chance, written)


class _PowerCut:
    """Judge of a `FaultyFiles`: the machine ends at one operation."""

    def __init__(self, files: FaultyFiles, store: Path, left: Path, seed: int) -> None:
        self._files, self._store, self._left = files, store, left
        self._chance = random.Random(seed) if seed else None
        self._cutting = threading.Lock()
        self.at: int | None = None

    def judge(self, operation: Operation) -> None:
        if self.at is None or operation.number < self.at:
            return
        self._cutting.acquire()  # for good: other threads' operations are not done, either
        _hang_up()  # first: an answer that leaves is one to what the disk has
        self._files.cut_power(self._store, self._left, self._chance)
        os._exit(1)


def _hang_up() -> None:
    """End all connections of this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.stat(int(name)).st_mode):
                found = socket.socket(fileno=os.dup(int(name)))
                if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is gone, or was never connected
            continue


async def _serve(store: Path, keys: dict[str, object], cut: _PowerCut, files: FaultyFiles, number: int) -> None:
    controller = controller_of(store, files=files, **keys)
    await controller.start()
    print(json.dumps({"broker": controller.address}), flush=True)
    if cut.at is None:
        cut.at = len(files.operations) + number
    await asyncio.Event().wait()


def main() -> None:
    store, left, number, start, seed, keys = sys.argv[1:]
    files = _Disk()
    if Path(store).is_dir():
        files.all_is_durable(Path(store))
    cut = _PowerCut(files, Path(store), Path(left), int(seed))
    files.judge = cut.judge
    if int(start):
        cut.at = int(number)
    asyncio.run(_serve(Path(store), json.loads(keys), cut, files, int(number)))


if __name__ == "__main__":
    main()
