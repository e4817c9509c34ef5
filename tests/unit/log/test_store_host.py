"""The store host of records, where brokerIP1 is an address or a name."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.formats.hosts import encode_host
from reput.log.store_host import encode_store_host


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """One name has an address."""

    def look_up(name: str, *_: object) -> list[tuple[object, ...]]:
        if name == "broker-a.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1"])
def test_an_address_is_not_looked_up(names: None, address: str) -> None:
    config = MessageStoreConfig(broker_ip1=address)
    assert encode_store_host(config) == encode_host(config.store_host)


def test_the_records_of_a_broker_with_a_name_have_its_address(names: None, tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", broker_ip1="broker-a.example", listen_port=9) as store:
        store.put_message(reput.Message("orders", b"x"))
    with reput.MessageStore.open(tmp_path / "store", read_only=True) as store:
        (message,) = store.get_message("orders", 0, 0).messages()
    assert message.store_host == "192.0.2.7:9"


def test_a_name_without_an_address_is_refused_and_nothing_is_made(names: None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"brokerIP1=broker-b\.example: this machine knows no IPv4 address"):
        reput.MessageStore.open(tmp_path / "store", broker_ip1="broker-b.example")
    assert not (tmp_path / "store").exists()
