"""SlaveSynchronize: groups, offsets and modes of a master, copied into a slave (`SlaveSynchronize`)."""

from __future__ import annotations

import logging
from typing import TypeVar

from reput.broker.slave.timer_copy import TimerCopy
from reput.broker.state import BrokerState
from reput.client.mq_client_api import MQClientAPI
from reput.errors import AccessDeniedError, CorruptMetadataError, MQBrokerError, RemotingError, ReputError
from reput.events import Event
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
from reput.service.pop.message_request_mode_manager import MessageRequestModeManager

logger = logging.getLogger("reput.broker")

_T = TypeVar("_T")


class SlaveSynchronize:
    """Copies what a master keeps beside its log, but its topics, which the follower of the log copies.

    The copies are not of one moment, and an offset may be of messages that the slave does not have yet. So an offset is
    copied up to the end of the slave's own queue: after a fail-over no new message lies before a group's offset.

    Args:
        state: The slave's.
        modes: How its groups get messages.
        api: Asks the master.
    """

    def __init__(self, state: BrokerState, modes: MessageRequestModeManager, api: MQClientAPI) -> None:
        self._state, self._modes, self._api = state, modes, api
        self._timers = TimerCopy(state.store.path, state.files)
        self._said = ""

    async def copy(self, master: str) -> bool:
        """Copy all, and write the files that have changed; False where the master does not answer, which is logged."""
        state = self._state
        try:
            groups = await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroups)
            offsets = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)
            delays = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)
            modes = await self._asked(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
            timers = await self._asked(master, RequestCode.GET_TIMER_CHECK_POINT)
            checkpoint = None if timers is None else decode_timer_checkpoint(timers)
            requests = None if modes is None else decode_metadata(MessageRequestModes, modes)
        except (RemotingError, CorruptMetadataError) as error:
            if str(error) != self._said:
                key = {"key": "innerClientAuthenticationCredentials"} if isinstance(error, AccessDeniedError) else {}
                what = "groups and offsets of the master cannot be copied"
                logger.warning(Event(what, master=master, error=error, **key))
            self._said = str(error)
            return False
        self._said = ""
        state.groups.copy(groups)
        state.offsets.copy(offsets, state.store.max_offset)
        state.delay_offsets.copy(delays, lambda level: state.store.max_offset(SCHEDULE_TOPIC, level - 1))
        if requests is not None:
            self._modes.copy(requests)
        for manager in (state.groups, state.offsets, state.delay_offsets, self._modes):
            await state.config_files.try_persist(manager)
        if checkpoint is not None:
            await self._keep(checkpoint)
        return True

    async def _keep(self, checkpoint: TimerCheckpoint) -> None:
        try:
            end = self._state.store.max_offset(TIMER_TOPIC, 0)
            await self._state.writes.run(self._timers.write, checkpoint, end)
        except ReputError as error:
            logger.error(Event("how far the master's timers are was not written", error=error))

    async def _ask(self, master: str, code: int, kind: type[_T]) -> _T:
        body = await self._asked(master, code)
        if body is None:
            raise RemotingError(f"{master}: does not answer requests of code {code}")
        return decode_metadata(kind, body)

    async def _asked(self, master: str, code: int) -> bytes | None:
        """The body of an answer; None where the master has no such thing: 4.x no POP, others no timers."""
        try:
            return bytes((await self._api.call(master, code)).body)
        except MQBrokerError as error:
            is_missing = error.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)
            if not is_missing or isinstance(error, AccessDeniedError):
                raise
            return None
