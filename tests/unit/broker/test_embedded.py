"""A broker in a thread of a program."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest

from reput import Broker, MessageStore
from reput.errors import ConfigError, RemotingError, StoreLockedError
from reput.remoting.codes import RequestCode
from reput.testing import LocalBroker
from tests.support.asking import call
from tests.support.broker import SMALL, send_command
from tests.support.namesrv import asked_name_server

HERE = SMALL | {"bind_address": "127.0.0.1"}


def ask(address: str) -> int:
    """Code of the answer to a send."""
    return call(address, send_command("orders", b"x")).code


def test_a_program_has_a_broker_and_closes_it_clean(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        assert ask(broker.address) == 0
        assert repr(broker) == f"Broker({broker.address}, namesrv={broker.namesrv})"
        assert broker.namesrv.startswith("127.0.0.1:")
    broker.close()
    assert not (tmp_path / "store/abort").exists()
    with MessageStore.open(tmp_path / "store", **SMALL) as store:
        assert store.max_offset("orders", 0) == 1
        with pytest.raises(StoreLockedError):
            Broker.start(tmp_path / "store", **HERE)


@pytest.mark.parametrize("kind", [Broker, LocalBroker])
def test_a_broker_that_is_made_by_its_class_says_how_it_is_started(tmp_path: Path, kind: type[Broker]) -> None:
    with pytest.raises(ConfigError, match=rf"write {kind.__name__}\.start\('store'\)"):
        kind("store")  # type: ignore[arg-type]


def test_a_broker_starts_serves_and_closes_in_two_seconds(tmp_path: Path) -> None:
    def seconds(number: int) -> float:
        begin = time.monotonic()
        with Broker.start(tmp_path / str(number), **HERE) as broker:
            assert ask(broker.address) == 0
        return time.monotonic() - begin

    assert any(seconds(number) < 2 for number in range(5)), "a machine that stands still does so once"


def test_clients_are_told_the_brokers_host_name(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", broker_ip1="localhost", **HERE) as broker:
        assert broker.address.startswith("localhost:")
        assert broker.namesrv.startswith("localhost:")
        assert ask(broker.address) == 0
    with MessageStore.open(tmp_path / "store", **SMALL) as store:
        (message,) = store.get_message("orders", 0, 0).messages()
        assert message.store_host == broker.address.replace("localhost", "127.0.0.1")


def test_messages_are_synced_unless_the_program_says_otherwise(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", mapped_file_size_commit_log=1 << 20, bind_address="127.0.0.1") as broker:
        assert broker._controller._state.store.config.flush_disk_type == "SYNC_FLUSH"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"brokerNme": "a"}, "brokerNme.*did you mean brokerName"),
        ({"broker_permission": 9}, "brokerPermission=9"),
        ({"namesrv_addr": "nowhere"}, "'nowhere' is no HOST:PORT"),
        ({"flushDiskType": "SOMETIMES"}, "flushDiskType"),
    ],
)
def test_a_wrong_key_is_an_error_and_nothing_is_made(tmp_path: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Broker.start(tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_an_error_and_nothing_is_made_and_a_free_one_is_taken_then(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RemotingError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another one, or 0"):
            Broker.start(tmp_path / "store", port=port, **HERE)
        with pytest.raises(RemotingError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another one, or 0"):
            Broker.start(tmp_path / "store", namesrv_port=port, **HERE)
    assert list(tmp_path.iterdir()) == []
    with Broker.start(tmp_path / "store", port=port, **HERE) as broker:
        assert ask(broker.address) == 0


async def test_brokers_of_one_process_register_at_a_name_server_elsewhere(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:

        def both() -> None:
            keys = HERE | {"namesrv_addr": asked.address}
            with Broker.start(tmp_path / "a", **keys) as a, Broker.start(tmp_path / "b", brokerName="b", **keys):
                assert a.namesrv == asked.address
                code = asyncio.run_coroutine_threadsafe(asked.ask(RequestCode.GET_BROKER_CLUSTER_INFO), loop)
                names.append(sorted(json.loads(code.result().body)["brokerAddrTable"]))

        names: list[list[str]] = []
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(both)
        assert names == [["b", "broker-a"]]
