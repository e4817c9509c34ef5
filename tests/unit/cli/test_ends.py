"""Commands that have an end come to it, whatever the server does that they ask: it is away, hangs up, or is silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reput.cli.main import app
from reput.replication import follower, ha_stream
from tests.support.commands import Run
from tests.support.fake_master import fake_master, log_of
from tests.support.patience import impatient

#: Commands that ask servers, with their arguments; PEER is where the server is to be.
ASK: dict[str, tuple[str, ...]] = {
    "follow": ("STORE", "--master", "PEER", "--once"),
    "rejoin": ("STORE", "--master", "PEER"),
    "produce": ("orders", "--namesrv", "PEER"),
    "consume": ("orders", "--namesrv", "PEER"),
    "admin cluster": ("--namesrv", "PEER"),
    "admin forget-broker": ("broker-b", "--namesrv", "PEER"),
    "admin topics": ("--namesrv", "PEER"),
    "admin topic": ("orders", "--namesrv", "PEER"),
    "admin create-topic": ("orders", "--namesrv", "PEER"),
    "admin delete-topic": ("orders", "--yes", "--namesrv", "PEER"),
    "admin groups": ("--namesrv", "PEER"),
    "admin lag": ("billing", "--namesrv", "PEER"),
    "admin connections": ("billing", "--namesrv", "PEER"),
    "admin reset": ("billing", "orders", "--to", "earliest", "--yes", "--namesrv", "PEER"),
    "admin send": ("orders", "hello", "--namesrv", "PEER"),
    "admin peek": ("orders", "--namesrv", "PEER"),
}
#: Further ways of them to ask.
MORE_WAYS = [
    ("follow", ("COPY", "--master", "PEER", "--once")),
    ("follow", ("COPY", "--namesrv", "PEER", "--once")),
    ("consume", ("orders", "--group", "billing", "--namesrv", "PEER")),
    ("produce", ("orders", "--format", "parquet", "--namesrv", "PEER")),
]
#: Commands with --once that ask nobody, with their arguments.
ASK_NOBODY: dict[str, tuple[str, ...]] = {
    "dispatch": ("STORE", "--output", "COPY", "--once"),
    "top": ("STORE", "--interval", "0", "--once"),
}
#: Servers: they have no end.
SERVERS = {"broker", "namesrv"}


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All commands, also below `admin`, by what a user types."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_the_tables_have_every_command_that_asks_a_server_or_has_the_option_once() -> None:
    asking, with_once = set(), set()
    for name, command in commands(get_command(app)):
        if any("HOST:PORT" in (parameter.metavar or "") for parameter in command.params):
            asking.add(name)
        if any("--once" in parameter.opts for parameter in command.params):
            with_once.add(name)
    assert asking - SERVERS == set(ASK)
    assert with_once == {name for name, words in (ASK | ASK_NOBODY).items() if "--once" in words}


@contextmanager
def away() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # the port is taken, so that nobody else gets it
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def hanging_up() -> Iterator[str]:
    """A server that closes each connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def close_all() -> None:
        with suppress(OSError):
            while True:
                server.accept()[0].close()

    threading.Thread(target=close_all, daemon=True).start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def places(store: Path, tmp_path: Path) -> Mapping[str, Path]:
    """Of the tables: a store, and a new folder."""
    return {"STORE": store, "COPY": tmp_path / "copy"}


@pytest.mark.parametrize("peer", [away, silent, hanging_up], ids=lambda peer: peer.__name__)
@pytest.mark.parametrize(
    ("command", "words"), [*ASK.items(), *MORE_WAYS], ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_command_ends_where_no_server_answers(
    command: str,
    words: tuple[str, ...],
    peer: Callable[[], Any],
    places: Mapping[str, Path],
    run_reput: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient(0.05, monkeypatch)
    monkeypatch.setattr(follower, "_RETRY_S", 0.0)
    with peer() as address:
        answer = run_reput(*command.split(), *({**places, "PEER": address}.get(word, word) for word in words), stdin="")
        assert (answer.status, address in answer.err.splitlines()[-1]) == (2, True), answer.err


@pytest.mark.parametrize(("command", "words"), ASK_NOBODY.items(), ids=ASK_NOBODY)
def test_a_command_with_once_ends(
    command: str, words: tuple[str, ...], places: Mapping[str, Path], run_reput: Run
) -> None:
    assert run_reput(command, *(places.get(word, word) for word in words)).status == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [("follow", ("STORE", "--master", "PEER", "--once")), ("rejoin", ("STORE", "--master", "PEER"))],
    ids=["follow", "rejoin"],
)
@pytest.mark.parametrize(
    ("ha_port", "reason"),
    [
        ("away", "Connection refused: expected the HA port of a broker there; start the broker with haListenPort"),
        ("hangs up", "the connection to the master's HA port ended: it was closed"),
        ("heartbeats", "no bytes from the master for 0.1 s"),
    ],
)
def test_a_master_that_answers_and_does_not_send_its_log_is_given_up(
    command: str,
    words: tuple[str, ...],
    ha_port: str,
    reason: str,
    places: Mapping[str, Path],
    run_reput: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "_RETRY_S", 0.0)
    monkeypatch.setattr(ha_stream, "SILENCE_S", 0.1)
    with fake_master(log_of(places["STORE"], 1 << 16), 1 << 16) as master:
        master.told = 0, 1 << 17  # there is more than the store has
        if ha_port == "away":
            master.close_ha()
        elif ha_port == "hangs up":
            master.cut_after = 0
        else:
            master.log = 0, b""
        answer = run_reput(command, *({**places, "PEER": master.address}.get(word, word) for word in words))
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err.splitlines()[-1]
