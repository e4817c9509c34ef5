"""The store host of records: address and port of the broker that wrote them."""

from __future__ import annotations

import socket
from functools import cache

from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError
from reput.formats.hosts import encode_host


def encode_store_host(config: MessageStoreConfig) -> bytes:
    """The store host of records that are written with a configuration: 8 or 20 bytes.

    A host name has the IPv4 address that it had when this process first asked, as RocketMQ looks it up at its start
    (`BrokerController.getStoreHost`).

    Raises ConfigError if the name has none.
    """
    try:
        return encode_host(config.store_host)
    except MessageIllegalError:
        return encode_host(f"{_address_of(config.broker_ip1)}:{config.listen_port}")


@cache
def _address_of(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"brokerIP1={name}: this machine knows no IPv4 address of the name ({error}); give an address"
        ) from None
