"""Pulled records as an Arrow table, decoded by the kernels that read a log (`kernels/records/record_scan.py`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.client.instance.namespaces import NO_NAMESPACE, Namespace
from reput.config.arguments import refusal
from reput.events import Event
from reput.kernels.records.columns import RecordColumns, RecordStatus
from reput.kernels.records.record_batch import SCHEMA
from reput.kernels.records.record_positions import record_positions
from reput.kernels.records.record_scan import read_records_at
from reput.log.reads.batches import record_batches
from reput.log.scan import with_rows
from reput.log.selection import Selection, make_selection
from reput.remoting.subscription_data import SubscriptionData

logger = logging.getLogger("reput.client")


class WantedColumns(NamedTuple):
    """The columns of a table, and those that are decoded for it."""

    names: list[str]
    selection: Selection


def wanted_columns(columns: Sequence[str] | None) -> WantedColumns:
    """Columns of `reput.read_log`, all but the store's for None; raises ConfigError for an unknown one."""
    if columns is not None and (isinstance(columns, str | bytes) or not isinstance(columns, Iterable)):
        raise refusal("columns", columns, "names of columns, as ['tags', 'body']")
    names = [name for name in SCHEMA.names if name != "store"] if columns is None else list(columns)
    return WantedColumns(names, make_selection(columns=dict.fromkeys([*names, "tags"]), store=""))


def table_of(
    parts: Iterable[tuple[SubscriptionData, bytes]], columns: WantedColumns, namespace: Namespace = NO_NAMESPACE
) -> pa.Table:
    """The wanted messages of pulls' bodies, as rows with the columns of `reput.read_log`.

    What is no whole record, or has a body with another CRC, is left out.
    """
    names, selection = columns
    bodies: dict[str, tuple[SubscriptionData, list[bytes]]] = {}
    for subscription, body in parts:
        bodies.setdefault(subscription.topic, (subscription, []))[1].append(body)
    batches = [
        _wanted(batch, subscription)
        for subscription, pulled in bodies.values()
        for rows in pulled_rows(b"".join(pulled), _leave_out)
        for batch in record_batches(rows, selection)
    ]
    return _bare_topics(pa.Table.from_batches(batches, selection.schema).select(names), namespace)


def _bare_topics(table: pa.Table, namespace: Namespace) -> pa.Table:
    """The table with topics as the program knows them."""
    if not namespace.name or "topic" not in table.column_names:
        return table
    bare = pc.replace_substring_regex(table["topic"], f"^{re.escape(namespace.wrap(''))}", "")
    return table.set_column(table.column_names.index("topic"), "topic", bare)


def pulled_rows(body: bytes, left_out: Callable[[str, int, int], None]) -> Iterator[RecordColumns]:
    """The columns of records that follow each other, by one call of the kernel if all of them are whole.

    Args:
        body: Of one pull or of several.
        left_out: Called for what is damaged, with what it is, the commit log offset of the first of these messages, and
            their number; they are left out when it returns.
    """
    buffer = np.frombuffer(body, np.uint8)
    positions, offsets = record_positions(buffer)
    begin = 0
    while begin < positions.size:
        rows = read_records_at(buffer, positions[begin:], offsets[begin:], check_crc=True)
        whole = (rows["status"] & RecordStatus.BAD_BODY_CRC) == 0
        if not whole.all():
            first = int(offsets[begin + int(np.argmin(whole))])
            left_out("the body has another CRC", first, int(whole.size - np.count_nonzero(whole)))
        yield rows if whole.all() else with_rows(rows, rows.wide[:, whole], rows.narrow[:, whole])
        begin += rows.rows
        if begin < positions.size:
            left_out("it is no whole record", int(offsets[begin]), 1)
            begin += 1


def _leave_out(reason: str, commit_log_offset: int, messages: int) -> None:
    logger.error(Event("messages were left out", reason=reason, commit_log_offset=commit_log_offset, messages=messages))


def _wanted(batch: pa.RecordBatch, subscription: SubscriptionData) -> pa.RecordBatch:
    """The rows with one of the wanted tags: brokers filter by their hashes alone."""
    if not subscription.tags:
        return batch
    return batch.filter(pc.is_in(batch["tags"], pa.array(sorted(subscription.tags))))
