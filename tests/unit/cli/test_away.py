"""Somebody is away: no command prints what nobody knows, and ends with 0.

All commands of `reput admin` are run, so a new one is, too, but `forget-broker`, which asks no broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_group

from reput.cli.commands.admin.admin import admin
from reput.remoting.codes import RequestCode
from tests.support.asking import ask
from tests.support.commands import Answer, run_reput
from tests.support.master_and_slave import (
    NUMBERS,
    Pair,
    fill,
    hurry,
    lose,
    name_server,
    shop_consumes,
    unreachable,
    until_copied,
)
from tests.support.sockets import free_ports

#: What commands must be given, by the names of parameters.
GIVEN = {"topic": "orders", "group": "shop", "body": "hello", "to": "earliest"}
SLAVE = "the master of broker-a is away"
LOST = "no name server knows where broker-b is: start it"


def _commands() -> Iterator[tuple[str, ...]]:
    """Each command of `reput admin` as it is typed; one that asks for a confirmation also with it."""
    for name, command in get_group(admin).commands.items():
        if name == "forget-broker":
            continue
        words = [name]
        for one in command.params:
            if one.required:
                words += [one.opts[0], GIVEN[str(one.name)]] if one.opts[0].startswith("-") else [GIVEN[str(one.name)]]
        yield tuple(words)
        if "--yes" in {opt for one in command.params for opt in one.opts}:
            yield (*words, "--yes")


COMMANDS = list(_commands())
each_command = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)


@pytest.fixture(scope="module", autouse=True)
def _hurry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        yield


def run_all(namesrv: str) -> dict[tuple[str, ...], Answer]:
    return {one: run_reput("admin", *one, "--json", "--namesrv", namesrv) for one in COMMANDS}


def consume(namesrv: str, *options: object) -> Answer:
    return run_reput("consume", "orders", "--namesrv", namesrv, *options)


# -- the master is away, and its slave is there


class SlaveAlone(NamedTuple):
    """What commands printed as the slave was alone, and what those that ended with 0 print with the master."""

    answers: dict[tuple[str, ...], Answer]
    truths: dict[tuple[str, ...], Answer]
    consumed: dict[tuple[str, ...], Answer]
    shown: Answer


CONSUMED = [
    (),
    ("--from", "first"),
    ("--from", "2020-01-01"),
    ("--from", "last"),
    ("--format", "csv"),
    ("--group", "new"),
    ("--count", "4"),
]


@pytest.fixture(scope="module")
def slave_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlaveAlone]:
    path = tmp_path_factory.mktemp("pair")
    with name_server(path) as namesrv:
        pair = Pair(path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            shop_consumes(master, 3)
            until_copied(master, slave)
            master.close()
            answers = run_all(namesrv)
            shown = run_reput("admin", "topic", "orders", "--namesrv", namesrv)
            consumed = {options: consume(namesrv, *options) for options in CONSUMED}
            with pair.start("master"):
                fine = [command for command, answer in answers.items() if answer.status == 0]
                truths = {one: run_reput("admin", *one, "--json", "--namesrv", namesrv) for one in fine}
                yield SlaveAlone(answers, truths, consumed, shown)


@each_command
def test_a_slave_tells_what_its_master_would_tell_or_the_command_fails(
    slave_alone: SlaveAlone, command: tuple[str, ...]
) -> None:
    answer = slave_alone.answers[command]
    assert SLAVE in answer.err
    if answer.status:
        assert (answer.status, answer.out) == (2, "")
        return
    truth = slave_alone.truths[command]
    if command == ("cluster",):  # each broker tells its own numbers
        rows, all_rows = (_known(one.object()["brokers"]) for one in (answer, truth))
        assert rows == all_rows[1:]
    else:
        assert answer.lines() == truth.lines()


def _known(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what changes all the time."""
    return [{name: row[name] for name in ("broker", "broker_id", "address", "version")} for row in rows]


def test_looks_are_answered_by_a_slave_and_changes_are_not(slave_alone: SlaveAlone) -> None:
    status = {" ".join(command): answer.status for command, answer in slave_alone.answers.items()}
    looks = {"cluster", "topics", "topic orders", "groups", "lag shop", "peek orders"}
    assert {command for command, one in status.items() if one == 0} == looks
    assert slave_alone.answers["topic", "orders"].object()["messages"] == len(NUMBERS)
    assert slave_alone.answers["lag", "shop"].object()["lag"] == len(NUMBERS) - 3
    assert "messages  10" in slave_alone.shown.out
    assert "groups    shop" in slave_alone.shown.out


def test_all_messages_come_from_a_slave(slave_alone: SlaveAlone) -> None:
    counts = {options: len(answer.out.splitlines()) for options, answer in slave_alone.consumed.items()}
    assert counts == dict.fromkeys(CONSUMED, 10) | {
        ("--from", "last"): 0, ("--format", "csv"): 11, ("--count", "4"): 4,
    }  # fmt: skip
    for answer in slave_alone.consumed.values():
        assert (answer.status, SLAVE in answer.err) == (0, True)


# -- nobody answers for one of two brokers


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], Answer]]:
    """What commands printed as broker-b was registered, and not there."""
    path = tmp_path_factory.mktemp("half")
    with name_server(path) as namesrv, Pair(path, namesrv).start("a") as a:
        fill(a)
        shop_consumes(a, 3)
        with unreachable(namesrv, "broker-b", "orders"):
            yield run_all(namesrv)


@each_command
def test_half_an_answer_says_so(half: dict[tuple[str, ...], Answer], command: tuple[str, ...]) -> None:
    answer = half[command]
    if command[0] == "send":  # any broker will do
        assert (answer.status, answer.object()["broker"]) == (0, "broker-a")
    else:
        assert answer.status == 2
        assert "Connection refused" in answer.err
        assert any(word in answer.err for word in ("nobody answers for broker-b", "it is done on broker-a")) or (
            command[0] in ("reset", "delete-topic")
        )


def test_numbers_of_all_brokers_are_null_where_one_does_not_tell(half: dict[tuple[str, ...], Answer]) -> None:
    def row(command: str, rows: str, name: str, value: str) -> dict[str, Any]:
        (found,) = [one for one in half[tuple(command.split())].object()[rows] if one[name] == value]
        return found

    def values(fields: dict[str, Any], *names: str) -> set[object]:
        return {fields[name] for name in names}

    assert values(row("cluster", "brokers", "broker", "broker-b"), "version", "in_tps", "out_tps", "disk_ratio") == {
        None
    }
    assert values(row("topics", "topics", "topic", "orders"), "read_queues", "write_queues") == {None}
    assert values(row("groups", "groups", "group", "shop"), "members", "topics", "lag") == {None}
    topic, lag = half["topic", "orders"].object(), half["lag", "shop"].object()
    assert values(topic, "messages", "groups") == values(lag, "lag", "last_consumed") == {None}
    assert [one["messages"] for one in topic["queues"]] == [5, 5]
    assert [one["lag"] for one in lag["queues"][:2]] == [2, 5]


def test_numbers_that_are_not_known_are_shown_as_such(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("a") as a:
        fill(a)
        shop_consumes(a, 3)
        with unreachable(namesrv, "broker-b", "orders"):
            for command, lines in (
                ("topic orders", [["messages", "unknown"], ["groups", "unknown"]]),
                ("lag shop", [["lag", "unknown"], ["last", "consumed", "unknown"]]),
                ("groups", [["shop", "unknown", "unknown", "unknown"]]),
                ("topics", [["orders", "unknown", "rw", "unspecified", "broker-a"]]),
            ):
                answer = run_reput("admin", *command.split(), "--namesrv", namesrv)
                assert answer.status == 2
                printed = [line.split() for line in answer.out.splitlines()]
                assert [line for line in lines if line not in printed] == []


def test_a_reset_and_a_deletion_change_nothing_where_one_master_does_not_answer(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("a") as a:
        fill(a)
        shop_consumes(a, 3)
        before = run_reput("admin", "lag", "shop", "--json", "--namesrv", namesrv)
        with unreachable(namesrv, "broker-b", "orders"):
            for command in ("reset shop orders --to earliest --yes", "delete-topic orders --yes"):
                assert run_reput("admin", *command.split(), "--namesrv", namesrv).status == 2
        after = run_reput("admin", "lag", "shop", "--json", "--namesrv", namesrv)
        assert after.object()["queues"] == before.object()["queues"]
        assert before.object()["lag"] == 7


# -- all of one of two brokers was killed: the name server has lost it

SOME_CONSUMED = [("consume", "orders", *options) for options in [(), ("--group", "new"), ("--from", "last")]]
#: Of a topic that only the lost broker has.
OF_LOST = [("consume", "payments"), ("admin", "topic", "payments"), ("admin", "send", "payments", "hello")]
MORE = [*SOME_CONSUMED, *OF_LOST, ("admin", "cluster")]


@pytest.fixture(scope="module")
def with_lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], Answer]]:
    """What commands printed as broker-b was killed."""
    path = tmp_path_factory.mktemp("lost")
    with name_server(path) as namesrv, Pair(path, namesrv).start("a", ha_listen_port=None) as a:
        fill(a)
        shop_consumes(a, 3)
        lose(namesrv, "broker-b", "orders", "payments")
        more = {words: run_reput(*words, "--namesrv", namesrv) for words in MORE}
        follow = run_reput("follow", path / "copies", "--namesrv", namesrv, "--once", "--json")
        yield run_all(namesrv) | more | {("follow",): follow}


@each_command
def test_half_an_answer_says_so_too_where_the_other_half_is_lost(
    with_lost: dict[tuple[str, ...], Answer], command: tuple[str, ...]
) -> None:
    answer = with_lost[command]
    if command[0] == "send":  # any broker will do
        assert (answer.status, answer.object()["broker"]) == (0, "broker-a")
    else:
        assert (answer.status, LOST in answer.err) == (2, True)


def test_a_lost_broker_is_a_row_of_its_cluster(with_lost: dict[tuple[str, ...], Answer]) -> None:
    first, second = with_lost["cluster",].object()["brokers"]
    assert first["version"] is not None
    known = {"cluster": "DefaultCluster", "broker": "broker-b"}
    assert second == dict.fromkeys(second) | known
    *_, last = with_lost["admin", "cluster"].out.splitlines()
    assert last.split() == ["DefaultCluster", "broker-b", "unknown", "away", *["unknown"] * 4]


def test_numbers_with_a_lost_broker_are_not_known(with_lost: dict[tuple[str, ...], Answer]) -> None:
    topic, lag = with_lost["topic", "orders"].object(), with_lost["lag", "shop"].object()
    assert (topic["messages"], topic["groups"], lag["lag"]) == (None, None, None)
    assert {one["broker"] for one in topic["queues"]} == {"broker-a"}


@pytest.mark.parametrize("command", SOME_CONSUMED, ids=" ".join)
def test_what_is_consumed_of_a_topic_without_a_lost_broker_is_not_all(
    with_lost: dict[tuple[str, ...], Answer], command: tuple[str, ...]
) -> None:
    answer = with_lost[command]
    assert (answer.status, len(answer.out.splitlines())) == (2, 0 if "last" in command else len(NUMBERS))
    assert LOST in answer.err
    assert "not read to their ends: broker-b:0 (its end is not known), broker-b:1 (" in answer.err


def test_a_topic_that_only_a_lost_broker_has_is_there(with_lost: dict[tuple[str, ...], Answer]) -> None:
    told = [(with_lost[words].status, with_lost[words].out) for words in OF_LOST]
    assert told == [(2, "")] * 3
    consumed, shown, sent = (with_lost[words].err for words in OF_LOST)
    assert LOST in consumed
    assert LOST in shown
    assert "the master of broker-b is away" in sent


def test_a_copy_of_a_cluster_without_a_lost_broker_is_not_all(with_lost: dict[tuple[str, ...], Answer]) -> None:
    answer = with_lost["follow",]
    assert answer.status == 2
    assert LOST in answer.err
    assert [json.loads(line)["broker"] for line in answer.out.splitlines()] == ["broker-a"]


def test_a_slave_that_is_back_alone_is_read(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        pair = Pair(tmp_path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            until_copied(master, slave)
        lose(namesrv, "broker-a", "orders", "payments")
        with pair.slave():
            for answer in (consume(namesrv), run_reput("admin", "topic", "orders", "--json", "--namesrv", namesrv)):
                assert (answer.status, SLAVE in answer.err) == (0, True)
            assert answer.object()["messages"] == len(NUMBERS)
            assert len(consume(namesrv).out.splitlines()) == len(NUMBERS)


def test_one_name_server_that_knows_of_the_loss_is_enough(tmp_path: Path) -> None:
    """Another one was started after it; a third one is away."""
    with name_server(tmp_path / "1") as first, name_server(tmp_path / "2") as second:
        names = f"{second};{first};127.0.0.1:{free_ports(1)[0]}"
        with Pair(tmp_path, names).start("a") as a:
            fill(a)
            shop_consumes(a, 3)
            lose(first, "broker-b", "orders", "payments")
            answers = [
                run_reput("admin", *words, "--namesrv", names) for words in (["topic", "orders"], ["lag", "shop"])
            ]
            copies = run_reput("follow", tmp_path / "copies", "--namesrv", names, "--once")
            for answer in (consume(names), copies, *answers):
                assert (answer.status, LOST in answer.err) == (2, True)
            with unreachable(second, "broker-b", "orders", "payments"):  # there it is registered
                assert "Connection refused" in run_reput("admin", "topic", "orders", "--namesrv", names).err
            assert consume(names).status == 2


# -- it is gone for ever: name servers forget it


def forget(namesrv: str, name: str = "broker-b") -> Answer:
    return run_reput("admin", "forget-broker", name, "--json", "--namesrv", namesrv)


def rows(namesrv: str) -> list[tuple[str, bool]]:
    """The brokers of a cluster, and whether they have an address."""
    found = run_reput("admin", "cluster", "--json", "--namesrv", namesrv).object()["brokers"]
    return [(one["broker"], one["address"] is not None) for one in found]


def test_commands_do_without_a_lost_broker_once_it_is_forgotten(tmp_path: Path) -> None:
    with name_server(tmp_path / "1") as first, name_server(tmp_path / "2") as second:
        both = ("--namesrv", f"{second};{first}")
        with Pair(tmp_path, f"{second};{first}").start("a") as a:
            fill(a)
            lose(first, "broker-b", "orders", "payments")
            made = run_reput("admin", "create-topic", "t2", *both)
            assert made.status == 2
            assert made.err.endswith(
                f"{LOST}; if it is gone for ever, `reput admin forget-broker broker-b` lets name servers forget it; "
                "or make it on the others alone: `--brokers broker-a`\n"
            )
            assert run_reput("admin", "create-topic", "t2", "--brokers", "broker-a", *both).status == 0
            assert run_reput("consume", "orders", *both).status == 2
            (remedy,) = re.findall("`reput (admin forget.*?)`", made.err)
            forgotten = run_reput(*remedy.split(), *both)
            assert (forgotten.status, forgotten.out) == (0, f"broker broker-b is forgotten by {first}\n")
            assert rows(f"{second};{first}") == [("broker-a", True)]
            for words in (["consume", "orders"], ["admin", "create-topic", "t3"], ["admin", "topic", "orders"]):
                assert (run_reput(*words, *both).status, words) == (0, words)


def test_all_name_servers_forget_a_lost_broker(tmp_path: Path) -> None:
    with name_server(tmp_path / "1") as first, name_server(tmp_path / "2") as second:
        for one in (first, second):
            lose(one, "broker-b", "orders")
        assert forget(f"{second};{first}").object() == {"broker": "broker-b", "forgotten_by": [second, first]}
        again = forget(f"{second};{first}")
        assert (again.status, again.out) == (2, "")
        assert "no name server remembers a broker 'broker-b'; the name server" in again.err


def test_a_broker_that_any_name_server_has_is_not_forgotten(tmp_path: Path) -> None:
    with name_server(tmp_path / "1") as first, name_server(tmp_path / "2") as second:
        lose(first, "broker-b", "orders")
        with unreachable(second, "broker-b", "orders") as address:
            answer = forget(f"{first};{second}")
            assert (answer.status, answer.out) == (2, "")
            assert f"nothing was changed: broker-b is registered at {address}: only" in answer.err
            assert b'"perm":6' in ask(second, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").body
        assert rows(first) == [("broker-b", False)]
        with unreachable(first, "broker-b", "orders", broker_id=1) as address:
            assert f"broker-b is registered at {address}: only" in forget(first).err


def test_a_broker_that_nobody_knows_is_told(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, unreachable(namesrv, "broker-a", "orders"):
        answer = forget(namesrv)
        assert (answer.status, answer.out) == (2, "")
        assert "nothing was changed: no name server remembers a broker 'broker-b'; there are broker-a\n" in answer.err


def test_nothing_is_forgotten_while_a_name_server_does_not_answer(tmp_path: Path) -> None:
    """The broker may be there for it."""
    with name_server(tmp_path) as namesrv:
        lose(namesrv, "broker-b", "orders")
        silent = f"127.0.0.1:{free_ports(1)[0]}"
        answer = forget(f"{silent};{namesrv}")
        assert (answer.status, answer.out) == (2, "")
        assert f"nothing was changed: {silent}: Connection refused" in answer.err
        assert rows(namesrv) == [("broker-b", False)]


# -- nobody is there


def test_with_a_name_server_alone_each_command_fails(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        answers = run_all(namesrv)
        answers["consume",] = consume(namesrv)
        answers["produce",] = run_reput("produce", "orders", "--namesrv", namesrv, stdin=b"hello\n")
        answers["follow",] = run_reput("follow", tmp_path / "copies", "--namesrv", namesrv, "--once")
        for answer in answers.values():
            assert (answer.status, answer.out) == (2, "")
            assert f"the name server {namesrv} knows no broker: start one" in answer.err


def test_with_brokers_that_do_not_answer_each_command_fails(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, unreachable(namesrv, "broker-a", "orders"):
        answers = run_all(namesrv)
        cluster = answers.pop(("cluster",))
        assert (cluster.status, cluster.object()["brokers"][0]["in_tps"]) == (2, None)
        assert {(one.status, one.out) for one in answers.values()} == {(2, "")}
        for answer in (*answers.values(), consume(namesrv)):
            assert "Connection refused" in answer.err, answer.err


def test_a_slave_that_name_servers_know_no_topics_of_is_told(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        pair = Pair(tmp_path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            until_copied(master, slave)
        with pair.slave():
            answer = run_reput("admin", "topic", "orders", "--namesrv", namesrv)
            assert (answer.status, answer.out) == (2, "")
            assert "broker-a, whose master is away: name servers learn topics from masters" in answer.err
            assert "orders" in run_reput("admin", "topics", "--namesrv", namesrv).out
