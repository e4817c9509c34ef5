"""NameServer: the name server on its port. It may run in a broker's process and loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from reput.config.arguments import an_object_of, check_flag, check_function, check_text, optional, whole
from reput.config.namesrv import NamesrvConfig
from reput.errors import RemotingError
from reput.events import Event
from reput.files import DISK
from reput.files.layer import FileLayer
from reput.formats.hosts import is_of_this_machine
from reput.namesrv.configuration import Configuration
from reput.namesrv.kv_config_manager import KVConfigManager
from reput.namesrv.request_processor import Clock, RequestProcessor
from reput.namesrv.route_info_manager import MinBrokerIdChange, RouteInfoManager
from reput.remoting.body_bounds import most_body
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.requests import Requests
from reput.transport.server import RemotingServer
from reput.transport.server_tls import ServerTls
from reput.transport.tls import ClientTls

logger = logging.getLogger("reput.namesrv")

#: Longest waits at the end: for requests that are worked on, and for answers that are not sent yet.
_DRAIN_S, _CLOSE_S = 1.0, 0.5


class NameServer:
    """Answers brokers and clients from `start` to `stop`; all of it in the loop's thread.

    Args:
        now_ms: A clock that never goes back.
        files: Where the KV values and the configuration are kept.
        changes_keys: Whether UPDATE_NAMESRV_CONFIG changes keys; a broker's own name server refuses it.

    Raises:
        ConfigError: A certificate of the configuration cannot be used, or a key asks for what RocketMQ alone does.
    """

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        files: FileLayer = DISK,
        changes_keys: bool = True,
    ) -> None:
        optional(an_object_of(NamesrvConfig))("config", config)
        an_object_of(FileLayer)("files", files)
        check_function("now_ms", now_ms)
        check_flag("changes_keys", changes_keys)
        config = config or NamesrvConfig()
        config.require_startable()
        self._now_ms = now_ms
        self._routes = RouteInfoManager(config)
        self._kv_configs = KVConfigManager(config.kv_config_path, files)
        self._configuration = Configuration(config, self._changed if changes_keys else None, files)
        processor = RequestProcessor(
            self._routes, self._kv_configs, self._configuration, Clock(now_ms, now_ms()), self._notify
        )
        self._requests = Requests(processor.handlers(), most_body=most_body)
        self._server = RemotingServer(
            self, max_idle_s=config.server_channel_max_idle_time_seconds, tls=ServerTls.of(config)
        )
        self._client = RemotingClient(tls=ClientTls.of(config))
        self._telling: set[asyncio.Task[None]] = set()
        self._scan_timer: asyncio.TimerHandle | None = None

    async def start(self, host: str | None = None, port: int | None = None) -> int:
        """Read the KV values and listen, without arguments as configured; returns the port, a free one for 0.

        Raises RemotingError if the port is taken, and CorruptMetadataError or StoreError if the file of KV values
        cannot be read.
        """
        optional(check_text)("host", host)
        optional(whole(0, (1 << 16) - 1))("port", port)
        config = self._configuration.config
        self._kv_configs.load()
        host = config.bind_address if host is None else host
        bound = await self._server.start(host, config.listen_port if port is None else port)
        self._configuration.config = replace(config, bind_address=host, listen_port=bound)  # what operators are shown
        if not is_of_this_machine(host):
            what = (
                "whoever reaches the name server may register brokers, and change routes: it asks nobody, as RocketMQ's"
            )
            logger.warning(Event(what, listens=host, port=bound))
        self._scan_later()
        return bound

    async def join(self, connection: Connection) -> Connection:
        """Connect a client of this loop, without the network; returns the client's side."""
        return await self._server.join(connection)

    async def stop(self) -> None:
        """Answer what is being worked on, and close the port and all connections; takes at most 1.5 s."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        await self._requests.drain(_DRAIN_S)
        await self._server.stop(_CLOSE_S)
        for task in self._telling:
            task.cancel()
        self._client.close()

    # -- silent brokers

    def scan_not_active_broker(self) -> None:
        """Forget the brokers that were silent for too long, and close their connections; a timer calls it."""
        expired = self._routes.scan_not_active_broker(self._now_ms())
        for connection in expired.channels:
            connection.abort()
        for change in expired.changes:
            self._notify(change)

    def _scan_later(self) -> None:
        seconds = self._configuration.config.scan_not_active_broker_interval / 1000
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan)

    def _scan(self) -> None:
        self._scan_later()
        self.scan_not_active_broker()

    # -- what brokers are told

    def _notify(self, change: MinBrokerIdChange) -> None:
        for address in change.addresses:
            task = asyncio.get_running_loop().create_task(self._tell(address, change))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, address: str, change: MinBrokerIdChange) -> None:
        command = RemotingCommand(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=encode_header(change.header))
        try:
            (await self._client.connection(address)).send_one_way(command)
        except RemotingError as error:
            logger.warning(Event("a broker is not notified of the smallest broker id", broker=address, error=error))

    def _changed(self, config: NamesrvConfig) -> None:
        self._routes.config = config

    # -- Owner of the connections

    def opened(self, connection: Connection) -> None:
        """Called by a connection."""

    def readable(self, connection: Connection) -> None:
        """Called by a connection."""
        self._requests.take_all(connection)

    def closed(self, connection: Connection) -> None:
        """Called by a connection."""
        for change in self._routes.channel_closed(connection, self._now_ms()):
            self._notify(change)
