"""Renewals: messages that push consumers hold stay invisible to others (`DefaultReceiptHandleManager`)."""

from __future__ import annotations

import asyncio
import logging
import time

from reput.broker.clock import BrokerClock
from reput.broker.grpc.acks import Acks
from reput.broker.grpc.client_channel import ClientChannel
from reput.errors import ReputError
from reput.events import Event
from reput.service.grpc.receipt_handles import (
    INVISIBLE_TIME_WHEN_CLEAR_MS,
    ReceiptHandle,
    ReceiptHandles,
    RenewedHandle,
)
from reput.service.subscription_group_manager import SubscriptionGroupManager

logger = logging.getLogger("reput.broker")

_TURN_S = 0.01


class _Turn:
    """Time for which many changes may have the loop: most of them wait for nothing."""

    def __init__(self) -> None:
        self._end = time.perf_counter() + _TURN_S

    async def over(self) -> None:
        """Let others have the loop, if the time is over."""
        if time.perf_counter() > self._end:
            await asyncio.sleep(0)
            self._end = time.perf_counter() + _TURN_S


class Renewals:
    """Changes the invisible time of messages before it is over, and of a client that is gone at once."""

    def __init__(
        self,
        clock: BrokerClock,
        groups: SubscriptionGroupManager,
        acks: Acks,
        handles: ReceiptHandles[ClientChannel],
    ) -> None:
        self._clock, self._groups, self._acks, self._handles = clock, groups, acks, handles
        self._tasks: set[asyncio.Task[None]] = set()

    async def renew(self) -> None:
        """Renew what is due; called again and again."""
        groups, turn = self._groups.subscription_group_table, _Turn()
        for channel in self._handles.keepers:
            for key, renewal in self._handles.due(channel, self._clock.now_ms(), groups):
                handle = await self._change(channel, renewal.renewed, renewal.invisible_time)
                if not renewal.is_last:
                    self._handles.renewed(channel, key, renewal.renewed, handle)
                await turn.over()
            await turn.over()

    async def _change(self, channel: ClientChannel, renewed: RenewedHandle, ms: int) -> ReceiptHandle | None:
        """The new handle of a message; None if it could not be changed."""
        try:
            return await self._acks.change(channel, renewed.user, renewed.group, renewed.topic, renewed.handle, ms)
        except ReputError as error:
            names = {"group": renewed.group, "topic": renewed.topic}
            logger.warning(Event("an invisible time was not renewed", client=channel, error=error, **names))
            return None

    def clear(self, channel: ClientChannel) -> None:
        """Let others have soon what a client held that is gone."""
        handles = self._handles.clear(channel)
        if handles:
            task = asyncio.get_running_loop().create_task(self._clear(channel, handles))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _clear(self, channel: ClientChannel, handles: list[RenewedHandle]) -> None:
        turn = _Turn()
        for renewed in handles:
            await self._change(channel, renewed, INVISIBLE_TIME_WHEN_CLEAR_MS)
            await turn.over()

    async def stop(self) -> None:
        """Return when what was begun is done."""
        if self._tasks:
            await asyncio.wait(self._tasks)
