"""Kill a process before its n-th change of the disk."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from reput.files.file import File
from reput.files.layer import FileLayer

#: Everything by which a rebuild changes the disk.
CHANGES = (
    (FileLayer, ("make_directories", "rename", "unlink", "remove_tree", "write_runs", "sync_directory")),
    (File, ("write", "allocate", "sync")),
)


Kinds = Sequence[tuple[type, tuple[str, ...]]]


def killed(
    call: Callable[[], object], changes: int, begin: tuple[type, str] | None = None, kinds: Kinds = CHANGES
) -> bool:
    """Run in a process of its own, which kills itself before its n-th change of the disk; whether it came so far.

    begin: the method from whose call on changes count; None: all do. kinds: of changes, as `CHANGES`.
    """
    return _run(call, changes, begin, kinds)[0]


def count_changes(call: Callable[[], object]) -> int:
    """Run to the end in a process of its own, and count its changes of the disk."""
    return _run(call, 0, None, CHANGES)[1]


def _run(call: Callable[[], object], last: int, begin: tuple[type, str] | None, kinds: Kinds) -> tuple[bool, int]:
    """Whether a process of its own killed itself before the last of its changes, and how many it came to."""
    told = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        try:
            numbers, counting = count(1), [True] * (begin is None)

            def counted(method: Callable[..., Any]) -> Callable[..., Any]:
                def change(*arguments: Any, **options: Any) -> Any:
                    if counting:
                        number = next(numbers)
                        told[:] = number.to_bytes(8, "little")
                        if number == last:
                            os.kill(os.getpid(), signal.SIGKILL)
                    return method(*arguments, **options)

                return change

            for layer, names in kinds:
                for name in names:
                    setattr(layer, name, counted(getattr(layer, name)))
            if begin is not None:
                first = getattr(*begin)

                def begun(*arguments: Any, **options: Any) -> Any:
                    counting.append(True)
                    return first(*arguments, **options)

                setattr(*begin, begun)
            call()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL, int.from_bytes(told, "little")
