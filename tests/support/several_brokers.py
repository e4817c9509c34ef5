"""A name server and two brokers, as the example of docs/several-brokers.md starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.sockets import free_ports

SCRIPT = Path(__file__).parents[2] / "examples/several-brokers.sh"
NAMES = ("namesrv", "broker-a", "broker-b")
HOST = "127.0.0.1"


class SeveralBrokers:
    """Processes on ports that are free now. stores: the folder of their stores."""

    def __init__(self, stores: Path) -> None:
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        names = (f"{name.upper().replace('-', '_')}_PORT" for name in NAMES)
        ports = dict(zip(names, map(str, self.ports.values()), strict=True))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where the command `reput` is
        self._environment = os.environ | ports | {"STORES": str(stores), "PATH": path}

    def address(self, name: str) -> str:
        """Address of one of them."""
        return f"{HOST}:{self.ports[name]}"

    @contextmanager
    def script(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The example in a process group of its own, which is killed at the end."""
        command = ["sh", str(SCRIPT), *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self._environment, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                if is_running(process.pid):
                    os.killpg(process.pid, signal.SIGKILL)

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """One of them, when it is ready; its process can be killed."""
        with self.script(name) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready "), line or process.communicate()[1]
            yield process


def is_running(group: int) -> bool:
    """Whether a process of a group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
