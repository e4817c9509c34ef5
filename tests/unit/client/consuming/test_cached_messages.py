from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reput.client.consuming.cached_messages import CachedMessages
from reput.client.instance.message_client_ext import MessageClientExt, decode_messages
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.record import encode_record
from reput.remoting.queue_tables import QueueKey

HOST = encode_host("127.0.0.1:10911")


def messages(*offsets: int) -> list[MessageClientExt]:
    body = b"".join(
        encode_record(
            Message("t", b"x"), queue_id=0, queue_offset=offset, commit_log_offset=100 * offset, store_timestamp=0,
            store_host=HOST, born_timestamp=0, born_host=HOST,
        )
        for offset in offsets
    )  # fmt: skip
    return decode_messages(body, QueueKey("t", "a", 0), None)


def test_the_offset_to_commit_is_that_of_the_first_message_that_is_not_handled() -> None:
    queue = CachedMessages()
    assert (queue.commit_offset, queue.first, queue.span) == (None, None, 0)
    one, two, three = messages(5, 6, 9)
    queue.put([one, two, three], 11)
    assert (queue.commit_offset, queue.first, queue.span, len(queue)) == (5, one, 6, 3)
    queue.remove(two)
    assert queue.commit_offset == 5
    queue.remove(one)
    assert (queue.commit_offset, queue.first) == (9, three)
    queue.remove(three)
    assert (queue.commit_offset, queue.first, queue.span, queue.bytes) == (11, None, 0, 0)


def test_what_the_broker_left_out_counts_once_all_before_it_is_handled() -> None:
    queue = CachedMessages()
    queue.put([], 40)
    assert queue.commit_offset == 40
    (one,) = messages(40)
    queue.put([one], 41)
    queue.put([], 90)
    assert queue.commit_offset == 40
    queue.remove(one)
    assert queue.commit_offset == 90


@given(st.data())
def test_nothing_before_the_offset_is_unhandled_in_whatever_order_messages_end(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 99), min_size=1, max_size=20)))
    waiting = messages(*offsets)
    queue = CachedMessages()
    cut = data.draw(st.integers(0, len(waiting)))
    queue.put(waiting[:cut], waiting[cut].queue_offset if cut < len(waiting) else 200)
    queue.put(waiting[cut:], 200)
    for message in data.draw(st.permutations(waiting)):
        queue.remove(message)
        queue.remove(message)  # again: nothing
        left = [one.queue_offset for one in queue]
        assert queue.commit_offset == min(left, default=200)
        assert queue.bytes == sum(one.store_size for one in queue)
