"""Registration: name servers know the broker and its topics (`BrokerOuterAPI`)."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from reput.config.broker import BrokerConfig
from reput.errors import RemotingError
from reput.events import Event
from reput.formats.metadata import Topics
from reput.remoting.body import decode_body
from reput.remoting.codes import PermName, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.namesrv_headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from reput.remoting.route_bodies import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    encode_register_body,
)
from reput.store.message_store import MessageStore
from reput.transport.client import RemotingClient

logger = logging.getLogger("reput.broker")

_UNREGISTER_S = 1.0


def _nobody_asks(master: str | None, ha_address: str | None) -> None:
    """The broker is a master."""


class Registration:
    """Registers at all name servers: at the start, by a period, and when topics change.

    Args:
        config: The broker's; may be changed later.
        store: Has the topics.
        address: "host:port" that clients get.
        name_servers: "host:port" of each.
        client: Reaches them; it is closed at the end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        address: str,
        name_servers: Sequence[str],
        client: RemotingClient,
    ) -> None:
        self.config = config
        self._store = store
        self._address = address
        self._name_servers = tuple(name_servers)
        self._client = client
        self._registering = asyncio.Lock()
        self._wanted = self._done = 0
        self._is_at: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._on_master: Callable[[str | None, str | None], None] = _nobody_asks

    def tell_master(self, on_master: Callable[[str | None, str | None], None]) -> None:
        """Call a slave's function after each answer of a name server: the address of the master, and its HA address."""
        self._on_master = on_master

    def start(self) -> None:
        """Register by the period from now on."""
        self._task = asyncio.get_running_loop().create_task(self._keep_registered())

    async def _keep_registered(self) -> None:
        while True:
            await asyncio.sleep(self.config.register_name_server_period / 1000)
            await self.register()

    async def register(self) -> None:
        """Register all topics as they are now; returns when each name server has answered, or cannot.

        Calls that come while a registration is under way share the next one.
        """
        self._wanted += 1
        mine = self._wanted
        async with self._registering:
            if self._done >= mine or self._is_stopped:
                return
            including = self._wanted
            command_of = await asyncio.to_thread(self._command)  # of 10,000 topics it takes 70 ms
            await asyncio.gather(*(self._register_at(one, command_of) for one in self._name_servers))
            self._done = including

    @property
    def ha_address(self) -> str:
        """HA address, from which slaves get the log."""
        host, _, port = self._address.rpartition(":")
        return f"{host}:{self.config.ha_listen_port or int(port) + 1}"

    def _command(self) -> tuple[dict[str, str], bytes]:
        """Fields and body of REGISTER_BROKER."""
        config, address = self.config, self._address
        topics = self._store.topic_metadata
        body = encode_register_body(RegisterBrokerBody(_wrapper(topics, config.broker_permission)))
        header = RegisterBrokerRequestHeader(
            config.broker_name, address, config.broker_cluster_name, self.ha_address, config.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )  # fmt: skip
        return encode_header(header), body

    async def _register_at(self, name_server: str, command_of: tuple[dict[str, str], bytes]) -> None:
        fields, body = command_of
        timeout_s = self.config.register_broker_timeout_mills / 1000
        command = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=fields, body=body)
        try:
            answer = await self._client.call(name_server, command, timeout_s)
        except RemotingError as error:
            self._is_at.discard(name_server)
            logger.warning(Event(f"cannot register at {name_server}", error=error))
            return
        if answer.code != ResponseCode.SUCCESS:
            self._is_at.discard(name_server)
            logger.warning(Event(f"registration refused by {name_server}", code=answer.code, remark=answer.remark))
            return
        if name_server not in self._is_at:
            self._is_at.add(name_server)
            logger.info(Event("registered", namesrv=name_server))
        told = decode_header(RegisterBrokerResponseHeader, answer.ext_fields)
        self._on_master(told.master_addr, told.ha_server_addr)

    async def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic, by the first name server that answers; None for an unknown topic.

        Raises RemotingError if none answers.
        """
        failure: RemotingError = RemotingError("the broker has no name server")
        for name_server in self._name_servers:
            command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
            try:
                answer = await self._client.call(name_server, command)
            except RemotingError as error:
                failure = error
                continue
            return decode_body(TopicRouteData, answer.body) if answer.code == ResponseCode.SUCCESS else None
        raise failure

    async def stop(self) -> None:
        """Unregister at all name servers."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        config, address = self.config, self._address
        header = UnRegisterBrokerRequestHeader(
            config.broker_name, address, config.broker_cluster_name, config.broker_id
        )

        async def unregister(name_server: str) -> None:
            command = RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=encode_header(header))
            try:
                await self._client.call(name_server, command, _UNREGISTER_S)
            except RemotingError as error:
                logger.warning(Event(f"cannot unregister at {name_server}", error=error))
            else:
                logger.info(Event("unregistered", namesrv=name_server))

        await asyncio.gather(*map(unregister, self._name_servers))
        self._client.close()


def _wrapper(topics: Topics, broker_permission: int) -> TopicConfigSerializeWrapper:
    """The topics as they are registered: a broker that clients may not write to, or read, says so of each topic."""
    table = topics.topic_config_table
    if broker_permission & (PermName.READ | PermName.WRITE) != PermName.READ | PermName.WRITE:
        table = {name: replace(config, perm=config.perm & broker_permission) for name, config in table.items()}
    return TopicConfigSerializeWrapper(table, topics.data_version)
