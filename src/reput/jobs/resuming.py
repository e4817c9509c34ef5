"""`ResumingRunner`: keeps what tasks return, so that a job that was killed does only what is missing."""

from __future__ import annotations

import hashlib
import os
import pickle
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reput.files import DISK
from reput.jobs.job_folder import JobFolder
from reput.jobs.runner import Progress, Runner

T = TypeVar("T")
R = TypeVar("R")

_SIZE_BYTES, _DIGEST_BYTES = 8, 16


class ResumingRunner:
    """Runs tasks with another runner, each at most once for the job, however often the job is started.

    The outcome of a task is written, synced and renamed where the task ran, so that all need to see the folder. What
    the task itself writes it must sync before it returns. An outcome whose `fault` is set (`SplitOutcome`) is not kept:
    the file may be mended before the next start.

    Without `synced` neither is: then finished tasks count as long as the machine runs, which is for the job to see to
    (`reput.jobs.rebuild.plan`). An outcome costs no sync then, and one that is torn counts as none.

    Tasks are told apart by the description and by the `repr` of their items: plans of dataclasses, texts and numbers
    that are the same at each start. Whatever else an outcome depends on belongs to the options of the folder.
    """

    def __init__(self, runner: Runner, folder: JobFolder, *, synced: bool = True) -> None:
        self._runner = runner
        self._synced = synced
        self._kept = folder.state_folder("outcomes")

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """As `Runner.run`; tasks that were finished before count as done from the start."""
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
    """A task that writes down what it returns."""

    task: Callable[[Any], Any]
    synced: bool

    def __call__(self, item: tuple[Any, str]) -> Any:
        work, path = item
        outcome = self.task(work)
        if getattr(outcome, "fault", None) is None:
            keep(path, outcome, synced=self.synced)
        return outcome


def keep(path: str, value: object, *, synced: bool) -> None:
    """Write down a value, not None, for `load`."""
    data = pickle.dumps(value)
    content = len(data).to_bytes(_SIZE_BYTES, "big") + _digest(data) + data
    if synced:
        attempt = f"{path}.{uuid.uuid4().hex}"  # an attempt that counts as lost may live on
        DISK.write_atomically(attempt, content)
        DISK.rename(attempt, path)
    else:
        with DISK.open(path, writable=True, create=True) as file:
            file.write(0, content)


def load(path: str) -> Any:
    """What `keep` has written; None where there is nothing, or a kill has torn it."""
    if not DISK.exists(path):
        return None
    content = DISK.read_bytes(path)  # a shorter one may lie over a longer one that was torn
    begin = _SIZE_BYTES + _DIGEST_BYTES
    data = content[begin : begin + int.from_bytes(content[:_SIZE_BYTES], "big")]
    return pickle.loads(data) if content[_SIZE_BYTES:begin] == _digest(data) else None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
