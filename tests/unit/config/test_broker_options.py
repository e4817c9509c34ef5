"""BrokerOptions: a checker knows each key of Broker.start and its type."""

from __future__ import annotations

from enum import StrEnum

from reput.config.broker import BrokerConfig, BrokerRole, MetricsExporterType
from reput.config.broker_options import BrokerOptions
from reput.config.message_store_options import MessageStoreOptions
from reput.config.rocketmq_config import keys_of
from reput.config.tls import ClientAuth, TlsMode
from reput.formats.consumers import MessageRequestMode

CHOICES: tuple[type[StrEnum], ...] = (BrokerRole, ClientAuth, MessageRequestMode, MetricsExporterType, TlsMode)


def test_each_key_is_typed_as_in_the_configurations() -> None:
    types = {kind.__name__: f"{kind.__name__} | Literal{[one.value for one in kind]}" for kind in CHOICES}
    expected = {name: types.get(key.type, key.type) for name, key in keys_of(BrokerConfig).items()}
    typed = {name: one.__forward_arg__ for name, one in BrokerOptions.__annotations__.items()}
    store = {name: one.__forward_arg__ for name, one in MessageStoreOptions.__annotations__.items()}
    assert {name: one.replace('"', "'") for name, one in typed.items()} == expected | store
