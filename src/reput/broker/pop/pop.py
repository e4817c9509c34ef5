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
from reput.broker.pop.pop_request import PopParts
from reput.broker.pop.pop_revive_service import PopReviveService
from reput.broker.pop.query_assignment_processor import QueryAssignmentProcessor
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.state import BrokerState
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.service.pop.message_request_mode_manager import MessageRequestModeManager
from reput.transport.channel import Channel


class Pop:
    """POP of a broker: processors, listeners, orders and statistics.

    Args:
        state: The broker's.
        timers: Hold check points and acks back; without them nothing can be popped.
        modes: How groups get messages, as an operator has set it.

    Attributes:
        processors: What takes the requests.
        listeners: Pops and notifications that wait for messages.
        orders: What was popped in order.
        stats: What has been done since the start.
        ack_frames: Takes acks that come together.
        pops: Pops that wait.
    """

    def __init__(
        self, state: BrokerState, timers: TimerMessageService | None, modes: MessageRequestModeManager
    ) -> None:
        self._state = state
        view, clock, pools, store, path = state.view, state.clock, state.pools, state.store, state.send_path
        topics, groups, consumer_offsets = state.topics, state.groups, state.offsets
        offsets = PopOffsets(view, clock, pools, state.files, store, consumer_offsets)
        revive = ReviveMessages(view, clock, store, path.hooks, state.appends)
        self.ack_frames = AckFrames(
            clock, store, topics, path.writer, path.room, path.hooks, state.dispatch, state.rpc_latency, revive
        )
        self.orders, self.stats = offsets.orders, revive.stats
        self.pops = pops = PopLongPollingService(view, clock)
        notifications = PopLongPollingService(view, clock)
        self.listeners = (pops, notifications)

        def wake(topic: str, group: str, queue_id: int) -> None:
            for listener in self.listeners:
                listener.wake(topic, group, queue_id)

        self._config_files = state.config_files
        parts = PopParts(
            view, clock, pools, store, topics, consumer_offsets, state.appends, state.stats, offsets, revive
        )
        self.processors = (
            PopMessageProcessor(parts, groups, state.config_files, pops),
            AckMessageProcessor(clock, pools, store, topics, consumer_offsets, offsets, revive, wake),
            ChangeInvisibleTimeProcessor(clock, store, topics, consumer_offsets, offsets, revive, wake),
            PeekMessageProcessor(view, clock, pools, store, topics, groups, offsets),
            NotificationProcessor(view, clock, topics, groups, offsets, pops, notifications),
            QueryAssignmentProcessor(
                view, clock, pools, topics, groups, state.consumers, state.config_files, state.registration, modes
            ),
        )
        self._revive_service: PopReviveService | None = None
        if timers is not None:
            self._revive_service = PopReviveService(
                view, clock, pools, store, topics, groups, consumer_offsets, state.creation, state.appends,
                state.dead_letters, revive, timers,
            )  # fmt: skip

    def start(self) -> None:
        """Revive from now on what nobody acks."""
        if self._revive_service is not None:
            self._revive_service.start()

    def revive_behind(self, queue_id: int) -> tuple[int, int]:
        """Backlog of a revive queue: see `PopReviveService.behind`."""
        return (0, 0) if self._revive_service is None else self._revive_service.behind(queue_id)

    def connection_closed(self, connection: Channel) -> None:
        """Forget the requests of a connection."""
        for listener in self.listeners:
            listener.connection_closed(connection)

    async def persist_orders(self) -> None:
        """Write consumerOrderInfo.json, if it has changed, without queues that are not there any more."""
        self.orders.auto_clean(self._is_there, self._state.clock.now_ms())
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
