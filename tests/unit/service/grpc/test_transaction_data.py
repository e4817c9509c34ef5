"""Offsets of half messages: the newest one that is not too old, once."""

from __future__ import annotations

from reput.service.grpc.transaction_data import HalfMessage, TransactionData


def test_the_newest_half_message_is_taken_once() -> None:
    data = TransactionData()
    data.note("orders", "t", 1, 100, 0)
    data.note("orders", "t", 2, 200, 10)
    data.note("refunds", "t", 3, 300, 10)
    assert data.take("orders", "t", 20) == HalfMessage(2, 200, 30_010)
    assert data.take("orders", "t", 20) is None
    assert data.take("refunds", "t", 20) == HalfMessage(3, 300, 30_010)


def test_offsets_are_forgotten_after_their_time() -> None:
    data = TransactionData()
    data.note("orders", "old", 1, 100, 0)
    data.note("orders", "t", 2, 200, 29_999)
    assert data.take("orders", "old", 30_000) is None
    data.note("orders", "other", 3, 300, 60_000)
    assert set(data._noted) == {("orders", "other")}
