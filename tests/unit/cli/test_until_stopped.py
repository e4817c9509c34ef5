"""Commands that run until they are stopped, and jobs that an interrupt has stopped (docs/commands.md)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reput import Broker, Message, MessageStore
from reput.cli import interrupts
from reput.cli.main import app
from reput.formats.metadata import TopicConfig
from tests.support.archives import store_with_sealed_files
from tests.support.broker import SMALL
from tests.support.commands import Run
from tests.support.interrupted import interrupted_at
from tests.support.shares import sampled
from tests.support.sockets import free_ports

LOCAL: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
#: Each prints a line once it works.
UNTIL_STOPPED = {
    "broker": "broker NEW --port 0 --namesrv-port 0 --set bindAddress=127.0.0.1",
    "namesrv": "namesrv --port 0 --set bindAddress=127.0.0.1",
    "follow": "follow NEW --master MASTER",
    "dispatch": "dispatch STORE --output NEW --runner local",
    "export": "export STORE NEW --follow",
    "archive": "archive SEALED NEW --follow",
    "tail": "tail STORE --topic orders --from first",
    "consume": "consume orders --follow --namesrv NAMESRV",
    "top": "top STORE --json --interval 60",
}
#: Its test needs Spark: tests/spark/test_interrupts.py.
ON_SPARK = {"stats"}
#: The same commands where they end by themselves, and a function that they call on the way.
ENDS_BY_ITSELF = [
    ("tail STORE --topic orders --timeout 60", "reput.store.tail", "Tail.poll"),
    ("tail STORE --topic orders --count 99", "reput.store.tail", "Tail.poll"),
    ("consume orders --namesrv NAMESRV", "reput.client.consuming.pull_consumer", "PullConsumer.assign"),
    (
        "consume orders --follow --count 99 --namesrv NAMESRV",
        "reput.client.consuming.pull_consumer",
        "PullConsumer.assign",
    ),
    ("top STORE --once", "reput.store.watch", "StoreWatch.look"),
]
#: Jobs that go on if they are given again, a function that they call on the way, and where they go on.
RESUMABLE = [
    ("backup STORE NEW", "reput.jobs.backup.backup_job", "encode_manifest", "NEW"),
    ("prune BACKUPS --keep-last 1", "reput.jobs.backup.prune_job", "_plan", "BACKUPS"),
    ("replay STORE NEW --speed max", "reput.store.sinks.replay", "ReplaySink.put", "NEW"),
    ("import LAKE NEW", "reput.store.sinks.import_sink", "ImportSink.commit", "NEW"),
    ("export STORE NEW", "reput.jobs.lake.commits", "LakeCommits.stage", "NEW"),
    ("repair FORMER --apply", "reput.jobs.repair.repair_job", "_Repair.look", "FORMER"),
    ("dispatch STORE --output NEW --once", "reput.store.dispatch.log_dispatch", "LogDispatch.run_once", "NEW"),
    ("follow NEW --master MASTER --once", "reput.replication.follower", "Follower._beginning", "NEW"),
    ("rejoin FORMER --master MASTER --apply", "reput.replication.rejoin", "_common", "FORMER"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What stands for the words of the commands: a store, one that was a master, a broker that has followed it."""
    folder = tmp_path_factory.mktemp("stopped")
    with MessageStore.open(folder / "STORE", **SMALL) as store:
        store.update_topic(TopicConfig("orders", 1, 1))
        store.put_messages([Message("orders", b"%d" % number) for number in range(9)])
    for name in ("master", "FORMER"):
        shutil.copytree(folder / "STORE", folder / name)
    store_with_sealed_files(folder / "SEALED")
    with MessageStore.open(folder / "FORMER", **SMALL) as store:
        store.put_message(Message("orders", b"never copied"))
    (port,) = free_ports(1)
    with Broker.start(folder / "master", **SMALL, **LOCAL, ha_listen_port=port) as broker:
        yield {"FOLDER": str(folder), "NAMESRV": broker.namesrv, "MASTER": broker.address}


@pytest.fixture
def words(made: dict[str, str], tmp_path: Path, run_reput: Run) -> dict[str, str]:
    """The same, with stores and a new folder for one test."""
    for name in ("STORE", "FORMER", "SEALED"):
        shutil.copytree(Path(made["FOLDER"]) / name, tmp_path / name)
    return made | {name: str(tmp_path / name) for name in ("STORE", "FORMER", "SEALED", "NEW", "BACKUPS", "LAKE")}


def test_each_command_that_speaks_of_ctrl_c_is_one_of_these() -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    told = {
        name: " ".join([command.help or "", *(getattr(param, "help", None) or "" for param in command.params)])
        for name, command in commands.items()
    }
    assert {name for name, text in told.items() if "Ctrl-C" in text} == set(UNTIL_STOPPED) | ON_SPARK


@sampled(3)
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", UNTIL_STOPPED)
def test_a_command_that_runs_until_it_is_stopped_ends_with_status_0(
    words: dict[str, str], command: str, number: signal.Signals
) -> None:
    arguments = [words.get(word, word) for word in UNTIL_STOPPED[command].split()]
    with subprocess.Popen(
        [sys.executable, "-m", "reput", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(number)
        printed = first + process.stdout.read()
    assert process.returncode == 0, printed
    assert "interrupted" not in printed
    assert "Traceback" not in printed


def test_an_error_that_comes_after_a_signal_which_raises_nothing_is_told() -> None:
    """What follows the block needs what the block has made."""
    calls: list[str] = []

    def run() -> None:
        with interrupts.until_stopped(lambda: calls.append("stop")):
            interrupts._interrupt(signal.SIGTERM, None)
            raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        run()
    assert calls == ["stop"]
    assert not interrupts.is_interrupted()


def test_what_a_library_has_made_of_a_keyboard_interrupt_ends_the_block() -> None:
    with interrupts.until_stopped():
        try:
            interrupts._interrupt(signal.SIGTERM, None)
        except KeyboardInterrupt as error:
            raise ValueError("a library's") from error


@sampled(3)
@pytest.mark.parametrize(("command", "module", "function"), ENDS_BY_ITSELF, ids=[row[0] for row in ENDS_BY_ITSELF])
def test_a_command_that_would_have_ended_by_itself_ends_with_130(
    words: dict[str, str], command: str, module: str, function: str
) -> None:
    done = interrupted_at(module, function, *(words.get(word, word) for word in command.split()))
    assert (done.returncode, done.stderr) == (130, "reput: interrupted\n")


@sampled(3)
@pytest.mark.parametrize(("command", "module", "function", "where"), RESUMABLE, ids=[row[0] for row in RESUMABLE])
def test_an_interrupted_job_says_where_it_goes_on_and_goes_on_there(
    words: dict[str, str], run_reput: Run, command: str, module: str, function: str, where: str
) -> None:
    if "BACKUPS" in command:
        assert [run_reput("backup", words["STORE"], words["BACKUPS"]).status for _ in range(2)] == [0, 0]
    if "LAKE" in command:
        assert run_reput("export", words["STORE"], words["LAKE"]).status == 0
    arguments = [words.get(word, word) for word in command.split()]
    done = interrupted_at(module, function, *arguments)
    kept = f"what is done is kept in {words[where]}, and the same command goes on there"
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert done.stderr.splitlines()[-1] == f"reput: interrupted; {kept}"
    again = run_reput(*arguments)
    assert again.status == 0, again.err


def test_an_error_after_the_signal_is_told(words: dict[str, str]) -> None:
    """It may be the commit of a group's offsets on a full disk: that is no good end."""
    program = """
import os, signal
from reput.errors import StoreFullError
from reput.__main__ import main

from reput.store.tail import Tail

def commit(*_, **__):
    raise StoreFullError("no space")

def poll(*_):
    os.kill(os.getpid(), signal.SIGTERM)

Tail._commit, Tail.poll = commit, poll
main()
"""
    command = [sys.executable, "-c", program, "tail", words["STORE"], "--topic", "orders"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "reput: no space\n")
