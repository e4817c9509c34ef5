"""Checks of the keys that a broker starts with: at a start, and before changed keys are kept for the next one."""

from __future__ import annotations

from dataclasses import replace

from reput.broker.access.access import check_keys
from reput.broker.pulls.message_filters import require_parser
from reput.broker.topic_creation import own_topics
from reput.config.broker import BrokerConfig, BrokerRole, MetricsExporterType
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.extras import require


def keys_of_start(config: BrokerConfig, store_config: MessageStoreConfig) -> MessageStoreConfig:
    """The store's keys for a broker with these keys: a slave delivers no timers. It looks at no file of the keys'.

    Raises ConfigError if no broker starts with them, or a package is missing that they need.
    """
    config.require_startable()
    store_config.require_startable()
    store_config = _with_role(config, store_config)
    own_topics(config, store_config)
    check_keys(config)
    if config.metrics_exporter_type is MetricsExporterType.PROM:
        require("prometheus_client", "metricsExporterType=PROM")
    if config.enable_property_filter or maps_filters(config, store_config):
        require_parser()
    return store_config


def check_ports(config: BrokerConfig, store_config: MessageStoreConfig, namesrv_port: int | None) -> None:
    """Refuse one port for two purposes: Linux lets both be taken as long as nobody listens, so no later look finds it.

    Args:
        config, store_config: The broker's.
        namesrv_port: Of its own name server; None for none.

    Raises ConfigError with both names.
    """
    wanted = {"listenPort": store_config.listen_port, "haListenPort": config.ha_listen_port}
    if config.grpc_server_port:
        wanted["grpcServerPort"] = config.grpc_server_port
    if namesrv_port is not None:
        wanted["the name server's port"] = namesrv_port
    if config.metrics_exporter_type is MetricsExporterType.PROM:
        wanted["metricsPromExporterPort"] = config.metrics_prom_exporter_port
    names: dict[int, str] = {}
    for name, port in wanted.items():
        other = names.setdefault(port, name)
        if port and other != name:  # 0 takes a free one, or none
            raise ConfigError(f"{other} and {name} are both {port}: each needs a port of its own")


def maps_filters(config: BrokerConfig, store_config: MessageStoreConfig) -> bool:
    """Whether units of queues get a bit map of the filters that they pass."""
    return config.enable_calc_filter_bit_map and store_config.enable_consume_queue_ext


def _with_role(config: BrokerConfig, store_config: MessageStoreConfig) -> MessageStoreConfig:
    """Raises ConfigError for a slave that cannot be one, and for light queues, which no consumer could pull."""
    if store_config.enable_lmq and store_config.enable_multi_dispatch:
        raise ConfigError(
            "enableLmq=true with enableMultiDispatch=true: this broker gives no consumer what is in a light queue "
            "(%LMQ%...), so it takes nothing for one; leave enableLmq out"
        )
    if config.broker_role is not BrokerRole.SLAVE:
        return store_config
    if not config.broker_id:
        raise ConfigError("brokerRole=SLAVE needs a brokerId of 1 or more; 0 is the master's")
    if not config.name_servers:
        raise ConfigError("brokerRole=SLAVE needs namesrvAddr: name servers say which broker is the master")
    return replace(store_config, timer_wheel_enable=False)
