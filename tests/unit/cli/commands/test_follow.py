"""`reput follow`: a copy of a broker's log, what it tells, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reput import Message, MessageStore
from reput.cli.display.output import iso_time
from tests.support.commands import Run
from tests.support.fake_master import FakeMaster, fake_master, log_of

FILE_SIZE = 1 << 20


@pytest.fixture
def master(tmp_path: Path) -> Iterator[FakeMaster]:
    with MessageStore.open(tmp_path / "master", mapped_file_size_commit_log=FILE_SIZE) as store:
        store.put_messages([Message("orders", b"%d" % number) for number in range(500)])
        end = store.max_commit_log_offset
    with fake_master(log_of(tmp_path / "master", end), FILE_SIZE) as served:
        yield served


def test_a_new_store_gets_files_of_the_masters_size_and_all_that_is_there(
    master: FakeMaster, tmp_path: Path, run_reput: Run
) -> None:
    done = run_reput("follow", tmp_path / "copy", "--master", master.address, "--once", "--json")
    assert done.status == 0
    end = len(master.log[1])
    assert done.object() == {"followed_to": end, "lag_bytes": 0, "lag_ms": 0}
    assert run_reput("diff", tmp_path / "master", tmp_path / "copy").status == 0
    assert run_reput("audit", tmp_path / "copy").status == 0
    [file] = (tmp_path / "copy/commitlog").iterdir()
    assert file.stat().st_size == FILE_SIZE


def test_a_copy_that_was_stopped_before_its_first_byte_gets_the_masters_size_too(
    master: FakeMaster, tmp_path: Path, run_reput: Run
) -> None:
    MessageStore.open(tmp_path / "copy").close()
    done = run_reput("follow", tmp_path / "copy", "--master", master.address, "--once")
    assert done.status == 0, done.err
    assert [file.stat().st_size for file in (tmp_path / "copy/commitlog").iterdir()] == [FILE_SIZE]


def test_ctrl_c_ends_it_with_a_clean_store_and_status_0(master: FakeMaster, tmp_path: Path, run_reput: Run) -> None:
    command = [sys.executable, "-m", "reput", "follow", str(tmp_path / "copy"), "--master", master.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any('"lag_bytes": 0' in line for line in iter(process.stderr.readline, ""))
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"followed to  {len(master.log[1])}" in out
    assert not (tmp_path / "copy/abort").exists()
    assert run_reput("audit", tmp_path / "copy").status == 0


def test_a_store_that_is_not_of_this_master_is_one_line_and_no_change(
    master: FakeMaster, tmp_path: Path, run_reput: Run
) -> None:
    with MessageStore.open(tmp_path / "copy", mapped_file_size_commit_log=FILE_SIZE) as store:
        store.put_message(Message("orders", b"of another life"))
    done = run_reput("follow", tmp_path / "copy", "--master", master.address, "--once")
    assert (done.status, done.out) == (2, "")
    assert "another log, or was cut and written again" in done.err


def test_a_master_without_messages_is_connected_and_the_result_speaks_of_no_connection(
    master: FakeMaster, tmp_path: Path, run_reput: Run
) -> None:
    master.log = 0, b""
    done = run_reput("follow", tmp_path / "copy", "--master", master.address, "--once", "--json")
    assert done.object() == {"followed_to": 0, "lag_bytes": 0, "lag_ms": 0}
    [line] = done.err.splitlines()
    assert json.loads(line)["connected"] is True


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "127.0.0.1:1",
            "Connection refused: expected a broker or a name server there; start it, or correct the address",
        ),
        ("nothing", "expected HOST:PORT"),
        ("127.0.0.1:x", "expected HOST:PORT"),
    ],
)
def test_a_new_store_of_a_master_that_is_not_there_is_not_made(
    address: str, reason: str, tmp_path: Path, run_reput: Run
) -> None:
    done = run_reput("follow", tmp_path / "copy", "--master", address, "--once")
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert address in done.err
    assert reason in done.err
    assert not (tmp_path / "copy").exists()


def test_a_rejoin_shows_when_the_messages_were_stored_that_only_the_store_has(
    master: FakeMaster, tmp_path: Path, run_reput: Run
) -> None:
    assert run_reput("follow", tmp_path / "copy", "--master", master.address, "--once").status == 0
    with MessageStore.open(tmp_path / "copy", mapped_file_size_commit_log=FILE_SIZE) as store:
        stored = store.put_message(Message("orders", b"of the old master")).store_timestamp
    done = run_reput("rejoin", tmp_path / "copy", "--master", master.address)
    assert done.status == 1
    assert done.out.count(iso_time(stored)) == 2  # of the first and of the last one


@pytest.mark.parametrize(
    "command",
    [
        ("follow", "COPY", "--namesrv", "127.0.0.1:1"),
        ("rejoin", "STORE", "--master", "127.0.0.1:1"),
        ("consume", "orders", "--namesrv", "127.0.0.1:1"),
        ("produce", "orders", "--namesrv", "127.0.0.1:1"),
        ("admin", "topics", "--namesrv", "127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_where_nobody_listens_the_error_says_what_was_expected_and_what_to_do(
    command: tuple[str, ...], store: Path, tmp_path: Path, run_reput: Run
) -> None:
    places = {"COPY": tmp_path / "copy", "STORE": store}
    done = run_reput(*(places.get(word, word) for word in command), stdin="x\n")
    assert done.status == 2
    expected = (
        "127.0.0.1:1: Connection refused: expected a broker or a name server there; start it, or correct the address"
    )
    assert done.err.splitlines()[-1].endswith(expected)
    assert not (tmp_path / "copy").exists()
