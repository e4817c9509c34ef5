"""Selection: the wanted rows and columns of a log, and the filter of scanned rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.config.arguments import check_flag, check_text, check_time, texts_of
from reput.errors import ConfigError, CorruptRecordError
from reput.formats.record_layout import SysFlag
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.placeholders import are_placeholders
from reput.kernels.records.record_batch import PROPERTY_COLUMNS, SCHEMA, record_batch, schema_of
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import Damage
from reput.log.scan import OnDamage, with_rows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = tuple(SCHEMA.names)
#: At damage: an error; a row of status DAMAGED; only a warning.
MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
#: Start of the status of a row that reports damage.
DAMAGED = "DAMAGED"
_BODY_COLUMNS = frozenset({"body", "sys_flag", "status"})


def on_damage_of(mode: str) -> OnDamage:
    """The scan's behaviour at damage for one of `MODES`."""
    return OnDamage.RAISE if mode == "FAILFAST" else OnDamage.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Wanted rows and columns of a log; made by `make_selection`, which checks them. Small and picklable.

    Attributes:
        columns: names of `SCHEMA`, in the wanted order.
        topics, keys: rows of one of these topics; rows with one of these as unique key or among their keys; None: all.
        begin_ms, end_ms: bounds of the store timestamp, both included.
        raw_body: whether bodies, and records of inner batches, are given as stored.
        store: the value of the column `store`.
        mode: what happens at damage, as in Spark's readers; one of `MODES`.
    """

    columns: tuple[str, ...]
    topics: frozenset[str] | None
    keys: frozenset[str] | None
    begin_ms: int | None
    end_ms: int | None
    raw_body: bool
    store: str
    mode: str = "FAILFAST"

    @property
    def on_damage(self) -> OnDamage:
        """The scan's behaviour at damage."""
        return on_damage_of(self.mode)

    @property
    def shows_damage(self) -> bool:
        """Whether damage is reported as a row; not if topics, times or keys are bounded, since damage has none."""
        bounds = (self.topics, self.keys, self.begin_ms, self.end_ms)
        return self.mode == "PERMISSIVE" and all(bound is None for bound in bounds)

    def named_modes(self, error: CorruptRecordError) -> CorruptRecordError:
        """The error that ends a read under FAILFAST, with a hint at the modes that read on."""
        if self.on_damage is OnDamage.SKIP:
            return error
        hint = (
            "or read on after it: by `reput query --sql --damaged skip` or `reput export --damaged skip`, with the "
            "mode PERMISSIVE, which reports it in a row, or DROPMALFORMED in read_log and in Spark; for all else "
            "`reput repair --salvage` makes a store of all whole records"
        )
        return CorruptRecordError(error.path, error.offset, f"{error.reason}; {hint}")

    def damage_rows(self, damages: Sequence[Damage]) -> pa.RecordBatch:
        """Rows that report damage; null except for store, commit_log_offset, store_size and status."""
        values: dict[str, list[str] | list[int]] = {
            "store": [self.store] * len(damages),
            "commit_log_offset": [damage.begin for damage in damages],
            "store_size": [damage.end - damage.begin for damage in damages],
            "status": [f"{DAMAGED}: {damage.reason}" for damage in damages],
        }
        arrays = [
            pa.array(values[field.name], field.type) if field.name in values else pa.nulls(len(damages), field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return schema_of(self.columns)

    @property
    def level(self) -> ScanLevel:
        """Level of the scan that these rows need."""
        if self.keys is not None or not PROPERTY_COLUMNS.isdisjoint(self.columns):
            return ScanLevel.PROPERTIES
        return ScanLevel.HEADER if self.topics is None else ScanLevel.QUEUES

    @property
    def needs_bodies(self) -> bool:
        """Whether a wanted column depends on the decompression of bodies."""
        return not _BODY_COLUMNS.isdisjoint(self.columns)

    def select(self, columns: RecordColumns) -> RecordColumns:
        """The rows of a scan that may be wanted; inner batches stay, whatever their keys, until they are unfolded."""
        wanted = ~are_placeholders(columns)
        if self.topics is not None:
            queues = [topic.decode("utf-8", "replace") in self.topics for topic, _ in columns.queues()]
            wanted &= np.array(queues, np.bool_)[columns["queue"]]
        times = columns["store_timestamp"]
        if self.begin_ms is not None:
            wanted &= times >= self.begin_ms
        if self.end_ms is not None:
            wanted &= times <= self.end_ms
        columns = _rows_where(columns, wanted)
        if self.keys is None:
            return columns
        inner_batch = (columns["sys_flag"] & SysFlag.INNER_BATCH) != 0
        return _rows_where(columns, self._has_key(columns) | (inner_batch & (not self.raw_body)))

    def select_by_keys(self, columns: RecordColumns) -> RecordColumns:
        """The rows that have one of the wanted keys."""
        return columns if self.keys is None else _rows_where(columns, self._has_key(columns))

    def _has_key(self, columns: RecordColumns) -> npt.NDArray[np.bool_]:
        assert self.keys is not None, "asked for only if keys are given"
        keys = pa.array(self.keys, pa.string())
        batch = record_batch(columns, ("unique_key", "keys"))
        found = np.array(pc.is_in(batch["unique_key"], keys), np.bool_)
        rows_of_keys = pc.list_parent_indices(batch["keys"]).to_numpy()
        found[rows_of_keys[np.array(pc.is_in(batch["keys"].flatten(), keys), np.bool_)]] = True
        return found


def make_selection(
    *,
    columns: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    begin: datetime | int | None = None,
    end: datetime | int | None = None,
    raw_body: bool = False,
    store: str,
    mode: str = "FAILFAST",
) -> Selection:
    """Selection by the arguments of `reput.read_log`. Raises ConfigError for a wrong argument."""
    names = _NAMES if columns is None else tuple(texts_of("columns", columns))
    if not names:
        raise ConfigError("columns: name at least one, or leave it out for all")
    for name in names:
        if name not in _NAMES:
            nearest = difflib.get_close_matches(name, _NAMES, 1, 0)
            raise ConfigError(f"columns: a log has no column {name!r}; did you mean {nearest[0]!r}?")
    if mode not in MODES:
        raise ConfigError(f"mode: {mode!r} is none of {', '.join(MODES)}")
    check_flag("raw_body", raw_body)
    check_text("store", store)
    return Selection(
        columns=names,
        topics=None if topics is None else frozenset(texts_of("topics", topics)),
        keys=None if keys is None else frozenset(texts_of("keys", keys)),
        begin_ms=None if begin is None else milliseconds("begin", begin),
        end_ms=None if end is None else _microseconds("end", end) // 1000,
        raw_body=raw_body,
        store=store,
        mode=mode,
    )


def milliseconds(option: str, time: object) -> int:
    """Milliseconds since 1970 of a given time, rounded up. Raises ConfigError for a value that is no time."""
    return -(-_microseconds(option, time) // 1000)


def _rows_where(columns: RecordColumns, wanted: npt.NDArray[np.bool_]) -> RecordColumns:
    if wanted.all():
        return columns
    return with_rows(columns, columns.wide[:, wanted], columns.narrow[:, wanted])


def _microseconds(option: str, time: Any) -> int:
    """Microseconds since 1970 UTC."""
    check_time(option, time)
    if isinstance(time, datetime):
        return (time - _EPOCH) // timedelta(microseconds=1)
    return index(time) * 1000
