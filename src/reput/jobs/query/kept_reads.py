"""`KeptReads`: what a query reads of a log is kept below its folder, so that after a kill it reads the rest only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from reput.files import DISK
from reput.jobs.job_folder import JobFolder, Option
from reput.jobs.query.row_files import read_rows, write_rows
from reput.jobs.resuming import ResumingRunner, keep, load
from reput.jobs.runner import Progress, Runner
from reput.log.plan import Part, cut_part

#: Log bytes of a task.
PART_BYTES = 64 << 20
#: What a query does, for whoever looks on.
READING = "read the log"

ReadPart = Callable[[Part], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _KeptPart:
    """A part of a plan, and the file for its rows, by which its task is known again."""

    path: str
    part: Part = field(repr=False)


class KeptReads:
    """Reads parts of logs by tasks, side by side, each once for the job however often it is started.

    Args:
        runner: who runs them. All need to see the folder.
        folder: of the job; its options say what is read, and of what.
        progress: told how far each read is.
    """

    def __init__(self, runner: Runner, folder: JobFolder, progress: Progress | None = None) -> None:
        self._runner = ResumingRunner(runner, folder)
        self._folder = folder.state_folder("rows")
        self._progress = progress

    def read(
        self, name: str, plan: Callable[[int], Sequence[Part]], task: ReadPart, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a read, in the order of its parts.

        Args:
            name: tells this read from the others of the job.
            plan: the parts, of so many log bytes each; asked for once, what is appended to the log later is not read.
            task: picklable; reads one part.
            schema: of the rows.
        """
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        planned = os.path.join(self._folder, digest)
        parts: list[Part] | None = load(planned)
        if parts is None:
            parts = [cut for part in plan(PART_BYTES) for cut in cut_part(part, PART_BYTES)]
            keep(planned, parts, synced=True)
        items = [_KeptPart(f"{planned}-{number}.arrow", part) for number, part in enumerate(parts)]
        self._runner.run(partial(_keep_rows, task, schema), items, description=READING, progress=self._progress)
        for item in items:
            yield from read_rows(item.path, files=DISK)


@contextmanager
def kept_reads(
    runner: Runner, work_dir: str, options: Mapping[str, Option], progress: Progress | None = None
) -> Iterator[KeptReads]:
    """The reads of a query with these options, kept in `work_dir` until it is answered; raises as `JobFolder`."""
    with JobFolder(work_dir, "query", options) as folder:
        yield KeptReads(runner, folder, progress)
        folder.finish()


def _keep_rows(task: ReadPart, schema: pa.Schema, item: _KeptPart) -> int:
    """The task: the rows of one part into its file, which is synced."""
    return write_rows(pa.RecordBatchReader.from_batches(schema, task(item.part)), item.path)
