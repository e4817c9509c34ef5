"""The JVM of this process's Spark session, started here and not by pyspark, so that it can be ended at any moment.

pyspark waits for the JVM to write its port into a folder, and if Ctrl-C comes meanwhile, it removes the folder: the JVM
then fails, and runs for ever. Ours has a session of processes of its own (`setsid`), with Spark's Python daemon and its
workers. So Ctrl-C on a terminal reaches this process alone, and `kill` finds them all. As with pyspark, the JVM ends
when its standard input is closed, for example as this process is killed.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import string
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from reput.errors import ReputError
from reput.files import DISK
from reput.spark.held_interrupt import held_interrupt

_POLL_INTERVAL_S = 0.02
#: Longest wait for processes that end by SIGTERM, so that they remove temporary files. It takes up to a second.
_END_TIMEOUT_S = 5

#: First lines of a JVM about options of Spark's launcher: for a module that is not final, for a package that is gone.
_OF_LAUNCHER = (b"WARNING: Using incubator modules: ", b"WARNING: package ")

_CONNECTION_FILE, _PROPERTIES_FILE = "connection", "spark.properties"
_SIZE_BYTES = 4
_UTF_16 = "utf-16-be"
#: Characters that stand for themselves in `Properties`, wherever they are.
_PLAIN = set(string.ascii_letters + string.digits + "._-/")


class _Jvm:
    """A JVM with its gateway for py4j.

    No lock guards anything here: `kill` is called by a signal handler, which may interrupt the owner of any lock.
    """

    def __init__(self, command: list[str], folder: str) -> None:
        self.folder = folder
        self.connection_file = os.path.join(folder, _CONNECTION_FILE)
        self.is_silent = False
        self.has_ended = False
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": self.connection_file},
            start_new_session=True,
        )
        self.copying = threading.Thread(target=self._copy_stderr, name="reput-jvm-stderr", daemon=True)
        self.copying.start()

    def _copy_stderr(self) -> None:
        """Copy what the JVM prints to stderr, until it ends, but for what nobody can help.

        Around Python's buffer, whose lock may be held.
        """
        target = getattr(sys.__stderr__, "buffer", None)  # none if the shell has closed stderr
        target = getattr(target, "raw", target)
        assert isinstance(self.process.stderr, io.BufferedReader)
        while self.process.stderr.peek().startswith(_OF_LAUNCHER):
            self.process.stderr.readline()
        while data := self.process.stderr.read1():
            if target is not None and not self.is_silent:
                with contextlib.suppress(OSError):
                    target.write(data)
        self.has_ended = True


def _properties(settings: Mapping[str, str]) -> bytes:
    """A file of Java's `Properties`, in ASCII."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items()).encode()


def _escaped(text: str) -> str:
    units = struct.unpack(f">{len(text.encode(_UTF_16)) // 2}H", text.encode(_UTF_16))
    return "".join(chr(unit) if chr(unit) in _PLAIN else f"\\u{unit:04x}" for unit in units)


_started: _Jvm | None = None


def start(spark_home: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Start a JVM with Spark; returns the environment variables by which pyspark connects to it.

    Args:
        spark_home: folder with Spark's `bin` and `jars`.
        settings: Spark's settings, some of which the JVM must have when it starts. They are in a file that only this
            user can read: what is on a command line, any user of the machine can read.

    Raises:
        ReputError: the JVM has ended.
    """
    global _started
    try:
        with held_interrupt():  # else nobody would know a JVM that has just been started
            folder = DISK.make_temporary_directory()
            properties = os.path.join(folder, _PROPERTIES_FILE)
            DISK.write_atomically(properties, _properties(settings), is_private=True)
            command = [os.path.join(spark_home, "bin", "spark-submit")]
            command += ["--properties-file", properties, "--load-spark-defaults"]
            command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
            jvm = _started = _Jvm(command, folder)
        while not DISK.exists(jvm.connection_file):
            if jvm.has_ended:
                raise ReputError("Spark does not start; Java printed the reason above")
            time.sleep(_POLL_INTERVAL_S)
        connection = DISK.read_bytes(jvm.connection_file)
    except BaseException:
        kill()
        raise
    DISK.remove_tree(jvm.folder)
    port, secret = connection[:_SIZE_BYTES], connection[2 * _SIZE_BYTES :]  # between them is the size of the secret
    return {"PYSPARK_GATEWAY_PORT": str(int.from_bytes(port, "big")), "PYSPARK_GATEWAY_SECRET": secret.decode()}


def is_running() -> bool:
    """Whether this process has started a JVM, which may run."""
    return _started is not None


def close() -> None:
    """Let the JVM end by itself, and wait until it has."""
    global _started
    jvm, _started = _started, None
    if jvm is not None:
        jvm.process.communicate()


def kill() -> None:
    """End the JVM, Spark's Python daemon and its workers at once. What they print from now on is dropped."""
    global _started
    jvm, _started = _started, None
    if jvm is None:
        return
    jvm.is_silent = True
    _send(_members(jvm.process.pid), signal.SIGTERM)
    deadline = time.monotonic() + _END_TIMEOUT_S
    while time.monotonic() < deadline and not (jvm.has_ended and _members(jvm.process.pid) <= {jvm.process.pid}):
        time.sleep(_POLL_INTERVAL_S)
    killed: set[int] = set()
    while left := _members(jvm.process.pid) - killed:  # until there is nobody left who could start another one
        _send(left, signal.SIGKILL)
        killed |= left
    if DISK.exists(jvm.folder):
        DISK.remove_tree(jvm.folder)


def _members(session: int) -> set[int]:
    """Processes of a session of processes, also those that have ended and nobody has waited for."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(name)) == session:
                found.add(int(name))
    return found


def _send(processes: set[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
