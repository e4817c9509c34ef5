"""Batches that a kernel encodes are those of `formats.message_batch`, byte for byte."""

from __future__ import annotations

from itertools import groupby, pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.message import Message
from reput.formats.message_batch import encode_batch
from reput.kernels.records.batch_items import batch_bodies
from reput.kernels.records.message_table import CheckedTable

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02 "), min_size=1, max_size=5)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["orders", "returns"]),
    st.binary(min_size=1, max_size=40),
    tags=st.none() | TEXT,
    keys=st.lists(TEXT, max_size=2).map(tuple),
    unique_key=TEXT,
    properties=st.dictionaries(TEXT.map("p-{}".format), TEXT, max_size=2),
    flag=st.integers(-5, 5),
    born_timestamp=st.integers(0, 1),
)
#: A queue and a message.
Row = tuple[int, Message]
ROWS = st.lists(st.tuples(st.integers(0, 2), MESSAGES), min_size=1, max_size=12)


def table_of(rows: list[Row]) -> pa.Table:
    queue_ids, messages = zip(*rows, strict=True)
    names = ("topic", "body", "tags", "keys", "unique_key", "flag", "born_timestamp")
    columns = {name: [getattr(one, name) for one in messages] for name in names}
    properties = [list((one.properties or {}).items()) for one in messages]
    maps = pa.array(properties, pa.map_(pa.string(), pa.string()))
    return pa.table({**columns, "queue_id": queue_ids, "properties": maps})


@given(ROWS, st.integers(1, 4), st.integers(1, 200))
def test_batches_are_those_of_the_messages_one_by_one(rows: list[Row], most_rows: int, most_bytes: int) -> None:
    (batch,) = CheckedTable(
        table_of(rows), 0, max_body_size=1 << 20, max_record_size=1 << 20, store_host=bytes(8), now_ms=0
    )
    bodies = batch_bodies(batch, most_rows=most_rows, most_bytes=most_bytes)
    in_order = [rows[row] for row in bodies.rows]
    places = [(one.topic, queue_id) for queue_id, one in in_order]
    assert len(list(groupby(places))) == len(set(places))  # the rows of a queue follow each other
    cuts = bodies.cuts.tolist()
    assert cuts[0][:2] == [0, 0]
    assert cuts[-1][:2] == [len(rows), len(bodies.data)]
    for (first, begin, queue, born), (last, end, *_) in pairwise(cuts):
        messages = [one for _, one in in_order[first:last]]
        assert bytes(bodies.data[begin:end]) == encode_batch(messages)
        assert set(places[first:last]) == {batch.queue_keys[queue]}
        assert {one.born_timestamp for one in messages} == {born}
        assert len(messages) <= most_rows
        assert end - begin <= most_bytes or len(messages) == 1
        if last < len(rows):  # a batch ends only where the next row does not fit
            following = in_order[last][1]
            is_other = places[last] != places[first] or following.born_timestamp != born
            size = end - begin + len(encode_batch([following]))
            assert is_other or len(messages) == most_rows or size > most_bytes
