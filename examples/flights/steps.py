"""What the flights job does with a store: consume the events back, query by key.

Findings are sentences that say where something differs from the events; none means that all agrees.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import reput
from examples.flights.compare import compare_queue, own_properties
from examples.flights.events import FLIGHT_TOPICS, MESSAGE_SCHEMA, QUEUE_COUNT, TOPICS
from reput.progress import Progress

STORE_OPTIONS: dict[str, Any] = {
    # One get may bring thousands of messages instead of RocketMQ's 32.
    "max_transfer_count_on_message_in_memory": 65_536,
    "max_transfer_bytes_on_message_in_memory": 32 << 20,
    "max_transfer_count_on_message_in_disk": 65_536,
    "max_transfer_bytes_on_message_in_disk": 32 << 20,
}
GET_MESSAGES = 65_536
QUERY_MESSAGES = 65_536
TAIL_COUNT = 300


def consume(store: reput.MessageStore, events: pa.Table, progress: Progress) -> Iterator[str]:
    """Consume every queue from its beginning, and compare columns, bodies and order with the events."""
    done = 0
    for topic in TOPICS:
        of_topic = events.filter(pc.equal(events["topic"], topic))
        for queue_id in range(QUEUE_COUNT):
            expected = of_topic.filter(pc.equal(of_topic["queue_id"], queue_id))
            found = _consume_queue(store, topic, queue_id)
            yield from compare_queue(topic, queue_id, expected, own_properties(found))
            done += len(expected)
            progress(done, len(events), f"consume {topic}")


def _consume_queue(store: reput.MessageStore, topic: str, queue_id: int) -> pa.Table:
    schema = MESSAGE_SCHEMA.append(pa.field("queue_offset", pa.int64()))
    batches = []
    offset = 0
    while True:
        result = store.get_message(topic, queue_id, offset=offset, max_msg_nums=GET_MESSAGES)
        if result.status is not reput.GetMessageStatus.FOUND:
            break
        batches.append(result.to_arrow().select(schema.names).cast(schema))
        offset = result.next_begin_offset
    return pa.Table.from_batches(batches, schema)


def query(store: reput.MessageStore, events: pa.Table, progress: Progress) -> tuple[int, list[str]]:
    """Query the events of some aircraft by tail number, in every flight topic: messages found, and findings."""
    known = pc.equal(pc.list_value_length(events["keys"]), 2)
    of_aircraft = events.filter(known)
    of_aircraft = of_aircraft.append_column("tail", pc.list_element(of_aircraft["keys"], 0))
    tails = pc.unique(of_aircraft["tail"]).sort()
    picked = tails.take(pa.array(np.unique(np.linspace(0, len(tails) - 1, TAIL_COUNT).astype(np.int64))))
    of_aircraft = of_aircraft.filter(pc.is_in(of_aircraft["tail"], picked))
    count, findings = 0, []
    for number, topic in enumerate(FLIGHT_TOPICS, start=1):
        found = store.query_messages(topic, picked.to_pylist(), max_num=QUERY_MESSAGES)
        rows = of_aircraft.filter(pc.equal(of_aircraft["topic"], topic))
        expected: dict[str, list[bytes]] = {tail: [] for tail in picked.to_pylist()}
        for tail, body in zip(rows["tail"].to_pylist(), rows["body"].to_pylist(), strict=True):
            expected[tail].append(body)
        for tail, bodies in expected.items():
            # The events of an aircraft share a queue, so that queue offsets give back their order.
            messages = sorted(found[tail], key=lambda message: message.queue_offset)
            count += len(messages)
            if [message.body for message in messages] != bodies:
                found_bodies = [message.body for message in messages]
                findings.append(f"topic {topic}, key {tail}: {_first_other_message(bodies, found_bodies)}")
        progress(number, len(FLIGHT_TOPICS), f"query {topic}")
    return count, findings


def _first_other_message(put: list[bytes], found: list[bytes]) -> str:
    """What differs, for bodies that are not equal."""
    if len(found) != len(put):
        return f"{len(found)} messages found, {len(put)} put"
    row = next(row for row in range(len(put)) if put[row] != found[row])
    return f"message {row}: body {found[row]!r} found, {put[row]!r} put"
