"""A store of RocketMQ's controller mode: it opens, and keeps the file of its epochs, which `reput info` shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput import CorruptMetadataError, Message, MessageStore
from reput.formats.epoch_file import Epoch, decode_epochs
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput

#: As RocketMQ 5.3.3 writes it (docs/formats/epoch-file.md): two epochs, and a checksum.
EPOCHS = b"2\n111205595\n1-0\n2-1872\n"


def make_store(path: Path) -> None:
    with MessageStore.open(path, small=True) as store:
        store.put_message(Message("orders", b"1"))


def test_a_store_with_epochs_is_written_and_audited_and_keeps_their_file(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    path = tmp_path / "store" / "epochFileCheckpoint"
    path.write_bytes(EPOCHS)
    with MessageStore.open(tmp_path / "store") as store:
        store.put_message(Message("orders", b"2"))
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 2
    assert path.read_bytes() == EPOCHS
    assert audit(tmp_path / "store", runner=LocalRunner()).findings == ()


@pytest.mark.parametrize(
    ("data", "epochs"),
    [
        (EPOCHS, (Epoch(1, 0), Epoch(2, 1872))),
        (b"1\n1725254278\n1-0\n", (Epoch(1, 0),)),
        (b"2\r\n0\r\n3-5\r\n7-5\r\n", (Epoch(3, 5), Epoch(7, 5))),
        (b"0\n0\n", ()),
    ],
)
def test_epochs_are_read_as_rocketmq_writes_them(data: bytes, epochs: tuple[Epoch, ...]) -> None:
    assert decode_epochs(data) == epochs


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "'' is no number of epochs"),
        (b"1\n111205595\n1-0\n2-1872\n", "2 epochs, but the first line says 1"),
        (b"2\n111205596\n1-0\n2-1872\n", "checksum 111205595, but the second line says 111205596"),
        (b"1\nx\n1-0\n", "'x' is no checksum"),
        (b"1\n0\n1\n", "'' is no offset"),
        (b"1\n0\n1--5\n", "'-5' is no offset"),
        (b"1\n0\n1-%s\n" % (b"9" * 5000), "'9999999999999999999' is no offset"),
        (b"2\n0\n2-0\n1-5\n", "epoch 1-5 after 2-0"),
        (b"2\n0\n1-5\n2-4\n", "epoch 2-4 after 1-5"),
    ],
)
def test_a_damaged_file_is_told(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptMetadataError) as raised:
        decode_epochs(data)
    assert raised.value.reason == reason


def test_info_shows_the_epochs_and_reads_the_backup_of_a_damaged_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(store)
    assert run_reput("info", store, "--json").object()["epochs"] == []
    (store / "epochFileCheckpoint").write_bytes(EPOCHS[:-2])
    (store / "epochFileCheckpoint.bak").write_bytes(EPOCHS)
    assert run_reput("info", store, "--json").object()["epochs"] == [
        {"epoch": 1, "start_offset": 0},
        {"epoch": 2, "start_offset": 1872},
    ]
    assert "2, the last is 2 from offset 1872" in run_reput("info", store).out
    (store / "epochFileCheckpoint.bak").unlink()
    shown = run_reput("info", store, "--json")
    assert shown.status == 1
    assert "epochFileCheckpoint" in shown.object()["findings"][0]
