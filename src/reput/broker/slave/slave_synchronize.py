"""SlaveSynchronize: groups, offsets and modes of a master, copied into a slave (`SlaveSynchronize`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import NamedTuple, TypeVar

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.disk_work import DiskPools
from reput.broker.slave.timer_copy import TimerCopy
from reput.broker.state_files import StateFiles
from reput.client.instance.mq_client_api import MQClientAPI
from reput.errors import AccessDeniedError, CorruptMetadataError, MQBrokerError, RemotingError, ReputError
from reput.events import Event
from reput.files import FileLayer
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    MessageRequestModes,
    SubscriptionGroups,
    decode_metadata,
)
from reput.formats.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint
from reput.formats.timer_log import TIMER_TOPIC
from reput.remoting.codes import RequestCode, ResponseCode
from reput.replication.master import master_log
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.delay_offset_manager import DelayOffsetManager
from reput.service.pop.message_request_mode_manager import MessageRequestModeManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.store.dispatch.arrivals import Arrivals
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore

logger = logging.getLogger("reput.broker")

_T = TypeVar("_T")


#: So long a round waits for the slave's log; the next one goes on to wait.
_WAIT_S = 1.0


class _Copy(NamedTuple):
    """State of a master's consumers and timers, up to some offset of its log at most.

    Attributes:
        master: Its address.
        offsets: Of groups.
        delays: Of delay levels.
        timers: How far the timers were; None of a master without timers.
        end_offset: Commit log offset, asked for after the others.
    """

    master: str
    offsets: ConsumerOffsets
    delays: DelayOffsets
    timers: TimerCheckpoint | None
    end_offset: int


class SlaveSynchronize:
    """Copies what a master keeps beside its log, but its topics, which the follower of the log copies.

    A copy says what was done, as by a delivery, and the log has what came of it. So a copy is of an offset of the log,
    and is taken over once the slave's log is there, with its queues: after a fail-over all is done again whose outcome
    the slave does not have. A copy waits, also for a slave that is always behind, and the next one is asked for after
    it. An offset is copied up to the end of the slave's own queue, since a group may have committed any.

    Args:
        pools, files, store, groups, offsets, delay_offsets, config_files, writer, dispatch: The broker's.
        modes: How its groups get messages.
        api: Asks the master.
    """

    def __init__(
        self,
        pools: DiskPools,
        files: FileLayer,
        store: MessageStore,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        delay_offsets: DelayOffsetManager,
        config_files: StateFiles,
        writer: LoopWriter,
        dispatch: LoopDispatch,
        modes: MessageRequestModeManager,
        api: MQClientAPI,
    ) -> None:
        self._pools, self._store, self._groups, self._offsets = pools, store, groups, offsets
        self._delay_offsets, self._config_files, self._writer = delay_offsets, config_files, writer
        self._modes, self._api = modes, api
        self._timers = TimerCopy(store.path, files)
        self._said = ""
        self._waiting: _Copy | None = None
        self._arrived = asyncio.Event()
        dispatch.listeners.append(self)

    any_wait = False

    def messages_arrived(self, arrivals: Arrivals) -> None:
        """Called by dispatch."""
        self._arrived.set()

    async def copy(self, master: str) -> bool:
        """Copy all, and write the files that have changed; False if the master does not answer, which is logged.

        What stands on the log may wait for a later call.
        """
        answers = await self._ask_all(master)
        copy = self._waiting
        if copy is not None and await self._has(copy.end_offset):
            self._waiting = None
            await self._take_over(copy)
        return answers

    async def _ask_all(self, master: str) -> bool:
        """Take over groups and modes, which do not stand on the log, and let what does wait; as `copy`."""
        if self._waiting is not None and self._waiting.master != master:
            self._waiting = None
        try:
            groups = await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroups)
            modes = await self._asked(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
            requests = None if modes is None else await self._decoded(MessageRequestModes, modes)
            if self._waiting is None:
                self._waiting = await self._of_log(master)
        except (RemotingError, CorruptMetadataError) as error:
            if str(error) != self._said:
                key = {"key": "innerClientAuthenticationCredentials"} if isinstance(error, AccessDeniedError) else {}
                what = "groups and offsets of the master cannot be copied"
                logger.warning(Event(what, master=master, error=error, **key))
            self._said = str(error)
            return False
        self._said = ""
        self._groups.copy(groups)
        if requests is not None:
            self._modes.copy(requests)
        for manager in (self._groups, self._modes):
            await self._config_files.try_persist(manager)
        return True

    async def _of_log(self, master: str) -> _Copy:
        """Ask the master for the state of its consumers and timers."""
        offsets = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)
        delays = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)
        timers = await self._asked(master, RequestCode.GET_TIMER_CHECK_POINT)
        info = await self._api.call(master, RequestCode.GET_BROKER_RUNTIME_INFO)  # after the others: it is the latest
        end_offset = master_log(master, bytes(info.body)).max_offset
        return _Copy(master, offsets, delays, None if timers is None else decode_timer_checkpoint(timers), end_offset)

    async def _has(self, end_offset: int) -> bool:
        """Whether the slave has, and has dispatched, the log up to an offset; waits for it a moment."""
        store = self._store
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                while store.max_commit_log_offset - store.dispatch_behind_bytes < end_offset:
                    self._arrived.clear()
                    await self._arrived.wait()
        return store.max_commit_log_offset - store.dispatch_behind_bytes >= end_offset

    async def _take_over(self, copy: _Copy) -> None:
        self._offsets.copy(copy.offsets, self._store.max_offset)
        self._delay_offsets.copy(copy.delays, lambda level: self._store.max_offset(SCHEDULE_TOPIC, level - 1))
        for manager in (self._offsets, self._delay_offsets):
            await self._config_files.try_persist(manager)
        if copy.timers is not None:
            await self._keep(copy.timers)

    async def _keep(self, checkpoint: TimerCheckpoint) -> None:
        try:
            await self._pools.writes.run(self._writer.flush)  # as other state that follows the log
            await self._pools.writes.run(self._timers.write, checkpoint, self._store.max_offset(TIMER_TOPIC, 0))
        except ReputError as error:
            logger.error(Event("how far the master's timers are was not written", error=error))

    async def _ask(self, master: str, code: int, kind: type[_T]) -> _T:
        body = await self._asked(master, code)
        if body is None:
            raise RemotingError(f"{master}: does not answer requests of code {code}")
        return await self._decoded(kind, body)

    async def _decoded(self, kind: type[_T], body: bytes) -> _T:
        """A table of the master's, decoded beside the loop: of 10,000 groups it takes 2 s."""
        return await self._pools.tables.run(decode_metadata, kind, body)

    async def _asked(self, master: str, code: int) -> bytes | None:
        """The body of an answer; None if the master has no such thing: 4.x no POP, others no timers."""
        try:
            return bytes((await self._api.call(master, code)).body)
        except MQBrokerError as error:
            is_missing = error.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)
            if not is_missing or isinstance(error, AccessDeniedError):
                raise
            return None
