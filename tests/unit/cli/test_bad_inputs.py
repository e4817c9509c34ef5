"""Stores as they should not be: each command names what is wrong and what to do in one line, and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Run

LOG, QUEUE = f"commitlog/{0:020}", f"consumequeue/orders/0/{0:020}"
NO_FILE = "a folder lies where a file is expected; move it away"
NO_LINK = "a symbolic link that leads nowhere; mount the disk, or remove the link"
NO_FOLDER = "a file lies where a folder is expected; move it away"
PUT = ("put", "--topic", "orders", "--body", "x")
GET, INFO, DUMP, STATS = ("get", "--topic", "orders"), ("info",), ("dump",), ("stats",)
READERS = (INFO, GET, ("query", "--commit-log-offset", "0"), ("top", "--once", "--interval", "0"))
OF_LOG = (*READERS, DUMP, STATS, PUT)


def folder(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.mkdir()


def file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def folder_link(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path.parent / "nowhere")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def nonsense(path: Path) -> None:
    path.write_text("{nonsense")


def content(store: Path) -> dict[Path, bytes | None]:
    """All names below a store, and what is in the files."""
    return {path: path.read_bytes() if path.is_file() else None for path in store.rglob("*")}


CASES: list[tuple[Callable[[Path], None], str, tuple[tuple[str, ...], ...], int, str]] = [
    (folder, LOG, OF_LOG, 2, NO_FILE),
    (broken_link, LOG, OF_LOG, 2, NO_LINK),
    (loop, LOG, OF_LOG, 2, "symbolic links lead to each other"),
    (empty, LOG, READERS[:3], 2, "consume queues, but no commit log"),
    (folder, QUEUE, (*READERS, PUT), 2, NO_FILE),
    (broken_link, QUEUE, (*READERS, PUT), 2, NO_LINK),
    (folder, "index/INDEX", (*READERS, PUT), 2, NO_FILE),
    (broken_link, "index/INDEX", (*READERS, PUT), 2, NO_LINK),
    (folder, "checkpoint", (*READERS, PUT), 2, NO_FILE),
    (folder, "abort", (PUT,), 2, NO_FILE),
    (folder, "lock", (PUT,), 2, NO_FILE),
    (file, "commitlog", OF_LOG, 2, NO_FOLDER),
    (folder_link, "commitlog", OF_LOG, 2, NO_LINK),
    (file, "consumequeue", OF_LOG, 2, NO_FOLDER),
    (file, "index", OF_LOG, 2, NO_FOLDER),
    (file, "config", OF_LOG, 2, NO_FOLDER),
    (nonsense, "config/topics.json", (INFO,), 1, "expected a value, found 'nonsense'; correct it"),
    (nonsense, "config/topics.json", (PUT,), 2, "expected a value, found 'nonsense'; correct it"),
    (folder, "config/topics.json", (INFO,), 2, NO_FILE),
    (nonsense, "config/reputSinks.json", (PUT,), 2, "expected what a sink writes, found something else. It says"),
]


@pytest.mark.parametrize(("deed", "name", "commands", "status", "told"), CASES)
def test_what_is_no_part_of_a_store_is_named_with_what_to_do(
    store: Path,
    run_reput: Run,
    deed: Callable[[Path], None],
    name: str,
    commands: tuple[tuple[str, ...], ...],
    status: int,
    told: str,
) -> None:
    index = next((store / "index").iterdir()).name
    place = store / name.replace("INDEX", index)
    deed(place)
    before = content(store)
    for command, *arguments in commands:
        answer = run_reput(command, store, *arguments)
        assert (answer.status, answer.err.count("\n")) == (status, 1), (command, answer.err)
        assert told in answer.err
        assert str(store) in answer.err
    assert content(store) == before


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("get", "--topic", "orders"), "--raw"),
        (("query", "--sql", "select 1"), "--output"),
        (("stats",), "--report"),
    ],
)
def test_an_output_never_takes_the_place_of_a_device_or_pipe(
    store: Path, tmp_path: Path, run_reput: Run, command: tuple[str, ...], option: str
) -> None:
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    answer = run_reput(command[0], store, *command[1:], option, pipe)
    assert (answer.status, answer.out) == (2, "")
    assert "a device or a pipe" in answer.err
    assert pipe.is_fifo()


def test_log_files_that_are_all_empty_are_named(store: Path, run_reput: Run) -> None:
    for start in (0, 65536, 131072):
        (store / f"commitlog/{start:020}").write_bytes(b"")
    for command, *arguments in OF_LOG:
        answer = run_reput(command, store, *arguments)
        assert (answer.status, answer.err) == (2, f"reput: {store}/{LOG}: 0 bytes long; restore it from a copy\n")


def test_a_last_log_file_that_was_emptied_is_named(store: Path, run_reput: Run) -> None:
    lines = "\n".join(["x" * 4000] * 20)
    assert run_reput("put", store, "--topic", "orders", "--stdin", stdin=lines).status == 0
    os.truncate(store / f"commitlog/{65536:020}", 0)
    for path in store.glob("commitlog/*"):
        if int(path.name) > 65536:
            path.unlink()
    answer = run_reput("info", store)
    assert answer.status == 1
    assert f"{store}/commitlog/{65536:020}: damaged at offset 65536: expected a record" in answer.err


def test_an_index_file_and_a_queue_file_of_garbage_are_named(store: Path, run_reput: Run) -> None:
    index, queue = next((store / "index").iterdir()), store / QUEUE
    before = index.read_bytes()
    index.write_bytes(b"\xff" * len(before))
    assert f"{index}: 8440 bytes, expected 420000040" in run_reput("info", store).err
    index.write_bytes(before)
    queue.write_bytes(b"\xff" * 2000)
    assert f"{queue}: damaged at offset 0: expected units of all messages" in run_reput("get", store, *GET[1:]).err


@pytest.mark.parametrize(
    "arguments",
    [
        *((name, "") for name in ("info", "audit", "dump", "stats", "repair", "put", "get", "query")),
        *(
            ("STORE", "--commit-log-path", ""),
            ("backup", "STORE", ""),
            ("archive", "STORE", ""),
            ("backups", ""),
            ("restore", "", ""),
        ),
        *(("rebuild", "STORE", "--output", ""), ("repair", "STORE", "--salvage", ""), ("diff", "STORE", "")),
        *(("export", "STORE", ""), ("replay", "STORE", ""), ("import", "x.parquet", ""), ("dispatch", "STORE", "")),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_folder_that_one_happens_to_be_in(
    store: Path, run_reput: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """As an unset variable gives it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    words = [str(store) if word == "STORE" else word for word in arguments]
    if arguments[0] == "STORE":
        words.insert(0, "info")
    if arguments[0] == "dispatch":
        words.insert(2, "--output")
    answer = run_reput(*words)
    assert (answer.status, list(here.iterdir())) == (2, [])
    assert "an empty path" in answer.err


@pytest.mark.parametrize(
    "command", [("restore", "BACKUPS"), ("rebuild", "STORE", "--output"), ("repair", "STORE", "--salvage")]
)
def test_what_is_made_takes_the_place_of_no_link(
    store: Path, run_reput: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Nor of a mount point: a rename cannot, and that is found out before the work, not behind it."""
    assert run_reput("backup", str(store), str(tmp_path / "backups")).status == 0
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    words = {"STORE": str(store), "BACKUPS": str(tmp_path / "backups")}
    before = sorted(tmp_path.iterdir())
    for target, what in ((tmp_path / "link", "a link"), (Path("/proc"), "a mount point")):
        answer = run_reput(*(words.get(word, word) for word in command), str(target))
        assert (answer.status, sorted(tmp_path.iterdir())) == (2, before)
        assert f"{target}: is {what}, which cannot be replaced" in answer.err


def test_a_commit_log_that_is_not_where_a_command_looks_for_it_is_named(store: Path, run_reput: Run) -> None:
    answer = run_reput("get", str(store), "--topic", "orders", "--commit-log-path", str(store / "nowhere"))
    assert answer.status == 2
    assert f"no commit log in {store}/nowhere; name the folder" in answer.err
