"""Results of puts, as a terminal shows them."""

from __future__ import annotations

from reput.formats.hosts import encode_host
from reput.store.results import PutBatchResult, PutMessageResult, PutMessageStatus


def test_a_result_shows_its_host_as_address_and_port() -> None:
    one = PutMessageResult(PutMessageStatus.PUT_OK, 1, 2, 3, 4, encode_host("127.0.0.1:10911"))
    assert repr(one) == (
        "PutMessageResult(status=<PutMessageStatus.PUT_OK: 'PUT_OK'>, commit_log_offset=1, queue_offset=2, "
        "store_timestamp=3, size=4, store_host='127.0.0.1:10911')"
    )
    many = PutBatchResult(PutMessageStatus.PUT_OK, 2, (1, 9), 2, 3, 4, encode_host("[2001:db8::1]:10911"))
    assert repr(many) == (
        "PutBatchResult(status=<PutMessageStatus.PUT_OK: 'PUT_OK'>, msg_num=2, commit_log_offsets=(1, 9), "
        "queue_offset=2, store_timestamp=3, end_offset=4, store_host='[2001:db8::1]:10911')"
    )
