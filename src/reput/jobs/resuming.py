"""`ResumingRunner`: keeps the outcomes of tasks, so that a job that was killed runs only the missing tasks."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from reput.errors import StoreFormatError
from reput.files import DISK
from reput.jobs.job_folder import JobFolder
from reput.jobs.runner import Runner
from reput.progress import Progress

T = TypeVar("T")
R = TypeVar("R")

_SIZE_BYTES, _DIGEST_BYTES = 8, 16
#: Of pickles, whatever Python writes by default: 5, as of Python 3.14, makes arrays by other functions.
_PROTOCOL = 4
#: Beside dataclasses, enumerations and tuples, what outcomes are made of.
_PARTS = (np.ndarray, np.dtype, np.generic, pa.Table, Counter, bytearray)
#: Functions that make them, in NumPy 2 and 1.
_MAKERS = {
    ("reput.jobs.resuming", "_table"),
    *((f"numpy.{core}.multiarray", name) for core in ("_core", "core") for name in ("_reconstruct", "scalar")),
}


class ResumingRunner:
    """Runner that runs each task of a job once, however often the job is started, by another runner.

    The outcome of a task is written, synced and renamed where the task ran, so all machines must see the folder. A task
    must sync its own output before it returns. An outcome whose `fault` is set (`SplitOutcome`) is not kept: the file
    may be mended before the next start.

    With `synced=False` neither outcomes nor output need a sync. Finished tasks then count only until the machine stops;
    the job must take care of that (`reput.jobs.rebuild.plan`). A torn outcome counts as missing.

    A task is identified by the description and by the `repr` of its item: dataclasses, texts and numbers that are the
    same at each start. Anything else that an outcome depends on belongs to the options of the folder.
    """

    def __init__(self, runner: Runner, folder: JobFolder, *, synced: bool = True) -> None:
        self._runner = runner
        self._synced = synced
        self._kept = folder.state_folder("outcomes")

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """As `Runner.run`. Tasks that an earlier start has finished count as done in the progress."""
        paths = [self._path(description, item) for item in items]
        kept = {index: load(path) for index, path in enumerate(paths)}
        outcomes = {index: outcome for index, outcome in kept.items() if outcome is not None}
        missing = [index for index in range(len(items)) if index not in outcomes]
        before = len(outcomes)

        def report(done: int, total: int, description: str) -> None:
            if progress is not None:
                progress(before + done, before + total, description)

        ran = self._runner.run(
            _Keeping(task, self._synced),
            [(items[index], paths[index]) for index in missing],
            description=description,
            progress=report,
        )
        outcomes.update(zip(missing, ran, strict=True))
        return [outcomes[index] for index in range(len(items))]

    def _path(self, description: str, item: object) -> str:
        digest = hashlib.blake2b(f"{description}\n{item!r}".encode("utf-8", "surrogatepass"), digest_size=16)
        return os.path.join(self._kept, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class _Keeping:
    """Task that keeps its outcome in a file."""

    task: Callable[[Any], Any]
    synced: bool

    def __call__(self, item: tuple[Any, str]) -> Any:
        work, path = item
        outcome = self.task(work)
        if getattr(outcome, "fault", None) is None:
            keep(path, outcome, synced=self.synced)
        return outcome


def keep(path: str, value: object, *, synced: bool) -> None:
    """Write a value other than None to a file, for `load`: dataclasses, numbers, texts, arrays and tables.

    Raises TypeError for an object of another kind, which `load` would refuse.
    """
    written = io.BytesIO()
    _Pickler(written, _PROTOCOL).dump(value)
    data = written.getvalue()
    content = len(data).to_bytes(_SIZE_BYTES, "big") + _digest(data) + data
    if synced:
        attempt = f"{path}.{uuid.uuid4().hex}"  # a task attempt that counts as lost may still run
        DISK.write_atomically(attempt, content)
        DISK.rename(attempt, path)
    else:
        with DISK.open(path, writable=True, create=True) as file:
            file.write(0, content)


def load(path: str) -> Any:
    """Read the value that `keep` has written; None if the file is missing, or was torn by a kill.

    Raises StoreFormatError for a file of another user, or that others may write, and for one that names what no outcome
    is made of: a pickle calls what it names.
    """
    if not DISK.exists(path):
        return None
    with DISK.open(path) as file:
        if not file.is_own:
            raise StoreFormatError(
                f"{path}: state of a job that another user has begun, or that others may write, so it is not read; "
                "remove the folder of the job, or give another one"
            )
        content = file.read(0, file.size)  # may end with bytes of a longer value that was torn before
    begin = _SIZE_BYTES + _DIGEST_BYTES
    data = content[begin : begin + int.from_bytes(content[:_SIZE_BYTES], "big")]
    return _Unpickler(data, path).load() if content[_SIZE_BYTES:begin] == _digest(data) else None


def _is_part(kind: object) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, (Enum, tuple, *_PARTS)))


def _table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, value.schema) as stream:
                stream.write_table(value)
            return _table, (sink.getvalue().to_pybytes(),)
        kind = value if isinstance(value, type) else type(value)
        if not _is_part(kind) and (getattr(value, "__module__", ""), getattr(value, "__name__", "")) not in _MAKERS:
            raise TypeError(
                f"an outcome of a task has {value!r:.100}: expected dataclasses, numbers, texts, arrays, tables"
            )
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(io.BytesIO(data))
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """A class or function that the file names; of reput, modules that others than tasks import are read, too."""
        is_known = module in sys.modules or (module.startswith("reput.") and "._" not in module)
        if is_known and "." not in name:
            with suppress(ImportError, AttributeError):  # another release of reput may have had it
                found = super().find_class(module, name)
                if _is_part(found) or (module, name) in _MAKERS:
                    return found
        raise StoreFormatError(
            f"{self._path}: state of a job with {module}.{name}, which no job keeps; remove the folder of the job, or "
            "give another one"
        )


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
