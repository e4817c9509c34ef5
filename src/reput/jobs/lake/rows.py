"""Rows of an export: columns and schemas of its files, and what messages and rejects come of rows of the log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from reput.jobs.decoding import RawDecoder
from reput.jobs.lake.body_decoders import BodyDecoders, make_decoders
from reput.jobs.lake.export_options import ExportOptions
from reput.jobs.lake.field_ids import fresh_ids, with_ids
from reput.jobs.lake.files import Kind, table_name
from reput.jobs.lake.rejects import rejects_schema
from reput.jobs.lake.table_formats import table_schema
from reput.kernels.records.record_batch import SCHEMA
from reput.log.selection import Selection, make_selection

#: Columns that every file has: the origin of a row.
LINEAGE = ("store", "commit_log_offset", "queue_id", "queue_offset")


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Columns and decoders of the files. Picklable; the same for all tasks of a commit.

    Attributes:
        selection: the columns that are read: columns of the files, and columns for the partition and the decoder.
        columns: of the files, in order; `body` is decoded.
        decoders: of the bodies.
        field_ids: ids of the fields of tables, by folder, as far as the tables are known; None: files have no ids.
    """

    selection: Selection
    columns: tuple[str, ...]
    decoders: BodyDecoders
    field_ids: Mapping[str, Mapping[str, int]] | None = None

    def table(self, kind: Kind, topic: str) -> str:
        """Folder of the table of a kind and a topic: decoded bodies of each topic have fields of their own."""
        return os.path.join(kind, table_name(topic)) if kind == "messages" and self.decoders.has_tables else kind

    def file_schema(self, kind: Kind, topic: str) -> pa.Schema:
        """Schema of the files of a kind and a topic, with ids of fields if they have ids."""
        schema = self.schema(kind, topic)
        if self.field_ids is None:
            return schema
        return with_ids(schema, self.field_ids.get(self.table(kind, topic)) or fresh_ids(table_schema(schema)))

    def schema(self, kind: Kind, topic: str) -> pa.Schema:
        """Schema of the rows of a kind and a topic."""
        if kind == "rejects":
            return rejects_schema(self.columns)
        decoder = self.decoders.of(topic)
        assert decoder is not None, "no row of a topic is written before its schema is known"
        fields = map(SCHEMA.field, self.columns)
        return pa.schema([field.with_type(decoder.type) if field.name == "body" else field for field in fields])

    def decode(self, topic: str, batch: pa.RecordBatch) -> Iterator[tuple[Kind, pa.RecordBatch, pa.RecordBatch]]:
        """Decode the bodies of a topic, or of all topics if they have one decoder.

        Returns the messages, and the rejects if there are any: of each kind the rows of the batch, and the same rows as
        the files have them.
        """
        decoder = self.decoders.of(topic)
        assert decoder is not None, "no body of a topic is decoded before its schema is known"
        if isinstance(decoder, RawDecoder):
            yield "messages", batch, batch.select(list(self.columns))
            return
        values, reasons = decoder.decode(batch["body"], batch["status"])
        decoded = pa.RecordBatch.from_arrays(
            [values if name == "body" else batch[name] for name in self.columns], schema=self.schema("messages", topic)
        )
        if reasons.null_count == len(reasons):
            yield "messages", batch, decoded
            return
        good = reasons.is_null()
        yield "messages", batch.filter(good), decoded.filter(good)
        bad = pc.invert(good)
        rejected = batch.filter(bad)
        schema = self.schema("rejects", topic)
        arrays = [reasons.filter(bad) if name == "reason" else rejected[name] for name in schema.names]
        yield "rejects", rejected, pa.RecordBatch.from_arrays(arrays, schema=schema)


def make_rows(store: str, options: ExportOptions) -> LakeRows:
    """Make the rows that the options ask for, with the decoders that are known without a look at bodies.

    Args:
        store: the value of the column `store`.

    Raises ConfigError for an unknown column, and as `make_decoders`.
    """
    mode = "DROPMALFORMED" if options.damaged == "skip" else "FAILFAST"
    selection = make_selection(topics=options.topics, store=store, mode=mode)
    columns = options.columns if options.columns is not None else selection.columns
    make_selection(columns=columns, store="")  # checks the names
    shown = tuple(dict.fromkeys([*LINEAGE, *(name for name in columns if name != "topic")]))
    needed = ["topic", "store_timestamp", *(["body", "status"] if options.decode != "raw" else [])]
    selection = replace(selection, columns=tuple(dict.fromkeys([*shown, *needed])))
    decoders = make_decoders(options.decode, options.schema)
    return LakeRows(selection, shown, decoders, {} if options.format == "iceberg" else None)
