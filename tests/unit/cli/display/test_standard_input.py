"""Standard input, however who starts the command has opened it."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from reput.cli.display.message_rows import read_messages, standard_input


def test_a_pipe_whose_reads_do_not_wait_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Node.js makes them: a moment without a byte is not the end."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.FileIO(read))))
    rows = read_messages(standard_input(), "lines", "t")

    def go_on() -> None:
        os.write(write, b"one\ntwo")
        os.close(write)

    later = threading.Timer(0.2, go_on)
    later.start()
    assert [bytes(message.body) for _, message in rows] == [b"one", b"two"]
    later.join()


def test_a_file_is_read_at_any_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet has what it holds at its end."""
    (tmp_path / "file").write_bytes(b"0123456789")
    with (tmp_path / "file").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        source = standard_input()
        assert source.seekable()
        assert source.seek(-3, os.SEEK_END) == source.tell() == 7
        assert source.read() == b"789"
        assert source.seek(0) == 0
        assert source.read(2) == b"01"
