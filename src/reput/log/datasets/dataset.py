"""LogDataset: the messages of a store as a dataset of Arrow, which DuckDB and polars scan with their own filters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from reput.config.arguments import check_flag, check_path, check_whole
from reput.errors import ConfigError
from reput.extras import require
from reput.files import DISK, FileLayer
from reput.kernels.records.record_batch import SCHEMA
from reput.log.datasets.arrow_filters import narrowed
from reput.log.datasets.batch_scanner import BatchScanner
from reput.log.directory import StoreDirectory
from reput.log.object_storage import files_of
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import read_part
from reput.log.plans.pruning import Wanted, wanted_by
from reput.log.reads.open_batches import arrow_scanner
from reput.log.reads.whole_log import read_whole_log
from reput.log.selection import make_selection
from reput.log.unknown_topics import warn_of_unknown_topics

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The arguments of `log_dataset`; picklable."""

    path: str
    topics: frozenset[str] | None
    keys: frozenset[str] | None
    raw_body: bool
    commit_log_path: str | os.PathLike[str] | None
    store: str
    statistics: str | None
    clock_margin_ms: int | None
    files: FileLayer

    def batches(self, names: Sequence[str], expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Rows with these columns that may pass a filter; ranges of the log without any are not read."""
        directory = StoreDirectory(self.path, commit_log_path=self.commit_log_path, files=self.files)
        selection = make_selection(
            columns=names, topics=self.topics, keys=self.keys, raw_body=self.raw_body, store=self.store
        )
        wanted = wanted_by(selection)
        if expression is not None:
            wanted = narrowed(wanted, expression, directory)
        if wanted == Wanted():  # nothing to plan, and the first rows need no walk to the log's end
            yield from read_whole_log(directory, directory.log_files(), selection)
            return
        options = PlanOptions(processors=1, statistics=self.statistics, clock_margin_ms=self.clock_margin_ms)
        for part in plan_read(directory, selection, options, wanted).parts:
            yield from read_part(part, selection, self.files)


def log_dataset(
    path: str | os.PathLike[str],
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    *,
    raw_body: bool = False,
    commit_log_path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    statistics: str | os.PathLike[str] | None = None,
    clock_margin_ms: int | None = None,
    files: FileLayer = DISK,
) -> LogDataset:
    """The messages of a store as a dataset of Arrow, of which a query reads the columns and ranges that it needs.

    DuckDB scans it as a table by the name of the variable that holds it; `LogDataset.to_polars` makes a LazyFrame. Its
    rows are the rows of `read_log`, in the order of the log, as the log is when a scan begins.

    Args:
        path, topics, keys, raw_body, commit_log_path, store, files: as for `read_log`.
        statistics: a folder outside of the store in which times of zones of the log are kept, for later scans.
        clock_margin_ms: your promise that no store timestamp is earlier than a timestamp before it by more than this.

    Raises ConfigError for a wrong argument and StoreFormatError for a directory that is no store. A scan raises the
    errors of `read_log`, of which DuckDB and polars may pass on only the text.
    """
    check_flag("raw_body", raw_body)
    if clock_margin_ms is not None:
        check_whole("clock_margin_ms", clock_margin_ms, 0)
    files = files_of(path, files)
    directory = StoreDirectory(path, commit_log_path=commit_log_path, files=files)
    if statistics is not None:
        check_path("statistics", statistics)
        statistics = os.path.abspath(os.path.expanduser(statistics))
        directory.check_output(statistics)
    chosen = make_selection(topics=topics, keys=keys, store=directory.name if store is None else store)
    warn_of_unknown_topics(chosen.topics, directory)
    source = _Source(
        path=directory.path, topics=chosen.topics, keys=chosen.keys, raw_body=raw_body,
        commit_log_path=commit_log_path, store=chosen.store, statistics=statistics, clock_margin_ms=clock_margin_ms,
        files=files,
    )  # fmt: skip
    return LogDataset(source)


#: What a LogDataset has no part in; also the name of the file that Arrow's C++ looks for in one, and does not find.
_REFUSAL = "a LogDataset has no such operation; use to_table(columns=..., filter=...), DuckDB or polars"


class LogDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """Messages of a store; made by `log_dataset`.

    What pyarrow's datasets have, but for what needs files of a format that Arrow reads (`get_fragments`, `join`,
    `filter`, `sort_by`, `replace_schema`). Code of C++ that takes a dataset, as a union of Arrow's or a plan of acero,
    knows no method of Python's: it gets a dataset of one file that is not there, whose name is the error.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        form, disk = ds.IpcFileFormat(), LocalFileSystem()
        super().__init__([form.make_fragment(_REFUSAL, disk)], SCHEMA, form, disk)

    def __reduce__(self) -> tuple[type[LogDataset], tuple[_Source]]:
        return LogDataset, (self._source,)

    def __repr__(self) -> str:
        source = self._source
        chosen = {"topics": source.topics, "keys": source.keys}
        given = "".join(f", {name}={sorted(values)}" for name, values in chosen.items() if values is not None)
        return f"LogDataset({source.path!r}{given}, columns={SCHEMA.names})"

    @property
    def schema(self) -> pa.Schema:
        """The columns: `reput.kernels.records.record_batch.SCHEMA`."""
        return SCHEMA

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> BatchScanner | ds.Scanner:
        """Scanner of some columns, with the rows that pass a filter. Other options of Arrow's scanners are ignored.

        `pyarrow.dataset.write_dataset` gets a scanner of Arrow's own: it hands it to C++, and reads it to its end.
        """
        scanner = BatchScanner(SCHEMA, self._source.batches, columns, filter)
        if options.keys() == {"use_threads"}:  # so it alone asks
            return arrow_scanner(scanner.projected_schema, scanner.to_batches())
        return scanner

    def to_polars(self) -> pl.LazyFrame:
        """LazyFrame of polars (the extra `lake`) that reads the columns, ranges and rows that a query needs."""
        require("polars", "to_polars")
        from reput.log.datasets.polars_source import lazy_frame

        return lazy_frame(self._source.batches)

    @property
    def partition_expression(self) -> pc.Expression:
        """Guarantee for all rows: none."""
        return pc.scalar(True)

    def _unsupported(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what pyarrow does with files; without this, it would end the process."""
        raise ConfigError(_REFUSAL)

    get_fragments = _get_fragments = filter = join = join_asof = sort_by = replace_schema = _unsupported
