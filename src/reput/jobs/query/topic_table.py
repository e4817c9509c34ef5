"""Table of a topic for SQL: the columns of its messages, and a column for each field of its JSON bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from reput.errors import ConfigError
from reput.jobs.decoding import BodyDecoder, JsonDecoder, make_decoder
from reput.kernels.records.record_batch import SCHEMA

#: Column with the reason why a body could not be decoded; null if it could.
BODY_ERROR = "body_error"
#: Count of bodies, from the oldest on, that a schema is inferred from.
SAMPLE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class TopicColumns:
    """Columns of one table; picklable.

    SQL does not distinguish `Id` and `id`: a field whose name is taken, by a column of messages or by an earlier field,
    gets the prefix `body_`.

    Attributes:
        decoder: of the bodies; None if they have no fields.
        names: column names of the decoder's fields, in order.
        reason: why there are no fields; None if there are, or if none are wanted.
    """

    decoder: JsonDecoder | None = None
    names: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """All columns: the columns of `read_log`, the fields, and `body_error` if there are fields."""
        if self.decoder is None:
            return SCHEMA
        fields = [field.with_name(name) for name, field in zip(self.names, self.decoder.schema, strict=True)]
        return pa.schema([*SCHEMA, *fields, pa.field(BODY_ERROR, pa.string())])

    def log_columns(self, names: Sequence[str]) -> list[str]:
        """Columns of the log that the columns `names` are made of; at least one."""
        wanted = {name for name in names if name in SCHEMA.names}
        if len(wanted) < len(set(names)):
            wanted |= {"body", "status"}
        return [name for name in SCHEMA.names if name in wanted] or ["store"]

    def rows(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Make the columns `names` from a batch of the log with `log_columns`."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        if any(name not in arrays for name in names):
            assert self.decoder is not None, "without one all columns are of messages"
            decoded = self.decoder.decode(batch["body"], batch["status"])
            arrays |= dict(zip(self.names, decoded.values.flatten(), strict=True))
            arrays[BODY_ERROR] = decoded.reasons
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=self.schema_of(names))

    def schema_of(self, names: Sequence[str]) -> pa.Schema:
        """Schema of the columns `names`."""
        schema = self.schema
        return pa.schema([schema.field(name) for name in names])


def topic_columns(schema: pa.Schema | str | None, sample: Callable[[], Iterable[pa.Array]]) -> TopicColumns:
    """Make the columns of a topic whose bodies have this schema. None: inferred from the sample, if that is possible.

    Raises ConfigError for a given schema that cannot be used.
    """
    decoder: BodyDecoder
    try:
        decoder = make_decoder("json", schema, sample)
    except ConfigError as error:
        if schema is not None:
            raise
        return TopicColumns(reason=str(error))
    assert isinstance(decoder, JsonDecoder), "asked for by its name"
    names: list[str] = []
    taken = {name.lower() for name in (*SCHEMA.names, BODY_ERROR)}
    for field in decoder.schema.names:
        name = field
        while name.lower() in taken:
            name = f"body_{name}"
        taken.add(name.lower())
        names.append(name)
    return TopicColumns(decoder, tuple(names))
