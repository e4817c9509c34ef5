"""A case in a process of its own: what kills it, what hangs it and what takes all memory is a broken promise, too."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

_SECONDS = 30
#: Beside other processes everything takes longer.
_PATIENCE = 6
#: On top of what the process has when it begins; the kernels' buffers of an open store are 0.3 GB.
_MEMORY_BYTES = 2 << 30


def in_child(
    deed: Callable[[], Counter[str]], *, seconds: int = _SECONDS, may_kill_itself: bool = False
) -> Counter[str]:
    """Counts of `deed` in a forked process; empty for one that has killed itself by SIGKILL, if it may.

    Raises:
        AssertionError: it raised something, was killed by a signal, took more seconds of a processor or six times as
            long, or more than two gigabytes of memory.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _end(writing, deed, seconds)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if may_kill_itself and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Counter()
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        what = f"did not end within {seconds} s" if name in ("SIGALRM", "SIGPROF") else f"was killed by {name}"
        raise AssertionError(f"the process {what}")
    told = json.loads(answer)
    if isinstance(told, str):
        raise AssertionError(told)
    return Counter(told)


def _end(writing: int, deed: Callable[[], Counter[str]], seconds: int) -> None:
    """The whole life of the child."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(_PATIENCE * seconds)
    limit = _data_bytes() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        told: object = deed()
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-3:]))
        told = f"{type(error).__name__}: {error} ({where})"
    os.write(writing, json.dumps(told).encode()[:60_000])
    sys.stderr.flush()
    os._exit(0)


def _data_bytes() -> int:
    """Bytes of this process that RLIMIT_DATA counts."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData:")) << 10
