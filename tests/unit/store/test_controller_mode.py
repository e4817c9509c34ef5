"""A store of RocketMQ's controller mode: it opens, and keeps the file of its epochs."""

from __future__ import annotations

from pathlib import Path

from reput import Message, MessageStore
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner

#: As RocketMQ 5.3.3 writes it (docs/slaves.md): two epochs, and a checksum.
EPOCHS = b"2\n111205595\n1-0\n2-1872\n"


def test_a_store_with_epochs_is_written_and_audited_and_keeps_their_file(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small=True) as store:
        store.put_message(Message("orders", b"1"))
    path = tmp_path / "store" / "epochFileCheckpoint"
    path.write_bytes(EPOCHS)
    with MessageStore.open(tmp_path / "store") as store:
        store.put_message(Message("orders", b"2"))
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 2
    assert path.read_bytes() == EPOCHS
    assert audit(tmp_path / "store", runner=LocalRunner()).findings == ()
