"""ClientInstance: what a producer or a consumer has below it: connections, routes, heartbeats (`MQClientInstance`)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from reput.client.instance.mq_client_api import MQClientAPI
from reput.client.instance.name_servers import NameServers, name_server_addresses
from reput.client.instance.peer_log import peers
from reput.client.instance.send_answers import SendAnswers
from reput.client.instance.topic_route import master_away
from reput.client.instance.topic_routes import TopicRoutes
from reput.errors import AccessDeniedError, MQClientError, RemotingError, ReputError
from reput.events import Event
from reput.formats.unique_id import UniqueIds
from reput.transport.client import RemotingClient
from reput.transport.requests import Handler, Requests
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    from reput.client.instance.session_credentials import SessionCredentials

logger = logging.getLogger("reput.client")

#: Heartbeats and routes: below the 30 s of RocketMQ's clients, so that 30 s without a change suffice for all to agree.
_REFRESH_S, _AGAIN_S = 28.0, 1.0
#: The system's; the module `secrets` takes longer to import.
_RANDOM = random.SystemRandom()
#: How long a client that leaves waits for its brokers.
_LEAVE_S = 3.0


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a plain method, called in a thread
        return None


def not_started(what: str) -> MQClientError:
    """The error of a call outside of a client's life."""
    return MQClientError(f"this {what}: use it inside of `async with`, or of `with` if it is of reput.client.sync")


class ClientInstance:
    """One client of a cluster, known to brokers by its id. It belongs to one event loop, and to one process.

    Args:
        namesrv: "host:port" of the name servers, separated by `;`.
        handlers: Of what brokers ask, by request code.
        heartbeat: Makes the body of a heartbeat, by the client's id.
        tls: How to talk TLS; None for the plain protocol.
        credentials: Sign each request; None for none.
        with_slaves: Heartbeats go to slaves, too: they are where consumers pull.
        with_lost: Routes have the queues of lost brokers, too (`NameServers.route`).

    Attributes:
        client_id: "host@process#number".
        is_open: Between `start` and `close`.
        versions: The version of each broker that a heartbeat reached, by its address (`MQVersion`).
        on_route_change: Called after routes have changed.
        before_close: Called once before it is closed, also if it was not started: traces that wait are sent.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        handlers: Mapping[int, Handler],
        heartbeat: Callable[[str], bytes],
        with_slaves: bool = False,
        with_lost: bool = False,
        tls: ClientTls | None = None,
        credentials: SessionCredentials | None = None,
    ) -> None:
        addresses = name_server_addresses(namesrv)
        self.client_id = f"{socket.gethostname()}@{os.getpid()}#{_RANDOM.getrandbits(48)}"
        self.versions: dict[str, int] = {}
        self.remoting = RemotingClient(Requests(handlers, decode=SendAnswers().decode), tls=tls)
        self.remoting.on_connect = self._connected
        self.api = MQClientAPI(self.remoting, credentials)
        self.name_servers = NameServers(addresses, self.api)
        self.routes = TopicRoutes(partial(self.name_servers.route, with_lost=with_lost), self._route_changed)
        self.on_route_change: Callable[[], None] = lambda: None
        self.before_close: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._ids = UniqueIds(_RANDOM.randbytes(8), os.getpid())
        self._heartbeat = heartbeat
        self._with_slaves = with_slaves
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_open = False
        self._wake = asyncio.Event()
        self._beating: set[str] = set()  # brokers that are asked to take a heartbeat
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to refresh routes and to send heartbeats."""
        if self.is_open:
            raise self.no_second_start()
        self.is_open = True
        self._loop = asyncio.get_running_loop()
        self.spawn(self._keep_fresh())

    def no_second_start(self) -> MQClientError:
        """The error of a client that was started before: its connections and tasks are of one life."""
        return MQClientError(
            "this client is started already" if self.is_open else "this client was closed: make another one"
        )

    def check_open(self) -> None:
        """Raises MQClientError unless it is started, and is not closed, and process and event loop are its own."""
        if os.getpid() != self._process:
            raise MQClientError("this client was made before the process forked: make another one in this process")
        if not self.is_open:
            raise not_started("client is not started, or closed")
        if _running_loop() is not self._loop:  # connections that another loop begins would end with it
            raise MQClientError(
                "this client was started in another event loop: make one inside of each `asyncio.run`; clients of "
                "reput.client.sync may be used from any thread"
            )

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background, until it ends or the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error(Event("work of a client in the background failed"), exc_info=task.exception())

    async def close(self, leave: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """End what runs in the background, leave each broker (`leave(address)`), and close the connections."""
        before, self.before_close = self.before_close, None
        try:
            if before is not None:
                await before()
        finally:
            await self._close(leave)

    async def _close(self, leave: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        if not self.is_open:
            return
        self.check_open()
        self.is_open = False
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_LEAVE_S):
                await asyncio.gather(*(self._left(leave(address)) for address in self.versions))
        except TimeoutError:
            logger.warning(Event("a broker did not answer before this client left", seconds=_LEAVE_S))
        finally:
            self.remoting.close()

    async def _left(self, leaving: Coroutine[Any, Any, None]) -> None:
        try:
            await leaving
        except ReputError as error:
            logger.info(Event("a broker was left without its answer", error=error))

    # -- times and ids

    def now_ms(self) -> int:
        """The time, in ms since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def unique_key(self) -> str:
        """The id of a new message."""
        return self._ids.create(self.now_ms())

    def unique_keys(self, count: int) -> list[str]:
        """The ids of `count` new messages."""
        now_ms = self.now_ms()
        return [self._ids.create(now_ms) for _ in range(count)]

    # -- background

    def _route_changed(self) -> None:
        self._wake.set()
        self.on_route_change()

    def _connected(self, address: str) -> None:
        """Tell a broker who is here over each new connection: one that was started again has forgotten it.

        Beside all others: a broker, or a name server, that does not answer holds up no heartbeat to another one.
        """
        self.versions.pop(address, None)
        is_broker = address in self.routes.addresses(with_slaves=self._with_slaves)
        if self.is_open and is_broker and address not in self._beating:  # else its heartbeat goes over the connection
            self.spawn(self._tell(address))

    async def _tell(self, address: str) -> None:
        """Send a heartbeat; one that fails is sent again soon."""
        if await self._heartbeat_to(address, self._heartbeat(self.client_id)) is not None:
            self._wake.set()

    async def _keep_fresh(self) -> None:
        """Send heartbeats to new brokers at once, and to all each 28 s, after their routes.

        A broker that takes none is asked again a second later, then less and less often: until it knows who is here it
        gives members no share, and asks no producer.
        """
        loop = asyncio.get_running_loop()
        next_at, pause_s = loop.time() + _REFRESH_S, _AGAIN_S
        while True:
            again_at = next_at if self._all_know else loop.time() + pause_s
            try:
                async with asyncio.timeout_at(min(next_at, again_at)):
                    await self._wake.wait()
                pause_s = _AGAIN_S
            except TimeoutError:
                pause_s *= 2
            self._wake.clear()
            if is_due := loop.time() >= next_at:
                next_at = loop.time() + _REFRESH_S
                await self.routes.refresh()
            await self.heartbeat(only_new=not is_due)

    @property
    def _all_know(self) -> bool:
        """Whether each broker has taken a heartbeat."""
        return self.routes.addresses(with_slaves=self._with_slaves) <= self.versions.keys()

    async def heartbeat(self, *, only_new: bool = False) -> list[AccessDeniedError]:
        """Tell the brokers of all routes who is here; those that do not answer are asked again later.

        Returns the refusals of brokers that do not let this client's user.
        """
        addresses = self.routes.addresses(with_slaves=self._with_slaves)
        for gone in self.versions.keys() - addresses:
            del self.versions[gone]
        body = self._heartbeat(self.client_id)
        wanted = sorted(addresses - self.versions.keys() - self._beating if only_new else addresses)
        answers = await asyncio.gather(*(self._heartbeat_to(address, body) for address in wanted))
        return [error for error in answers if isinstance(error, AccessDeniedError)]

    async def _heartbeat_to(self, address: str, body: bytes) -> RemotingError | None:
        self._beating.add(address)
        try:
            self.versions[address] = await self.api.heartbeat(address, body)
        except RemotingError as error:
            self.versions.pop(address, None)
            peers.failed("a broker takes no heartbeat", error, address=address)
            return error
        finally:
            self._beating.discard(address)
        return None

    async def version(self, address: str) -> int:
        """The version of a broker; raises RemotingError if it does not tell."""
        if address not in self.versions:
            self.versions[address] = await self.api.heartbeat(address, self._heartbeat(self.client_id))
        return self.versions[address]

    def master(self, broker_name: str) -> str:
        """The "host:port" of a broker's master, which alone changes anything.

        Raises RemotingError if it is not there.
        """
        address = self.routes.master(broker_name)
        if address is None:
            error = RemotingError(master_away([broker_name]))
            error.peer = broker_name
            raise error
        return address
