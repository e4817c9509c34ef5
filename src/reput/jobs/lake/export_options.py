"""Options of an export, and the check of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import pyarrow as pa

from reput.config.arguments import check_number, check_text, check_texts
from reput.errors import ConfigError
from reput.extras import require
from reput.jobs.arguments import check_arguments
from reput.jobs.body_schema import body_schema_text
from reput.jobs.decoding import BodySchema
from reput.jobs.job_folder import Option
from reput.jobs.lake.body_decoders import make_decoders
from reput.jobs.lake.table_formats import TABLE_PACKAGES, Upkeep, check_names
from reput.jobs.protobuf_bodies import ProtobufSchema
from reput.jobs.text_rows import TEXT_KINDS, TextKind

Format = Literal["parquet", "delta", "iceberg", "csv", "jsonl"]

#: Namespace of Iceberg tables.
NAMESPACE = "reput"
SPLIT_BYTES = 64 << 20
#: Log bytes of a commit: the most that a kill costs, and that is staged on the disk before readers see it.
COMMIT_BYTES = 4 << 30
#: A smaller file takes longer to open than to read (Spark's default of spark.sql.files.openCostInBytes).
TARGET_FILE_BYTES = 4 << 20
#: Snapshots are kept for so long if tables are compacted (Iceberg's default of history.expire.max-snapshot-age-ms).
RETAIN_HOURS = 120.0
#: Version of the files' layout: a later reput with the same layout continues an export. That of raw bodies is older.
_LAYOUT, _RAW_LAYOUT = "export 2", "export 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export. The first seven must be the same in every run to one folder.

    Attributes:
        topics: of the messages; None: all topics, future ones included.
        columns: of `read_log`; None: all. The lineage columns always come first; the topic is a folder's name.
        decode: raw, utf8, json, avro or protobuf; see `reput.jobs.decoding`.
        schema: of the bodies of all topics, or by topic. Of JSON also inferred, when a topic first appears, and kept.
        format: parquet; delta or iceberg, which also make the folders of messages and rejects tables; csv or jsonl
            (JSON lines), with the columns as `reput.jobs.text_rows` says.
        catalog: of Iceberg tables, by its name in pyiceberg's configuration; None: one that is embedded in the output.
        namespace: of Iceberg tables in the catalog.
        commit_log_path: as for `read_log`.
        split_bytes: log bytes of a task.
        commit_bytes: log bytes of a commit, rounded up to whole files of the log.
        target_file_bytes: smaller files of a commit are merged.
        fail_on_data_loss: whether it is an error that retention has deleted records that were not exported yet, or
            that the log is another one now, and whether a table is left out that lacks batches which are not kept any
            more; False: the export continues with the log as it is, and the table with what is kept.
        damaged: treatment of damage in the log: "refuse" ends the run before the batch with the damage; "skip" exports
            all whole records before and after it, and reports the ranges that were passed over.
        new_fields: treatment of a JSON body with a value in a field that the inferred schema of its topic lacks:
            "reject", or "add": schema and table of the topic get the field, as a column that is null in earlier rows.
        compact: of tables: number of files of a topic's day smaller than `target_file_bytes` from which on they are put
            together; 0: never.
        retain_hours: tables that are compacted: age of a snapshot from which on it goes, with the files that only it
            names.
        strict: whether a body that cannot be decoded ends the run before the batch with the body; False: its row is
            rejected.
    """

    topics: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    decode: str = "raw"
    schema: BodySchema | Mapping[str, BodySchema] | None = None
    format: Format = "parquet"
    catalog: str | None = None
    namespace: str = NAMESPACE
    commit_log_path: str | os.PathLike[str] | None = None
    split_bytes: int = SPLIT_BYTES
    commit_bytes: int = COMMIT_BYTES
    target_file_bytes: int = TARGET_FILE_BYTES
    fail_on_data_loss: bool = True
    damaged: Literal["refuse", "skip"] = "refuse"
    new_fields: Literal["reject", "add"] = "reject"
    compact: int = 0
    retain_hours: float = RETAIN_HOURS
    strict: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for values, or values together, that no export can have."""
        check_arguments(**{one.name: getattr(self, one.name) for one in fields(self)})
        self._check_types()
        if self.format not in get_args(Format):
            raise ConfigError(f"format: {self.format!r} is none of {', '.join(get_args(Format))}")
        if self.has_tables:
            require(TABLE_PACKAGES[self.format], f"format {self.format}")
        if self.format != "iceberg" and (self.catalog is not None or self.namespace != NAMESPACE):
            raise ConfigError(f"catalog, namespace: of Iceberg tables, and the format is {self.format}")
        if self.decode != "raw" and self.columns is not None and "body" not in self.columns:
            raise ConfigError(f"decode: {self.decode} decodes bodies, and the columns leave them out")
        if self.new_fields not in ("reject", "add"):
            raise ConfigError(f"new_fields: {self.new_fields!r} is neither reject nor add")
        if self.new_fields == "add" and not (self.has_tables and self.decode == "json"):
            raise ConfigError("new_fields: tables of JSON bodies get them: format delta or iceberg, decode json")
        if self.compact and not self.has_tables:
            raise ConfigError(f"compact: files of format {self.format} are no table; give format delta or iceberg")
        if self.compact == 1:
            raise ConfigError("compact: one file cannot be put together; give 2 or more, or 0 for never")
        if self.compact < 0 or self.retain_hours < 0:
            raise ConfigError(f"compact, retain_hours: {self.compact} and {self.retain_hours}, expected 0 or more")
        decoders = make_decoders(self.decode, self.schema)
        if self.has_tables:
            for decoder in (decoders.common, *decoders.by_topic.values()):
                if decoder is not None and pa.types.is_struct(decoder.type):
                    self._check_fields(decoder.type)

    def _check_types(self) -> None:
        """Raise ConfigError for values of another type that only an export has."""
        for name in ("topics", "columns"):
            if (value := getattr(self, name)) is not None:
                check_texts(name, value)
        for name in ("format", "new_fields"):
            check_text(name, getattr(self, name))
        check_number("retain_hours", self.retain_hours)

    def _check_fields(self, kind: pa.StructType) -> None:
        """Raise ConfigError for fields of bodies that the tables cannot have."""
        check_names(kind)
        if self.format == "iceberg":
            from reput.jobs.lake.iceberg_metadata import iceberg_schema

            iceberg_schema(pa.schema(list(kind)))

    @property
    def has_tables(self) -> bool:
        """Whether the folders of messages and rejects are tables."""
        return self.format in TABLE_PACKAGES

    @property
    def upkeep(self) -> Upkeep:
        """Upkeep of the tables."""
        return Upkeep(self.compact, self.target_file_bytes, self.retain_hours)

    @property
    def text(self) -> TextKind | None:
        """Kind of text that the files are; None: they are Parquet."""
        return next((kind for kind in TEXT_KINDS if kind == self.format), None)

    @property
    def layout(self) -> str:
        """Layout of the folder of the tables: a later reput with the same layout continues."""
        return _RAW_LAYOUT if self.decode == "raw" else _LAYOUT

    def kept(self, store_path: str) -> dict[str, Option]:
        """Options that must be the same in every run, as the job's folder keeps them."""
        return {
            "store": store_path,
            "topics": None if self.topics is None else sorted(set(self.topics)),
            "columns": None if self.columns is None else list(self.columns),
            "decode": self.decode,
            "schema": _schema_option(self.schema),
            "format": self.format,
            "catalog": self.catalog,
            "namespace": self.namespace if self.format == "iceberg" else None,
        }


def _schema_option(schema: BodySchema | Mapping[str, BodySchema] | None) -> Option:
    """Value of the option as the job's folder keeps it."""
    if isinstance(schema, Mapping):
        return [f"{topic}={_schema_option(one)}" for topic, one in sorted(schema.items())]
    if isinstance(schema, ProtobufSchema):
        return schema.text
    return body_schema_text(schema) if isinstance(schema, pa.Schema) else schema
