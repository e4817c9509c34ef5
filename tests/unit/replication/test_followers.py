"""Copies of all brokers of a cluster, their lag in metrics, and a limit on what they read a second."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import nan
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

import pytest

from reput import Broker, Message, MessageStore, RemotingError
from reput.replication import followers
from reput.replication.follow_metrics import FollowMetrics
from reput.replication.follower import Follower, FollowState
from reput.replication.followers import Followers, broker_addresses
from reput.replication.ha_stream import LEAST_BANDWIDTH
from reput.replication.master import MasterLog, ha_address
from tests.support.broker import SMALL, send_numbers
from tests.support.commands import run_reput
from tests.support.fake_master import fake_master, log_of
from tests.support.master_and_slave import lose
from tests.support.sockets import free_ports

KEYS: dict[str, Any] = {**SMALL, "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}


def started(folder: Path, name: str, namesrv: str | None = None) -> Broker:
    (port,) = free_ports(1)
    more = {} if namesrv is None else {"namesrv_addr": namesrv}
    return Broker.start(folder / name, broker_name=name, ha_listen_port=port, **more, **KEYS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Broker]:
    """broker-a with its name server, and broker-b."""
    with started(tmp_path, "broker-a") as first, started(tmp_path, "broker-b", first.namesrv) as second:
        send_numbers(first.address, 0, 30)
        send_numbers(second.address, 0, 50)
        yield first


@contextmanager
def running(folder: Path, namesrv: str) -> Iterator[tuple[Followers, Callable[[str], None]]]:
    """Followers in a thread; the function waits until one has the whole log of its broker."""
    stop, stepped = Event(), Condition()

    def note(name: str, state: FollowState) -> None:
        with stepped:
            stepped.notify_all()

    def has_all(name: str) -> bool:
        state = all_of_them.states.get(name)
        return state is not None and state.master is not None and 0 < state.end_offset == state.master.max_offset

    def wait(name: str) -> None:
        with stepped:
            assert stepped.wait_for(lambda: has_all(name), 60)

    all_of_them = Followers(str(folder), namesrv.split(";"), open_copy, make, note)
    thread = Thread(target=all_of_them.run, args=(stop,))
    thread.start()
    try:
        yield all_of_them, wait
    finally:
        stop.set()
        thread.join()


def open_copy(path: str, address: str) -> MessageStore:
    return MessageStore.open(path, **SMALL)


def make(store: MessageStore, address: str, on_state: Callable[[FollowState], None]) -> Follower:
    return Follower(store, address, on_state=on_state)


def test_each_broker_has_a_store_below_the_folder(cluster: Broker, tmp_path: Path) -> None:
    done = run_reput("follow", tmp_path / "copies", "--namesrv", cluster.namesrv, "--once", "--json")
    assert done.status == 0, done.err
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["broker"] for one in told] == ["broker-a", "broker-b"]
    for one in told:
        name, end = one["broker"], one["followed_to"]
        assert one["lag_bytes"] == 0 < end
        assert log_of(tmp_path / "copies" / name, end) == log_of(tmp_path / name, end)


def test_one_that_cannot_be_followed_leaves_the_others_alone(cluster: Broker, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "copies/broker-a", **SMALL) as store:
        store.put_message(Message("orders", b"of another life"))
    done = run_reput("follow", tmp_path / "copies", "--namesrv", cluster.namesrv, "--once", "--json")
    assert done.status == 2
    assert "broker-a: " in done.err
    assert "another log, or was cut and written again" in done.err
    assert json.loads(done.out.splitlines()[-1])["broker"] == "broker-b"


def test_a_name_that_leads_out_of_the_folder_is_refused(
    cluster: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"../broker-c": cluster.address, "broker-a": cluster.address}
    monkeypatch.setattr(followers, "broker_addresses", lambda name_servers, tls: named)
    done = run_reput("follow", tmp_path / "copies", "--namesrv", cluster.namesrv, "--once", "--json")
    assert done.status == 2
    assert "'../broker-c' is no name of a folder" in done.err
    assert json.loads(done.out.splitlines()[-1])["broker"] == "broker-a"
    assert {path.name for path in (tmp_path / "copies").iterdir()} == {"broker-a"}
    assert not (tmp_path / "broker-c").exists()


def test_a_bug_does_not_look_like_success(
    cluster: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(follower: Follower, stop: Event, *, once: bool) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Follower, "run", broken)
    done = run_reput("follow", tmp_path / "copies", "--namesrv", cluster.namesrv, "--once", "--json")
    assert done.status == 2
    assert "broker-b: a bug" in done.err
    assert "ZeroDivisionError" in caplog.text


def test_a_port_that_is_none_is_an_error() -> None:
    assert ha_address("a:10911", {"haListenPort": "10922"}) == "a:10922"
    assert ha_address("a:10911", {"haListenPort": "0"}) == ha_address("a:10911", {}) == "a:10912"
    with pytest.raises(RemotingError, match="a:10911: haListenPort='x' is no port"):
        ha_address("a:10911", {"haListenPort": "x"})


def test_a_broker_that_comes_later_is_followed(
    cluster: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_LOOK_S", 0.02)
    with running(tmp_path / "copies", cluster.namesrv) as (_, wait):
        wait("broker-b")
        with started(tmp_path, "broker-c", cluster.namesrv) as third:
            send_numbers(third.address, 0, 5)
            wait("broker-c")


def test_a_lost_broker_is_told_once_and_followed_once_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(followers, "_LOOK_S", 0.02)
    told = "a broker is not followed yet broker=broker-b error=no name server knows where broker-b is: start it"
    with started(tmp_path, "broker-a") as first:
        lose(first.namesrv, "broker-b", "orders")
        with running(tmp_path / "copies", first.namesrv) as (all_of_them, wait):
            send_numbers(first.address, 0, 5)
            wait("broker-a")
            with started(tmp_path, "broker-b", first.namesrv) as second:
                send_numbers(second.address, 0, 5)
                wait("broker-b")
        assert not all_of_them.failures
    assert caplog.text.count("a broker is not followed yet") == 1
    assert told in caplog.text.replace('"', "")


def test_the_other_address_of_a_broker_name_is_followed_once_the_first_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_LOOK_S", 0.02)
    with started(tmp_path, "names") as names:
        with (
            started(tmp_path, "broker-a", names.namesrv) as first,
            running(tmp_path / "copies", names.namesrv) as (all_of_them, wait),
        ):
            send_numbers(first.address, 0, 5)
            wait("broker-a")
            end = all_of_them.states["broker-a"].end_offset
            first.close()
            with started(tmp_path, "broker-a", names.namesrv) as second:
                send_numbers(second.address, 5, 9)
                while all_of_them.states["broker-a"].end_offset == end:
                    pass
        assert not all_of_them.failures


def test_a_cluster_without_a_name_server_is_one_line(tmp_path: Path) -> None:
    done = run_reput("follow", tmp_path / "copies", "--namesrv", "127.0.0.1:1", "--once")
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
    with pytest.raises(RemotingError):
        broker_addresses([])


def test_either_a_master_or_name_servers(tmp_path: Path) -> None:
    for options in ((), ("--master", "a:1", "--namesrv", "a:1")):
        done = run_reput("follow", tmp_path / "copy", *options)
        assert (done.status, "give --master or --namesrv" in done.err) == (2, True)


def test_no_more_is_read_a_second_than_the_bandwidth(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "master", **SMALL) as store:
        store.put_messages([Message("orders", b"x" * 900) for _ in range(100)])
        end = store.max_commit_log_offset
    with (
        fake_master(log_of(tmp_path / "master", end), SMALL["mapped_file_size_commit_log"]) as master,
        MessageStore.open(tmp_path / "copy", **SMALL) as copy,
    ):
        begin = time.monotonic()
        Follower(copy, master.address, bandwidth=LEAST_BANDWIDTH).run(Event(), once=True)
        assert time.monotonic() - begin > (end - LEAST_BANDWIDTH) / LEAST_BANDWIDTH
    assert log_of(tmp_path / "copy", end) == log_of(tmp_path / "master", end)


def test_metrics_tell_the_lag_of_each_broker() -> None:
    metrics = FollowMetrics()
    address = metrics.serve(0)
    try:
        metrics.note("broker-a", FollowState(100, MasterLog(0, 150), True, 2500, 0, None))
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            lines = page.read().decode().splitlines()
    finally:
        metrics.close()
    for name, value in (("lag_bytes", 50), ("lag_seconds", 2.5), ("end_offset", 100), ("connected", 1)):
        assert f'reput_follow_{name}{{broker="broker-a"}} {float(value)}' in lines


@pytest.mark.parametrize(
    ("state", "lag"),
    [
        (FollowState(100, MasterLog(0, 150), True, 2500, 0, None), (50, 2500)),
        (FollowState(100, MasterLog(0, 100), False, 0, 0, "away"), None),
        (FollowState(100, None, False, 0, 0, "away"), None),
        (FollowState(100, None, True, 0, 0, None), None),
    ],
)
def test_a_lag_is_not_known_while_the_master_is_not_heard(state: FollowState, lag: tuple[int, int] | None) -> None:
    assert state.lag == lag
    metrics = FollowMetrics()
    metrics.note("broker-a", state)
    values = {one.name: one.value for family in metrics._registry.collect() for one in family.samples}
    seen = values["reput_follow_lag_bytes"], values["reput_follow_lag_seconds"] * 1000
    assert seen == (lag or (pytest.approx(nan, nan_ok=True), pytest.approx(nan, nan_ok=True)))


def test_the_command_serves_the_metrics(cluster: Broker, tmp_path: Path) -> None:
    options = ("--master", cluster.address, "--once", "--metrics-port", "0")
    done = run_reput("follow", tmp_path / "copy", *options)
    assert done.status == 0
    assert json.loads(done.err.splitlines()[0])["metrics"].startswith("http://127.0.0.1:")
