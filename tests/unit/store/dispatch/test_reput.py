"""The thread that dispatches: what it waits for, and the memory of its scanner."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.store.dispatch import reput as dispatch


def messages(count: int) -> list[reput.Message]:
    return [reput.Message("orders", b"%d" % n) for n in range(count)]


@pytest.mark.parametrize("rows", [1, dispatch._FEW_ROWS + 1])
def test_neither_a_waiting_caller_nor_a_close_waits_for_the_pause_between_passes(
    tmp_path: Path, rows: int, small_config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FEW_ROWS_WAIT_S", "_SMALL_PASS_WAIT_S"):
        monkeypatch.setattr(dispatch, name, 3600)
    with reput.MessageStore.open(tmp_path / "store", config=small_config) as store:
        for count in (1, 2, 3):
            store.put_messages(messages(rows))
            store.wait_dispatched(timeout=60)
            assert store.max_offset("orders", 0) == count * rows


def test_a_pass_of_many_records_makes_the_scanner_large(
    tmp_path: Path, small_config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_FIRST_PASS_ROWS", 8)
    with reput.MessageStore.open(tmp_path / "store", config=small_config) as store:
        assert store._writer is not None
        service = store._writer.reput
        small = service._scanner
        store.put_messages(messages(7))
        store.wait_dispatched()
        assert service._scanner is small
        store.put_messages(messages(100))
        store.wait_dispatched()
        large = service._scanner
        assert large is not small
        store.put_messages(messages(100))
        store.wait_dispatched()
        assert service._scanner is large
        assert store.max_offset("orders", 0) == 207
