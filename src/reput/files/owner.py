"""Owner of a folder: a process, named so that another process can later ask whether it still runs."""

from __future__ import annotations

import os

_SELF = "/proc/self"


def owner_text(ancestor: str | None = None) -> str:
    """Name of this process, or of the nearest process above it whose command is `ancestor`, if there is one.

    It consists of the machine's boot id, the process namespace (of the container), the process id and the process's
    start time: process ids are reused.
    """
    pid = os.getpid()
    chosen = pid
    while ancestor is not None and pid > 1:
        command, parent, _ = _status(pid)
        if command == ancestor:
            chosen = pid
            break
        pid = parent
    return f"{_machine()} {chosen} {_status(chosen)[2]}"


def is_alive(owner: str) -> bool | None:
    """Whether the process of an `owner_text` runs; None if this machine, or this container, cannot know."""
    fields = owner.split()
    if len(fields) != 4 or f"{fields[0]} {fields[1]}" != _machine() or not fields[2].isdigit():
        return None
    try:
        return _status(int(fields[2]))[2] == fields[3]
    except OSError:
        return False


def _machine() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink(f'{_SELF}/ns/pid')}"


def _status(pid: int) -> tuple[str, int, str]:
    """(command, parent's id, start time) of a process; OSError without the process."""
    with open(f"/proc/{pid}/stat") as file:
        head, _, tail = file.read().rpartition(")")
    fields = tail.split()
    return head.partition("(")[2], int(fields[1]), fields[19]
