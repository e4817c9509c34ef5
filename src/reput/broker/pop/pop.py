"""Pop: the processors and services of POP, and what they share."""

from __future__ import annotations

from reput.broker.pop.ack_frames import AckFrames
from reput.broker.pop.ack_message_processor import AckMessageProcessor
from reput.broker.pop.change_invisible_time_processor import ChangeInvisibleTimeProcessor
from reput.broker.pop.notification_processor import NotificationProcessor
from reput.broker.pop.peek_message_processor import PeekMessageProcessor
from reput.broker.pop.pop_long_polling_service import PopLongPollingService
from reput.broker.pop.pop_message_processor import PopMessageProcessor
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.pop.pop_revive_service import PopReviveService
from reput.broker.pop.query_assignment_processor import QueryAssignmentProcessor
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.state import BrokerState
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.transport.connection import Connection


class Pop:
    """POP of a broker: processors, listeners, orders and statistics.

    Args:
        state: The broker's.
        timers: Hold check points and acks back; without them nothing can be popped.

    Attributes:
        processors: What takes the requests.
        listeners: Pops and notifications that wait for messages.
        orders: What was popped in order.
        stats: What has been done since the start.
        ack_frames: Takes acks that come together.
        modes: How groups get messages, as an operator has set it.
    """

    def __init__(self, state: BrokerState, timers: TimerMessageService | None) -> None:
        self._state = state
        offsets, revive = PopOffsets(state), ReviveMessages(state)
        self.ack_frames = AckFrames(state, revive)
        self.orders, self.stats = offsets.orders, revive.stats
        pops, notifications = PopLongPollingService(state), PopLongPollingService(state)
        self.listeners = (pops, notifications)

        def wake(topic: str, group: str, queue_id: int) -> None:
            for listener in self.listeners:
                listener.wake(topic, group, queue_id)

        assignments = QueryAssignmentProcessor(state)
        self.modes = assignments.modes
        self.processors = (
            PopMessageProcessor(state, offsets, revive, pops),
            AckMessageProcessor(state, offsets, revive, wake),
            ChangeInvisibleTimeProcessor(state, offsets, revive, wake),
            PeekMessageProcessor(state, offsets),
            NotificationProcessor(state, offsets, pops, notifications),
            assignments,
        )
        self._revive_service = None if timers is None else PopReviveService(state, revive, timers)

    def start(self) -> None:
        """Revive from now on what nobody acks."""
        if self._revive_service is not None:
            self._revive_service.start()

    def revive_behind(self, queue_id: int) -> tuple[int, int]:
        """Backlog of a revive queue: see `PopReviveService.behind`."""
        return (0, 0) if self._revive_service is None else self._revive_service.behind(queue_id)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the requests of a connection."""
        for listener in self.listeners:
            listener.connection_closed(connection)

    async def persist_orders(self) -> None:
        """Write consumerOrderInfo.json, if it has changed, without queues that are not there any more."""
        self.orders.auto_clean(self._is_there, self._state.now_ms())
        await self._state.config_files.try_persist(self.orders)

    def _is_there(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._state.topics.select_topic_config(topic)
        has_queue = config is not None and queue_id < config.read_queue_nums
        return has_queue and group in self._state.groups.subscription_group_table

    async def stop(self) -> None:
        """Answer the requests that wait, and revive nothing more."""
        for listener in self.listeners:
            await listener.stop()
        if self._revive_service is not None:
            await self._revive_service.stop()
