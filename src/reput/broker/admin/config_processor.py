"""The broker's configuration, shown and changed by requests (`Configuration`, `AdminBrokerProcessor`)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from reput.broker.clock import BrokerClock
from reput.broker.config_checks import keys_of_start
from reput.broker.disk_work import DiskPools
from reput.broker.registration import Registration
from reput.broker.view import BrokerView
from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case, change_properties, format_properties, parse_properties
from reput.config.rocketmq_config import key_texts, keys_of, refused_keys
from reput.errors import ConfigError
from reput.events import Event
from reput.files import FileLayer
from reput.formats.metadata import DataVersion
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

#: Where changes are kept by a broker that was started without a broker.conf (`BrokerPathConfigHelper`).
_FILE = "broker.properties"
#: Keys that count at once. All others count from the next start on.
_OF_BROKER = frozenset(
    """
    auto_create_subscription_group auto_create_topic_enable broker_permission default_query_max_num
    enable_auto_in_sync_replicas enable_property_filter ha_max_gap_not_in_sync in_sync_replicas
    lite_pull_message_enable long_polling_enable min_in_sync_replicas notify_consumer_ids_changed_enable
    reject_transaction_message short_polling_time_mills slave_timeout start_accept_send_request_time_stamp
    store_reply_message_enable transaction_check_max transaction_time_out use_server_side_reset_offset
    """.split()
)
#: ... of the store: what retention goes by.
_OF_RETENTION = frozenset(
    """
    clean_file_forcibly_enable clean_resource_interval delete_commit_log_files_interval
    delete_consume_queue_files_interval delete_file_batch_max delete_when disk_max_used_space_ratio
    disk_space_clean_forcibly_ratio disk_space_warning_level_ratio file_reserved_time
    """.split()
)

#: Lines of a request, which are read in the loop: twice as many as brokers of RocketMQ have keys.
_MOST_LINES = 1024
#: A key that has one value here; `mqadmin exportConfigs` of 4.9 fails without it.
_FIXED = {"filterServerNums": "0"}


class ConfigProcessor:
    """Takes requests that show and change the broker's keys.

    Args:
        view, clock, pools, store, registration, change_config: The broker's.
        files: The file layer.
        path: The broker.conf in which changes are kept; None for `config/broker.properties` of the store.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        registration: Registration,
        change_config: Callable[[BrokerConfig], None],
        files: FileLayer,
        path: str | None,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._registration, self._change_config = registration, change_config
        self._files = files
        self._path = path or os.path.join(store.path, "config", _FILE)
        self._config, self._chosen_store_config = view.config, store.config  # as of the next start
        self._version = DataVersion(timestamp=clock.now_ms())
        self._changing = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_BROKER_CONFIG: self.broker_config,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
        }

    def broker_config(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The keys of broker and store as a properties text, as they are at the next start."""
        values = key_texts(self._store_config, MessageStoreConfig) | key_texts(self._config, BrokerConfig)
        values |= _FIXED | {"useTLS": values["tls.enable"]}
        version = encode_body(self._version).decode()
        return command.response(ext_fields={"version": version}, body=format_properties(values).encode())

    async def update_config(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Change keys by a properties text, all or none; answered when the file has them, too."""
        lines = command.body.count(b"\n") + command.body.count(b"\r")
        if lines > _MOST_LINES:
            remark = f"UPDATE_BROKER_CONFIG: {lines} lines; expected {_MOST_LINES} at most"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        changes = parse_properties(command.body.decode("utf-8", "replace"), "UPDATE_BROKER_CONFIG")
        if refused_keys(changes, self._config.config_black_list, BrokerConfig, MessageStoreConfig):
            return command.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        async with self._changing:
            config, store_config, _ = broker_configs(changes, base=self._config, store_base=self._store_config)
            _refuse_other_files(self._store_config, store_config)
            await self._pools.writes.run_for(connection, keys_of_start, config, store_config)
            await self._pools.writes.run_for(connection, self._write, changes)
            self._config, self._chosen_store_config = config, store_config
            self._version = replace(self._version, counter=self._version.counter + 1, timestamp=self._clock.now_ms())
            await self._use(config, store_config)
        logger.info(Event("configuration changed", keys=",".join(changes), file=self._path, client=connection.remote))
        return command.response()

    @property
    def _store_config(self) -> MessageStoreConfig:
        """The store's keys as of the next start; a slave's log may have got the size of its master's files."""
        size = self._store.config.mapped_file_size_commit_log
        return replace(self._chosen_store_config, mapped_file_size_commit_log=size)

    def _write(self, changes: Mapping[str, str]) -> None:
        before = self._files.read_bytes(self._path).decode("utf-8", "replace") if self._files.exists(self._path) else ""
        self._files.make_directories(os.path.dirname(os.path.abspath(self._path)))
        self._files.write_atomically(self._path, change_properties(before, self._path, changes).encode())

    async def _use(self, config: BrokerConfig, store_config: MessageStoreConfig) -> None:
        """Let those keys count that count at once."""
        permission = self._view.config.broker_permission
        self._change_config(replace(self._view.config, **{name: getattr(config, name) for name in _OF_BROKER}))
        kept = {name: getattr(store_config, name) for name in _OF_RETENTION}
        self._store.change_retention(replace(self._store.config, **kept))
        if config.broker_permission != permission:
            await self._pools.writes.run(
                self._store.update_topics, []
            )  # name servers look at topics of a new version alone
            await self._registration.register()


def _refuse_other_files(before: MessageStoreConfig, after: MessageStoreConfig) -> None:
    """Raise ConfigError if the store would look for files of other sizes."""
    for name, key in keys_of(MessageStoreConfig).items():
        if key.metadata["frozen"] and getattr(before, name) != getattr(after, name):
            raise ConfigError(
                f"{camel_case(name)}={getattr(after, name)}: the store's files are of "
                f"{camel_case(name)}={getattr(before, name)}; nothing was changed"
            )
