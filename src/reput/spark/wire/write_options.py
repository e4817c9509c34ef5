"""Options of the sink of brokers, and the columns that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from reput.errors import MessageIllegalError
from reput.kernels.records.message_columns import check_schema
from reput.spark.options import OptionTable
from reput.spark.wire.options import WireAccess, text_of, with_access

#: A column of the sink alone: rows with the same text go to the same queue, in their order.
SHARDING_KEY_COLUMN = "sharding_key"
_GROUP = "reput-spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireWriteOptions:
    """Options of `df.write` and `df.writeStream`.

    Attributes:
        access: See `WireAccess`.
        topic: `topic`, where all rows go; None: the column `topic` says it.
        group: `group`, the producer group that brokers see.
    """

    access: WireAccess
    topic: str | None = None
    group: str = _GROUP


def write_options(options: Mapping[str, str]) -> WireWriteOptions:
    """Parse the options of a sink. Raises ConfigError for an unknown or wrong option."""
    access, values = with_access(options, _WRITE)
    values.pop("checkpoint", None)
    return WireWriteOptions(access=access, **values)


def check_sink_schema(schema: pa.Schema, options: WireWriteOptions) -> None:
    """Raises MessageIllegalError for columns that the sink does not take; see `message_columns.check_schema`."""
    names = schema.names
    if SHARDING_KEY_COLUMN in names:
        kind = schema.field(SHARDING_KEY_COLUMN).type
        if not pa.types.is_string(kind):
            raise MessageIllegalError(f"column '{SHARDING_KEY_COLUMN}' is {kind}, and must be string; cast it before")
        schema = schema.remove(names.index(SHARDING_KEY_COLUMN))
    if options.topic is not None and "topic" not in names:
        schema = schema.append(pa.field("topic", pa.string()))
    check_schema(schema)


_WRITE: OptionTable = {
    "topic": ("topic", text_of),
    "group": ("group", text_of),
    "checkpointLocation": ("checkpoint", str),  # Spark's own, of a stream
}
