"""Registration: name servers know the broker and its topics (`BrokerOuterAPI`)."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from reput.config.broker import BrokerConfig
from reput.errors import RemotingError
from reput.events import Event
from reput.formats.metadata import TopicConfig
from reput.remoting.body import decode_body, encode_body
from reput.remoting.codes import VERSION_SINGLE_TOPICS, PermName, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.namesrv_headers import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from reput.remoting.route_bodies import (
    QueueData,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    encode_register_body,
)
from reput.store.message_store import MessageStore
from reput.transport.client import RemotingClient

logger = logging.getLogger("reput.broker")

_UNREGISTER_S = 1.0
#: A topic that is registered by itself costs broker and name server as much as so many in a registration of all.
_COST_OF_ONE = 20


def _nobody_asks(master: str | None, ha_address: str | None) -> None:
    """The broker is a master."""


class Registration:
    """Registers at all name servers: all topics at the start and by a period, and what changes at once.

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
        self._registering_each = asyncio.Lock()
        self._wanted_each = self._done_each = 0
        self._each: set[str] = set()  # topics that the next registration of single ones is to have
        self._have_each = True  # whether all name servers have what the last one was for
        self._changed: set[str] = set()  # topics that were registered while a registration of all was under way
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
        while self._changed:  # what is older may have come later
            changed, self._changed = self._changed, set()
            await self._register_each(changed)

    async def register_topics(self, topics: Collection[str]) -> None:
        """Register topics that were made or changed (`registerSingleTopicAll`); returns as `register` does.

        Each is registered by itself, so that a new topic does not cost as much as all topics that are there. All are
        registered if that is cheaper, or if a name server does not have the others, as one that was started anew, or
        takes no single topics, as those of RocketMQ 4.
        """
        if len(topics) * _COST_OF_ONE >= len(self._store.topic_metadata.topic_config_table):
            await self.register()
            return
        if self._registering.locked():
            self._changed.update(topics)
        if not await self._register_each(topics):
            await self.register()

    async def _register_each(self, topics: Collection[str]) -> bool:
        """Register single topics as they are now; False if a name server needs a registration of all.

        Calls that come meanwhile share the next one: a name server that is silent is waited for once, and not by each
        of them after the other.
        """
        self._each.update(topics)
        self._wanted_each += 1
        mine = self._wanted_each
        async with self._registering_each:  # a name server may take what comes at once in any order
            if self._done_each < mine:
                including, each, self._each = self._wanted_each, self._each, set()
                try:
                    self._have_each = await self._register_together(each)
                except BaseException:
                    self._each |= each  # others wait for them
                    raise
                self._done_each = including
            return self._have_each

    async def _register_together(self, topics: Collection[str]) -> bool:
        table = self._store.topic_metadata.topic_config_table
        configs = [table[topic] for topic in topics if topic in table]
        return all(await asyncio.gather(*(self._register_each_at(one, configs) for one in self._name_servers)))

    async def _register_each_at(self, name_server: str, topics: Sequence[TopicConfig]) -> bool:
        config, call = self.config, self._client.call
        header = QueryDataVersionRequestHeader(
            config.broker_name, self._address, config.broker_cluster_name, config.broker_id
        )
        body = encode_body(self._store.topic_metadata.data_version)
        query = RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext_fields=encode_header(header), body=body)
        try:
            known = await call(name_server, query)
            if name_server not in self._is_at or known.code != ResponseCode.SUCCESS or not known.body:
                return False  # a topic of a broker that it does not know is answered, and dropped
            if known.version < VERSION_SINGLE_TOPICS:
                return False
            answers = await asyncio.gather(*(call(name_server, _topic_command(config, topic)) for topic in topics))
        except RemotingError as error:
            self._cannot(name_server, error)  # the next registration of all has these topics, too
            return True
        return all(answer.code == ResponseCode.SUCCESS for answer in answers)

    @property
    def ha_address(self) -> str:
        """HA address, from which slaves get the log."""
        host, _, port = self._address.rpartition(":")
        return f"{host}:{self.config.ha_listen_port or int(port) + 1}"

    def _command(self) -> tuple[dict[str, str], bytes]:
        """Fields and body of REGISTER_BROKER."""
        config, address = self.config, self._address
        topics = self._store.topic_metadata
        table = topics.topic_config_table
        if not _is_open(config):
            table = {name: _as_registered(one, config) for name, one in table.items()}
        body = encode_register_body(RegisterBrokerBody(TopicConfigSerializeWrapper(table, topics.data_version)))
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
            self._cannot(name_server, error)
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

    def _cannot(self, name_server: str, error: RemotingError) -> None:
        self._is_at.discard(name_server)
        logger.warning(Event(f"cannot register at {name_server}", error=error))

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


def _is_open(config: BrokerConfig) -> bool:
    """Whether clients may write to the broker, and read: one where they may not, says so of each topic."""
    return config.broker_permission & (PermName.READ | PermName.WRITE) == PermName.READ | PermName.WRITE


def _as_registered(topic: TopicConfig, config: BrokerConfig) -> TopicConfig:
    """A topic as name servers get it."""
    return topic if _is_open(config) else replace(topic, perm=topic.perm & config.broker_permission)


def _topic_command(config: BrokerConfig, topic: TopicConfig) -> RemotingCommand:
    """REGISTER_TOPIC_IN_NAMESRV (`BrokerOuterAPI.registerSingleTopicAll`)."""
    one = _as_registered(topic, config)
    queues = QueueData(config.broker_name, one.read_queue_nums, one.write_queue_nums, one.perm, one.topic_sys_flag)
    fields = encode_header(RegisterTopicRequestHeader(one.topic_name))
    return RemotingCommand(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext_fields=fields, body=encode_body(TopicRouteData((queues,)))
    )
