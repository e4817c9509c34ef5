"""Sink of an import: numbered batches of a source into a store, each batch once, whatever is killed.

An import is a sink like Spark's (`reput.store.sinks.commit`): the store records, together with the messages, which
batch of which source came last. `reput.jobs.lake.import_job` reads the source and does not know the store; it is given
this sink.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError
from reput.extras import saying_the_extra
from reput.files import FileLayer
from reput.formats.sink_commit import SinkBatch, StagedPart

with saying_the_extra(__name__):
    import pyarrow as pa

from reput.kernels.records.message_columns import check_schema
from reput.log.object_storage import absolute, check_on_disk
from reput.log.sink_commits import read_sinks
from reput.progress import Progress, silent
from reput.store.sinks.bad_rows import AsideFile, BadRows, checked_tables, discard, publish
from reput.store.sinks.staging import StagingFile
from reput.store.sinks.staging_folder import check_name, name_in_store, staged_path
from reput.store.sinks.store_sink import StoreSink


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Result of staging one part of a batch.

    Attributes:
        part: The staged file; None if no row was staged.
        aside: Files of rows that were put aside.
    """

    part: StagedPart | None
    aside: tuple[AsideFile, ...]

    @property
    def rows_aside(self) -> int:
        """Number of rows that were put aside, as RocketMQ would refuse them."""
        return sum(file.rows for file in self.aside)


@dataclass(frozen=True, slots=True)
class RowStager:
    """Checks, encodes and stages the rows of one part; picklable, for tasks.

    Attributes:
        folder: Folder of the staged files.
        config: Configuration of the store.
        bad_rows_path: Folder for rows that RocketMQ would refuse; None: such a row is an error.
        aside: Begin of the names of files of rows put aside, until they are published.
        files: The file layer.
    """

    folder: str
    config: MessageStoreConfig
    bad_rows_path: str | None
    aside: str
    files: FileLayer

    def __call__(self, name: str, batches: Iterator[pa.RecordBatch], first_row: int, origin: str) -> StagedRows:
        """Stage the rows of `batches`.

        Args:
            name: Name of the part; the same if the part is staged again.
            batches: The rows.
            first_row: Number of the first row in `origin`, for error messages.
            origin: Where the rows come from, for error messages.

        Raises MessageIllegalError with origin, row and reason, unless such rows are put aside.
        """
        bad = BadRows(self.files, os.path.join(self.bad_rows_path or "", f"{self.aside}-{name}"))

        def refuse(row: pa.RecordBatch, reason: str) -> None:
            if self.bad_rows_path is None:
                raise MessageIllegalError(f"{origin}, {reason}; correct such rows, or put them aside (--bad-rows-path)")
            bad.put_aside(row, f"{origin}, {reason}")

        with StagingFile(self.files, staged_path(self.folder, name), self.config) as staging:
            row = first_row
            for batch in batches:
                for checked in checked_tables(batch, row, staging.check, refuse):
                    staging.write(checked)
                row += batch.num_rows
            return StagedRows(staging.part, tuple(bad.close()))


class ImportSink(StoreSink):
    """Writer of one source's batches into a store; a context manager that removes staged files.

    Args:
        path: The store directory; made if there is nothing.
        config: Configuration of the store.
        sink_id: Name under which the store records the last batch.
        bad_rows_path: As for `RowStager`.
        lock_timeout_ms: How long to wait while another process has the store open.
        progress: As for `MessageStore.open`.
        files: The file layer.

    Raises what `MessageStore.open` raises, StoreLockedError above all, which is also raised if another process
    imports under the same `sink_id`; and ConfigError if `bad_rows_path` is inside the store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: MessageStoreConfig,
        sink_id: str,
        *,
        bad_rows_path: str | None = None,
        lock_timeout_ms: int = 0,
        progress: Progress = silent,
        files: FileLayer,
    ) -> None:
        check_on_disk(path)
        path, name = absolute(path), check_name(f"import-{sink_id}")
        if bad_rows_path is not None:
            bad_rows_path = absolute(bad_rows_path)
            if os.path.commonpath([bad_rows_path, path]) == path:
                raise ConfigError(f"{bad_rows_path}: lies inside the store {path}; name a place outside of it")
        aside, self._sink_id = f"_{name_in_store(sink_id, path)}", sink_id
        super().__init__(path, config, name, "import", lock_timeout_ms, progress, files)
        try:
            self._clear()
            if bad_rows_path is not None:
                files.make_directories(bad_rows_path)
                discard(files, bad_rows_path, aside)
        except BaseException:
            self._lock.release()
            raise
        self.stage = RowStager(self._folder, self._config, bad_rows_path, aside, files)

    def check(self, schema: pa.Schema) -> None:
        """Check the columns of a source; raises MessageIllegalError if no message can be made of them."""
        check_schema(schema)

    def committed(self, source: str) -> int:
        """Number of the source's batches that are in the store.

        Raises ConfigError if the sink has batches of another source.
        """
        last = read_sinks(self._files, self._path).commits.get(self._sink_id)
        if last is None or last.batch is None:
            return 0
        if last.batch.query_id != source:
            raise ConfigError(
                f"{self._path}: the sink {self._sink_id!r} has imported {last.batch.batch_id + 1} batches of another "
                "source, or of this source before it was changed: it is not known which of its rows are in the store. "
                "Give the source as it was, or import only new rows under another sink id"
            )
        return last.batch.batch_id + 1

    def commit(self, source: str, number: int, staged: Sequence[StagedRows]) -> int:
        """Commit a staged batch; returns its number of messages, which are on the disk, in queues and index then.

        Parts of the next batch may be staged meanwhile.
        """
        for i, one in enumerate(staged):  # before the commit: a repeated commit gives the same names again
            publish(self._files, one.aside, f"{self._sink_id}-{number}-{i}")
        parts = [one.part for one in staged if one.part is not None]
        done = self._put(parts, SinkBatch(self._sink_id, number, source))
        for part in parts:
            self._files.unlink(part.path)
        return done.rows
