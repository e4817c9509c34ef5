"""The command in a process of its own that is interrupted at some moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: Tells when reput has taken SIGINT: what comes before, while Python itself starts, is Python's.
_PROGRAM = """
import os, signal, sys

descriptor = int(sys.argv.pop(1))
take = signal.signal

def tell(number, handler):
    before = take(number, handler)
    if number == signal.SIGINT:
        signal.signal = take
        os.close(descriptor)
    return before

signal.signal = tell
from reput.__main__ import main
main()
"""
#: Runs a command and interrupts it as often as said, when a function has been called.
AT_A_CALL = """
import functools, importlib, os, signal, sys

module, name, times = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))

def run():
    from reput.__main__ import main
    *path, last = name.split(".")
    holder = functools.reduce(getattr, path, importlib.import_module(module))
    call = getattr(holder, last)

    def interrupted(*arguments, **options):
        global times
        result = call(*arguments, **options)
        while times:
            times -= 1
            os.kill(os.getpid(), signal.SIGINT)
        return result

    setattr(holder, last, interrupted)
    main()

run()
"""
#: Environment variable by which processes of one command are known.
_MARK = "REPUT_TEST_COMMAND"
_END_TIMEOUT_S = 60


class Ended(NamedTuple):
    """End of a command."""

    status: int
    err: str
    #: How long it ran, from the moment when it took SIGINT.
    seconds: float
    #: Command lines of processes that it has left.
    left: list[str]

    def check(self, line: str = "reput: interrupted") -> None:
        """Assert that the command was interrupted as it must be, or was over before."""
        for word in ("Traceback", "KeyboardInterrupt", "py4j", "at org.apache", "Exception"):
            assert word not in self.err, self.err
        assert self.left == []
        assert (self.status, self.err.splitlines()) in [(130, [line]), (0, [])], self.err


def run_interrupted(*arguments: object, seconds: float | None = None, whole_group: bool = False) -> Ended:
    """Run a command and send it SIGINT so long after it has taken SIGINT; None: do not send it.

    Args:
        arguments: of the command.
        seconds: when to send SIGINT; nothing is sent to a command that has ended.
        whole_group: send it to all processes of the group, as a terminal does.
    """
    mark = f"{_MARK}={uuid.uuid4().hex}"
    reader, writer = os.pipe()
    command = [sys.executable, "-c", _PROGRAM, str(writer), *map(str, arguments)]
    environment = os.environ | dict([mark.split("=")])
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        pass_fds=[writer], env=environment, process_group=0,
    ) as process:  # fmt: skip
        os.close(writer)
        assert os.read(reader, 1) == b""
        os.close(reader)
        begin = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT) if whole_group else process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    ended = time.monotonic()
    left = _processes(mark)
    while process.returncode == 0 and left and time.monotonic() < ended + _END_TIMEOUT_S:
        left = _processes(mark)  # the JVM of a command that has not been interrupted ends by itself, a moment later
    return Ended(process.returncode, err, ended - begin, left)


def _processes(mark: str) -> list[str]:
    """Command lines of all processes that have the environment variable, less those that have ended."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is another user's
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def interrupted_at(module: str, name: str, *arguments: object, times: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a command that gets SIGINT, as often as said, when a function of its process has been called.

    Args:
        module: where the function is looked up when it is called.
        name: of the function, or `Class.method`.
        arguments: of the command.
        times: how many signals.
    """
    command = [sys.executable, "-c", AT_A_CALL, module, name, str(times), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
