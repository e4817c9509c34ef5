"""The handle with which a producer recalls a message with a time."""

from __future__ import annotations

import pytest

from reput.remoting.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle


def test_a_handle_is_that_of_rocketmq() -> None:
    text = "djEgb3JkZXJzIGJyb2tlci1hIDE3OTU1NzkwMzcwMDEgdTA="  # of its broker 5.3.3
    handle = RecallHandle("orders", "broker-a", "1795579037001", "u0")
    assert decode_recall_handle(text) == handle
    assert encode_recall_handle(handle) == text
    assert decode_recall_handle(text.rstrip("=")) == handle


@pytest.mark.parametrize("text", ["", "djE=", "*", "djIgYSBiIDEgYw==", "gICA", "é"])
def test_what_is_no_handle_is_none(text: str) -> None:
    assert decode_recall_handle(text) is None
