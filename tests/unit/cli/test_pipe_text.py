"""Text in a pipe has no blank line at its begin, no blanks at the ends of its lines, and plain digits."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from reput import Broker
from reput.cli.main import app
from tests.support.broker import SMALL
from tests.support.commands import GOLDEN, Answer, run_reput
from tests.support.fake_master import fake_master, log_of
from tests.support.terminal import shown_on_a_terminal

#: Commands that print fields, tables and reports: ways to call them, in an order in which each finds what it needs.
#: STORE has 1000 messages, OTHER one that differs, TMP is a folder.
COMMANDS = [
    "put TMP/put --topic orders --body x --set mappedFileSizeCommitLog=65536",
    "get STORE --topic topic-2",
    "query STORE --commit-log-offset 0",
    "query STORE --topics topic-2",
    "query STORE --sql 'select topic, sum(store_size) from messages group by topic'",
    "query STORE --topics topic-2 --output TMP/rows.csv",
    "info STORE",
    "top STORE --once --interval 0",
    "audit STORE",
    "diff STORE OTHER",
    "repair OTHER",
    "rebuild STORE --output TMP/rebuilt --runner local",
    "stats STORE --latency",
    "export STORE TMP/lake",
    "export STORE TMP/lake",
    "import TMP/lake TMP/imported --set mappedFileSizeCommitLog=65536",
    "replay STORE TMP/replayed --speed max --set mappedFileSizeCommitLog=65536",
    "dispatch STORE --output TMP/dispatched --once",
    "backup STORE TMP/backups",
    "backups TMP/backups",
    "archive STORE TMP/archive",
    "archive --verify TMP/archive",
    "restore TMP/backups TMP/restored",
    "prune TMP/backups --keep-last 1",
    "delete-expired TMP/restored --dry-run",
    "config",
    "follow TMP/followed --master MASTER --once",
    "rejoin TMP/followed --master MASTER",
    "produce orders --namesrv NAMESRV",
    "admin create-topic payments --queues 1 --namesrv NAMESRV",
    "admin cluster --namesrv NAMESRV",
    "admin topics --namesrv NAMESRV",
    "admin topic orders --namesrv NAMESRV",
    "admin send orders hello --namesrv NAMESRV",
    "admin peek orders --namesrv NAMESRV",
    "admin groups --namesrv NAMESRV",
    "admin lag billing --namesrv NAMESRV",
    "admin reset billing orders --to earliest --namesrv NAMESRV",
    "admin delete-topic payments --namesrv NAMESRV",
]
#: Commands that print lines of messages or units, one line, or what a test of their own looks at.
OTHERS = {"tail", "consume", "dump", "man", "warm", "broker", "namesrv", "admin connections", "admin forget-broker"}


def names(group: object, path: str = "") -> Iterator[str]:
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from names(command, f"{path}{name} ")
        else:
            yield f"{path}{name}"


def test_the_table_has_every_command() -> None:
    called = {" ".join(words[: 1 + (words[0] == "admin")]) for words in map(str.split, COMMANDS)}
    assert called | OTHERS == set(names(get_command(app)))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("text")
    store, other = (Path(shutil.copytree(GOLDEN / "clean/store", folder / name)) for name in ("store", "other"))
    log = min((other / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[47] ^= 1  # in the born timestamp of the first record
    log.write_bytes(data)
    options = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with (
        Broker.start(folder / "broker", **options, **SMALL) as broker,
        fake_master(log_of(store, 426_828), log.stat().st_size) as master,
    ):
        namesrv = ("--namesrv", broker.namesrv)
        assert run_reput("admin", "create-topic", "orders", "--queues", 1, *namesrv).status == 0
        assert run_reput("produce", "orders", *namesrv, stdin="x\n" * 1200).status == 0
        assert run_reput("consume", "orders", "--group", "billing", "--count", 1100, *namesrv).status == 0
        yield {
            "STORE": str(store), "OTHER": str(other), "TMP": str(folder), "MASTER": master.address,
            "NAMESRV": broker.namesrv,
        }  # fmt: skip


def called(command: str, places: dict[str, str]) -> Answer:
    for name, place in places.items():
        command = command.replace(name, place)
    words = shlex.split(command)
    return run_reput(*words, stdin="x\n")


def test_every_command_prints_lines_that_a_program_can_read(places: dict[str, str]) -> None:
    has_thousands = 0
    for command in COMMANDS:
        answer = called(command, places)
        assert answer.status in (0, 1), (command, answer.err)
        assert answer.out, command
        lines = answer.out.split("\n")
        assert lines[0], (command, "begins with a blank line")
        assert [line for line in lines if line != line.rstrip()] == [], command
        assert re.findall(r"\b\d{1,3}(?:,\d{3})+\b", answer.out) == [], command
        assert {character for character in answer.out if character.isspace()} <= {" ", "\n"}, command
        has_thousands += bool(re.search(r"(?<!\S)\d{4,}(?!\S)", answer.out))
    assert has_thousands > 10


def test_a_terminal_groups_digits(places: dict[str, str]) -> None:
    assert "messages           1,000" in shown_on_a_terminal(["stats", places["STORE"]], 200, "stdout")
