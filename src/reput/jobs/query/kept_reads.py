"""`KeptReads`: keeps the rows that a query has read in its folder, so that after a kill it reads only the rest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from reput.config.arguments import an_object_of, check_mapping, check_path, optional
from reput.files import DISK
from reput.jobs.arguments import check_arguments
from reput.jobs.job_folder import JobFolder, Option
from reput.jobs.query.row_files import read_rows, write_rows
from reput.jobs.resuming import ResumingRunner, keep, load
from reput.jobs.runner import Runner
from reput.log.plans.plan_parts import Part, cut_part
from reput.log.reads.open_batches import batch_reader
from reput.progress import Progress

#: Log bytes of a task.
PART_BYTES = 64 << 20
#: Description of the task, for progress.
READING = "read the log"

ReadPart = Callable[[Part], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _KeptPart:
    """A part of a plan, and the file for its rows, whose path identifies the task after a kill."""

    path: str
    part: Part = field(repr=False)


class KeptReads:
    """Reads logs by parallel tasks, and keeps their rows. Each task runs once, however often the job is started.

    Args:
        runner: runs the tasks. All its machines must see the folder.
        folder: of the job; its options identify the query and the store.
        progress: called with the progress of each read.
    """

    def __init__(self, runner: Runner, folder: JobFolder, progress: Progress | None = None) -> None:
        self._runner = ResumingRunner(runner, folder)
        self._folder = folder.state_folder("rows")
        self._progress = progress

    def read(
        self, name: str, plan: Callable[[int], Sequence[Part]], task: ReadPart, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of a plan, in the order of its parts.

        Args:
            name: identifies this read among the reads of the job.
            plan: returns the parts for a size in log bytes. It is called once for the job: records that are appended to
                the log later are not read.
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


#: The check of the argument of functions that read by tasks.
check_kept = optional(an_object_of(KeptReads))


@contextmanager
def kept_reads(
    runner: Runner, work_dir: str, options: Mapping[str, Option], progress: Progress | None = None
) -> Iterator[KeptReads]:
    """Keep the reads of a query with these options in `work_dir` until the query has ended; raises as `JobFolder`."""
    check_arguments(runner=runner, progress=progress)
    check_path("work_dir", work_dir)
    check_mapping("options", options)
    with JobFolder(work_dir, "query", options) as folder:
        yield KeptReads(runner, folder, progress)
        folder.finish()


def _keep_rows(task: ReadPart, schema: pa.Schema, item: _KeptPart) -> int:
    """Task: write the rows of one part to its file, and sync it."""
    return write_rows(batch_reader(schema, task(item.part)), item.path)
