"""Whose a folder is: a process, named so that another one can ask later whether it lives."""

from __future__ import annotations

import os

_ME = "/proc/self"


def owner_text(ancestor: str | None = None) -> str:
    """The name of this process, or of the nearest one above it whose command is `ancestor`, if there is one.

    Made of the machine's boot, the process namespace (of the container), the process id and the time of its start:
    ids are used again.
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
    """Whether the process of an `owner_text` lives; None where this machine, or this container, cannot know."""
    fields = owner.split()
    if len(fields) != 4 or f"{fields[0]} {fields[1]}" != _machine() or not fields[2].isdigit():
        return None
    try:
        return _status(int(fields[2]))[2] == fields[3]
    except OSError:
        return False


def _machine() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink(f'{_ME}/ns/pid')}"


def _status(pid: int) -> tuple[str, int, str]:
    """(command, parent's id, start time) of a process; OSError where there is none."""
    with open(f"/proc/{pid}/stat") as file:
        head, _, tail = file.read().rpartition(")")
    fields = tail.split()
    return head.partition("(")[2], int(fields[1]), fields[19]
