"""GrpcServices: the calls of gRPC clients, and what works for them by itself."""

from __future__ import annotations

from collections.abc import Callable

from reput.broker.client_processor import ClientProcessor
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.grpc.acks import Acks
from reput.broker.grpc.callers import Callers
from reput.broker.grpc.calls import CallTakers, GrpcCalls
from reput.broker.grpc.client_channel import CallGate, ClientChannel, CommandPath
from reput.broker.grpc.client_commands import ClientCommands
from reput.broker.grpc.clients import Clients
from reput.broker.grpc.receives import Receives
from reput.broker.grpc.renewals import Renewals
from reput.broker.grpc.routes import Routes
from reput.broker.grpc.sends import Sends
from reput.broker.grpc.transactions import TransactionCalls
from reput.broker.periodic_work import PeriodicWork
from reput.broker.pop.pop_long_polling_service import PopLongPollingService
from reput.broker.view import BrokerView
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.grpc.receipt_handles import RENEW_SCHEDULE_PERIOD_S, ReceiptHandles
from reput.service.grpc.transaction_data import TransactionData
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel

_SCAN_CLIENTS_S = 10.0


class GrpcServices:
    """Calls over the processors of a broker.

    Args:
        view, clock, pools, store, topics, groups, offsets: The broker's.
        processor: Registers members of groups.
        polling: Where pops wait.
        ways: To the processors.
        gate: Knows who may do what; None: nobody asks.
        closed: Called with a client that is gone.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        processor: ClientProcessor,
        polling: PopLongPollingService,
        ways: CommandPath,
        gate: CallGate | None,
        closed: Callable[[Channel], None],
    ) -> None:
        self._clock, self._closed = clock, closed
        most_body = store.config.max_message_size
        data, handles = TransactionData(), ReceiptHandles[ClientChannel]()
        transactions = TransactionCalls(clock, pools, store, offsets, data)
        commands = ClientCommands(transactions, most_body)
        self._clients = Clients(view, clock, pools, groups, processor, ways, commands, self._gone)
        acks = Acks(clock, handles)
        self._renewals = Renewals(clock, groups, acks, handles)
        self._takers = CallTakers(
            Callers(self._clients, gate),
            self._clients,
            Routes(view, topics, groups),
            Sends(clock, topics, data),
            Receives(view, clock, topics, groups, polling, acks, handles, most_body),
            acks,
            transactions,
        )

    def serve(self, calls: GrpcCalls) -> None:
        """Let the calls of connections be answered."""
        calls.serve(self._takers)

    def start(self, work: PeriodicWork) -> None:
        """Begin what works by itself."""
        work.every(RENEW_SCHEDULE_PERIOD_S, self._renewals.renew)
        work.every(_SCAN_CLIENTS_S, self._clients.scan_not_active)

    def _gone(self, channel: ClientChannel) -> None:
        self._closed(channel)
        self._renewals.clear(channel)

    async def stop(self) -> None:
        """End the streams of clients."""
        self._clients.stop()
        await self._takers.receives.stop()
        await self._renewals.stop()
