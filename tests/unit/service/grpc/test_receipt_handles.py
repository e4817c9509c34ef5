"""Handles of messages, and renewal of their invisible time."""

from __future__ import annotations

import pytest

from reput.formats.metadata import SubscriptionGroupConfig
from reput.remoting.grpc.grpc_codes import Code
from reput.service.grpc.receipt_handles import (
    HandleKey,
    ReceiptHandle,
    ReceiptHandles,
    RenewedHandle,
    check_not_expired,
    decode_handle,
)
from reput.service.grpc.statuses import RefusedCallError

TEXT = "5 1000 60000 3 0 broker-a 2 17 4096"
MINUTE = 60_000
KEY = HandleKey("g", "id", "broker-a", "2", "17")


def test_a_handle_has_nine_words() -> None:
    assert decode_handle(TEXT) == ReceiptHandle(TEXT, 1000, 60_000, "0", "broker-a", "2", "17", "4096")
    assert decode_handle(TEXT.rpartition(" ")[0]).commit_log_offset is None


@pytest.mark.parametrize(
    "text", ["", "1 2 3", "a 1000 60000 3 0 broker-a 2 17", "5 1000 60000 3 0 broker-a x 17", "5 1 2 3 0 b 2 -1"]
)
def test_another_text_is_no_handle(text: str) -> None:
    with pytest.raises(RefusedCallError) as raised:
        decode_handle(text)
    assert raised.value.code == Code.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize(("kind", "topic"), [("0", "t"), ("1", "%RETRY%g_t"), ("2", "%RETRY%g+t")])
def test_the_topic_that_holds_the_message(kind: str, topic: str) -> None:
    assert decode_handle(f"5 1000 60000 3 {kind} broker-a 2 17").real_topic("t", "g") == topic


def test_a_changed_handle_begins_with_the_message_unless_it_is_in_order() -> None:
    handle = decode_handle(TEXT)
    assert handle.changed("7", "8", "9", is_in_order=False) == "17 7 8 9 0 broker-a 2 17 4096"
    assert handle.changed("7", "8", "999", is_in_order=True) == "5 7 8 999 0 broker-a 2 17 4096"


def test_a_handle_ends_with_its_invisible_time() -> None:
    handle = decode_handle(TEXT)
    check_not_expired(handle, 60_999)
    with pytest.raises(RefusedCallError, match="receipt handle is expired"):
        check_not_expired(handle, 61_000)


def handle_at(pop_ms: int, invisible_ms: int) -> ReceiptHandle:
    return decode_handle(f"17 {pop_ms} {invisible_ms} 3 0 broker-a 2 17 4096")


def kept(pop_ms: int = 0, reconsume_times: int = 0) -> tuple[ReceiptHandles[str], RenewedHandle]:
    handles: ReceiptHandles[str] = ReceiptHandles()
    renewed = RenewedHandle("g", "t", handle_at(pop_ms, MINUTE), reconsume_times, pop_ms, "")
    handles.add("client", KEY, renewed)
    return handles, renewed


def test_a_message_is_renewed_ten_seconds_before_its_end_and_for_longer_each_time() -> None:
    handles, renewed = kept()
    steps = []
    assert handles.keepers == ["client"]
    while True:
        end_ms = renewed.handle.pop_time + renewed.handle.invisible_time
        if end_ms - 10_000 < 3 * 60 * MINUTE:
            assert not list(handles.due("client", end_ms - 10_001, {}))
        ((key, renewal),) = handles.due("client", end_ms - 10_000, {})
        assert (key, renewal.renewed) == (KEY, renewed)
        if renewal.is_last:
            break
        steps.append(renewal.invisible_time // MINUTE)
        handles.renewed("client", key, renewed, handle_at(end_ms - 10_000, renewal.invisible_time))
    assert steps == [1, 3, 5, 10, 30, 60, 60, 60]
    assert (renewal.invisible_time, len(handles)) == (10_000, 0)


def test_the_last_wait_is_that_of_the_group() -> None:
    config = SubscriptionGroupConfig("g", group_retry_policy={"type": "EXPONENTIAL"})
    handles, renewed = kept(reconsume_times=2)
    renewed.handle = handle_at(3 * 60 * MINUTE, MINUTE)
    ((_, renewal),) = handles.due("client", 3 * 60 * MINUTE, {"g": config})
    assert (renewal.is_last, renewal.invisible_time) == (True, 20_000)


def test_an_ack_has_the_newest_handle_and_ends_the_renewal() -> None:
    handles, renewed = kept()
    newest = handle_at(50_000, MINUTE)
    handles.renewed("client", KEY, renewed, newest)
    assert handles.take("other", "g", "id", handle_at(0, MINUTE)) == handle_at(0, MINUTE)
    assert handles.take("client", "g", "id", handle_at(0, MINUTE)) == newest
    assert (len(handles), handles._of) == (0, {})
    handles.renewed("client", KEY, renewed, handle_at(99_000, MINUTE))
    assert handles.take("client", "g", "id", handle_at(0, MINUTE)) == handle_at(0, MINUTE)


def test_three_failures_or_an_end_forget_a_message() -> None:
    handles, renewed = kept()
    for count in (1, 1, 0):
        handles.renewed("client", KEY, renewed, None)
        assert len(handles) == count
    handles, _ = kept()
    assert not list(handles.due("client", MINUTE, {}))
    assert len(handles) == 0


def test_a_client_that_is_gone_has_no_messages() -> None:
    handles, renewed = kept()
    assert handles.clear("client") == [renewed]
    assert (handles.clear("client"), len(handles)) == ([], 0)


def test_what_a_client_holds_is_bounded() -> None:
    handles, renewed = kept()
    for number in range(40_000):
        handles.add("client", KEY._replace(queue_offset=str(number)), renewed)
    assert len(handles) == 1 << 15
