"""Slave: the log of a master, byte for byte, by a thread; topics, groups and offsets beside it.

Name servers say which broker is the master. A slave that has none asks them every few seconds, so it follows at once
when the master comes back, or when another broker of its name has become master.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import NamedTuple

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.disk_work import DiskPools
from reput.broker.registration import Registration
from reput.broker.slave.copying import Copying
from reput.broker.slave.slave_synchronize import SlaveSynchronize
from reput.broker.view import BrokerView
from reput.client.instance.session_credentials import SessionCredentials
from reput.errors import ReputError
from reput.events import Event
from reput.replication.follower import Follower, FollowState
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.tls import ClientTls

logger = logging.getLogger("reput.broker")

#: Between two copies of groups and offsets; and between two tries after an error.
_COPY_S = 5.0


class _Known(NamedTuple):
    """Addresses of the master by the name servers."""

    address: str
    ha_address: str


class Slave:
    """Follows the master of a broker's name; used in the loop's thread.

    Args:
        view, pools, store, topics, registration, dispatch: The broker's.
        synchronize: Copies groups and offsets.
        credentials: Sign what the master is asked; None for none.
    """

    def __init__(
        self,
        view: BrokerView,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        registration: Registration,
        dispatch: LoopDispatch,
        synchronize: SlaveSynchronize,
        credentials: SessionCredentials | None,
    ) -> None:
        self._view, self._pools, self._store, self._topics = view, pools, store, topics
        self._registration, self._dispatch = registration, dispatch
        self._synchronize = synchronize
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._master: _Known | None = None
        self._following: tuple[threading.Event, threading.Thread] | None = None
        self._task: asyncio.Task[None] | None = None
        self._progress: tuple[threading.Event, FollowState] | None = None  # with the stop of its thread
        self._copying = Copying()
        self._end_offset = -1
        self._is_told = False

    # -- what others ask

    @property
    def master_address(self) -> str:
        """The HA address of the master; empty if no name server knows one."""
        return "" if self._master is None else self._master.ha_address

    @property
    def progress(self) -> FollowState | None:
        """State of the copy; None before the master was heard."""
        if self._progress is None or self._progress[0].is_set():  # that of another master
            return None
        return self._progress[1]

    @property
    def has_master(self) -> bool:
        """Whether the connection to the master stands."""
        return self.progress is not None and self.progress.is_connected

    @property
    def copies_nothing(self) -> str | None:
        """Reason why it copies nothing; see `Copying`."""
        return self._copying.copies_nothing

    # -- life

    def start(self) -> None:
        """Follow from now on."""
        self._task = self._loop.create_task(self._keep_copying())

    async def stop(self) -> None:
        """Follow no more; what has come is appended."""
        if self._task is not None:
            self._task.cancel()
        if self._following is not None:
            stop, thread = self._following
            stop.set()
            await self._pools.writes.run(thread.join)

    def master_is(self, address: str | None, ha_address: str | None) -> None:
        """Called after a registration: a name server's answer; without a master nothing changes."""
        ha_address = self._view.config.ha_master_address or ha_address
        if not address or not ha_address or address == self._view.address:
            return
        master = _Known(address, ha_address)
        if master == self._master:
            return
        logger.info(Event("the slave has a master", master=master.address, ha=master.ha_address))
        self._master = master
        before = self._following
        if before is not None:
            before[0].set()
        stop = threading.Event()
        arguments = master, stop, None if before is None else before[1]
        thread = threading.Thread(target=self._follow, args=arguments, name="reput-slave", daemon=True)
        self._following = stop, thread
        thread.start()

    async def _keep_copying(self) -> None:
        while True:
            if not self.has_master:
                await self._registration.register()
            if self._master is None:
                self._copying.stops(f"no name server knows a master of {self._view.config.broker_name}")
            else:
                await self._synchronize.copy(self._master.address)
            await asyncio.sleep(_COPY_S)

    # -- the thread

    def _follow(self, master: _Known, stop: threading.Event, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        copying = self._copying

        def on_state(progress: FollowState) -> None:
            if progress.failure is None:
                copying.goes_on(progress.end_offset, is_all=not progress.lag_bytes)
            else:
                copying.stops(progress.failure, master.address)
            self._on_state(progress, stop)

        follower: Follower | None = None
        while not stop.is_set():
            try:
                follower = follower or Follower(  # raises for an odd address, and the network may say anything
                    self._store, master.address, ha_address=master.ha_address, acknowledges=True, on_state=on_state,
                    on_topics=self._on_topics, own_topics={config.topic_name for config in self._topics.own_topics},
                    tls=ClientTls.of(self._view.config), credentials=self._credentials,
                )  # fmt: skip
                follower.run(stop)
            except ReputError as error:
                copying.stops(str(error), master.address, is_refused=True)
                stop.wait(_COPY_S)
            except Exception as error:  # a bug, which is not to end all that comes later
                logger.exception(Event("the slave's copying failed", master=master.address))
                copying.stops(repr(error), master.address, is_refused=True)
                stop.wait(_COPY_S)

    def _on_state(self, progress: FollowState, stop: threading.Event) -> None:
        """Keep how far the thread is, and let the loop dispatch what has come."""
        self._progress = stop, progress
        if progress.end_offset != self._end_offset and not self._is_told:
            self._end_offset = progress.end_offset
            self._is_told = True
            self._loop.call_soon_threadsafe(self._dispatch_soon)

    def _dispatch_soon(self) -> None:
        self._is_told = False  # before the look: what comes after it tells again
        self._dispatch.soon()

    def _on_topics(self) -> None:
        """Tell the name servers that topics have changed."""
        asyncio.run_coroutine_threadsafe(self._registration.register(), self._loop)
