"""NamesrvConfig: the RocketMQ keys that the name server uses (`NamesrvConfig`, `NettyServerConfig`; 5.3.3 to 5.5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reput.config.rocketmq_config import config_key
from reput.config.tls import TlsConfig
from reput.formats.hosts import ALL_ADDRESSES, THIS_MACHINE
from reput.formats.java import INT64_MAX

__all__ = ["NamesrvConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig(TlsConfig):
    """Configuration of a name server; immutable. Each field also accepts text ("4096", "true").

    Raises ConfigError for a value of the wrong type or outside its bounds.
    """

    REFUSES: ClassVar[str] = "tls."

    # where
    bind_address: str = config_key(
        THIS_MACHINE, "The address on which it listens; 0.0.0.0: on all.", local=True, rocketmq=ALL_ADDRESSES
    )
    listen_port: int = config_key(9876, "The port on which it listens; 0 takes a free one.", maximum=65_535)
    kv_config_path: str = config_key(
        "~/namesrv/kvConfig.json", "The file of the values that PUT_KV_CONFIG keeps.", local=True
    )
    config_store_path: str = config_key(
        "~/namesrv/namesrv.properties", "The file of the keys that UPDATE_NAMESRV_CONFIG changes.", local=True
    )
    config_black_list: str = config_key(
        "configBlackList;configStorePath;kvConfigPath", "Keys that UPDATE_NAMESRV_CONFIG does not change.", local=True
    )

    # brokers
    scan_not_active_broker_interval: int = config_key(
        5_000, "Time between two looks for silent brokers.", unit="ms", minimum=1
    )
    server_channel_max_idle_time_seconds: int = config_key(
        120, "A connection that is silent for so long is closed.", unit="s", minimum=1
    )
    delete_topic_with_broker_registration: bool = config_key(
        False, "A topic that a broker registers no more loses its queues there."
    )
    return_order_topic_config_to_broker: bool = config_key(True, "Answer a registration with the order topics.")
    support_acting_master: bool = config_key(
        False, "In a route, the first slave of a broker without a master stands for it."
    )
    notify_min_broker_id_changed: bool = config_key(
        False, "Notify the brokers of a name when the smallest broker id changes."
    )

    # clients
    order_message_enable: bool = config_key(False, "Put the order of a topic's queues into its route.")
    enable_all_topic_list: bool = config_key(True, "Answer GET_ALL_TOPIC_LIST_FROM_NAMESERVER.")
    enable_topic_list: bool = config_key(True, "Answer the other lists of topics.")
    need_wait_for_service: bool = config_key(False, "Answer no route before all brokers had time to register.")
    wait_seconds_for_service: int = config_key(45, "... so long after the start.", unit="s", maximum=INT64_MAX // 1000)
