"""BrokerServices: what answers the requests of a broker, and what works by itself beside them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import date
from functools import partial
from typing import Any

from reput.broker.access.access import Access, inner_credentials
from reput.broker.access.plain_gate import PlainGate
from reput.broker.admin.processors import admin_processors
from reput.broker.broker_to_client import BrokerToClient
from reput.broker.client_processor import ClientProcessor
from reput.broker.consumer_processor import ConsumerProcessor
from reput.broker.grpc.client_channel import CommandPath
from reput.broker.grpc.grpc_services import GrpcServices
from reput.broker.large_bodies import is_large
from reput.broker.periodic_work import PeriodicWork
from reput.broker.pop.pop import Pop
from reput.broker.pulls.pull_frames import PullFrames
from reput.broker.pulls.pull_message_processor import PullMessageProcessor
from reput.broker.pulls.query_processor import QueryProcessor
from reput.broker.rebalance_lock_processor import RebalanceLockProcessor
from reput.broker.request_table import Processor, request_table
from reput.broker.schedule_message_service import ScheduleMessageService
from reput.broker.sends.reply_message_processor import ReplyMessageProcessor
from reput.broker.sends.send_back_frames import SendBackFrames
from reput.broker.sends.send_back_processor import SendBackProcessor
from reput.broker.sends.send_frames import SendFrameProcessor
from reput.broker.sends.send_message_processor import SendMessageProcessor
from reput.broker.slave.slave import Slave
from reput.broker.slave.slave_refusals import slave_refusal
from reput.broker.slave.slave_synchronize import SlaveSynchronize
from reput.broker.state import BrokerState
from reput.broker.timer.recall_message_processor import RecallMessageProcessor
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.broker.transactions.end_transaction_processor import EndTransactionProcessor
from reput.broker.transactions.transactional_message_check_service import TransactionalMessageCheckService
from reput.broker.transactions.transactional_op_batch_service import TransactionalOpBatchService
from reput.client.instance.mq_client_api import MQClientAPI
from reput.config.broker import BrokerRole
from reput.remoting.command import RemotingCommand
from reput.service.access.needs import names_in_body
from reput.service.broker_stats_manager import SAMPLE_S
from reput.service.pop.message_request_mode_manager import MessageRequestModeManager
from reput.transport.channel import Channel
from reput.transport.client import RemotingClient
from reput.transport.requests import Refusal

_SCAN_CLIENTS_S = 10.0
_PERSIST_FILTERS_S = 10.0
#: RocketMQ's `transactionMetricFlushInterval`, up to 5.3.3; 10 s from 5.4.0 on.
_PERSIST_TRANSACTIONS_S = 3.0
_DRAIN_S = 1.0
#: Between two writes of consumerOrderInfo.json.
_ORDER_INFO_S = 10.0


class BrokerServices:
    """Processors and services over one state; used in the loop's thread.

    Args:
        state: What they share.
        access: Who may do what.
        config_path: The broker.conf in which changes of keys are kept, if there is one.
        client: Reaches other brokers.

    Attributes:
        sends: Takes what connections bring.
        clients: Knows the members of groups.
        held_pulls: Pulls that wait for messages.
        timers: Messages with a time; None without `timerWheelEnable`.
        pop: What there is for POP.
        grpc: Answers the calls of gRPC clients.
        ended: Half messages that were ended, and are not marked yet.
        transactions: Asks how transactions ended.
    """

    def __init__(self, state: BrokerState, access: Access, config_path: str | None, client: RemotingClient) -> None:
        self._state = state
        self._gate = access.gate
        self._work = PeriodicWork()
        view, clock, pools, store = state.view, state.clock, state.pools, state.store
        topics, groups, offsets, transactions = state.topics, state.groups, state.offsets, state.transactions
        appends, dead_letters, config_files = state.appends, state.dead_letters, state.config_files
        modes = MessageRequestModeManager(store.path, state.files)
        self._slave = state.slave = self._made_slave(modes, client)
        self.clients = ClientProcessor(
            view, clock, pools, topics, groups, state.filters, state.consumers, state.producers, config_files,
            state.creation, state.slave,
        )  # fmt: skip
        self._locks = RebalanceLockProcessor(clock, pools, state.locks)
        pulls = PullMessageProcessor(
            view, clock, pools, store, topics, groups, offsets, state.filters, state.consumers, state.stats,
            state.rpc_latency, state.slave, state.ha,
        )  # fmt: skip
        self.held_pulls = pulls.held
        self._schedule = ScheduleMessageService(clock, pools, store, state.delay_offsets, appends, dead_letters)
        self.timers: TimerMessageService | None = None
        if state.timers is not None:
            self.timers = TimerMessageService(
                clock, pools, state.files, store, config_files, state.send_path.writer, appends, dead_letters,
                state.timers,
            )  # fmt: skip
        self.pop = Pop(state, self.timers, modes)
        state.dispatch.listeners += (pulls.held, self._schedule, *self.pop.listeners)
        if self.timers is not None:
            state.dispatch.listeners.append(self.timers)
        sends = SendMessageProcessor(
            view, clock, store, topics, groups, transactions, state.locks, state.creation, state.send_path, state.stats
        )
        to_client = BrokerToClient(view, state.consumers, state.producers)
        self.ended = TransactionalOpBatchService(view, clock, store, appends)
        self.transactions = TransactionalMessageCheckService(
            view, clock, pools, store, topics, offsets, transactions, appends, dead_letters, to_client, self.ended
        )
        processors: tuple[Processor, ...] = (
            sends,
            pulls,
            QueryProcessor(view, pools, store, state.found_names),
            self.clients,
            ConsumerProcessor(clock, pools, store, topics, groups, offsets, state.consumers),
            self._locks,
            ReplyMessageProcessor(view, clock, store, state.producers, appends, sends, to_client),
            *admin_processors(state, to_client, config_path),
            SendBackProcessor(
                view, clock, pools, store, topics, groups, state.creation, appends, dead_letters, state.stats,
                state.found_names,
            ),
            self._schedule,
            EndTransactionProcessor(
                view, clock, pools, store, transactions, appends, state.stats, state.found_names, self.ended
            ),
            RecallMessageProcessor(view, clock, pools, store, topics, appends, self.timers),
            *access.processors(view, clock, pools),
            *self.pop.processors,
        )  # fmt: skip
        self._requests = request_table(
            processors,
            state.view.config,
            state.send_path.queue,
            state.dispatch.with_all_messages,
            state.dispatch.with_messages_of_topic,
            state.rpc_latency,
            self._refusal(),
        )
        is_checked = self._refusal() is not None
        self.grpc = GrpcServices(
            view, clock, pools, store, topics, groups, offsets, self.clients, self.pop.pops,
            CommandPath(self._requests, state.dispatch, state.send_path.room), access.gate,
            self.connection_closed,
        )  # fmt: skip
        self.sends = SendFrameProcessor(
            view, clock, store, topics, state.creation, state.send_path, state.rpc_latency, self._requests,
            self.pop.ack_frames,
            SendBackFrames(view, clock, store, topics, groups, state.send_path, state.stats),
            PullFrames(
                view, clock, store, topics, groups, offsets, state.consumers, state.stats, state.rpc_latency,
                state.dispatch, is_usable=not is_checked,
            ),
            is_checked=is_checked,
        )  # fmt: skip

    def _made_slave(self, modes: MessageRequestModeManager, client: RemotingClient) -> Slave | None:
        """The slave of a broker that is one; it hears of its master from now on."""
        state, config = self._state, self._state.view.config
        if config.broker_role is not BrokerRole.SLAVE:
            return None
        credentials = inner_credentials(config)
        synchronize = SlaveSynchronize(
            state.pools, state.files, state.store, state.groups, state.offsets, state.delay_offsets,
            state.config_files, state.send_path.writer, state.dispatch, modes, MQClientAPI(client, credentials),
        )  # fmt: skip
        slave = Slave(
            state.view, state.pools, state.store, state.topics, state.registration, state.dispatch, synchronize,
            credentials,
        )  # fmt: skip
        state.registration.tell_master(slave.master_is)
        return slave

    def _refusal(self) -> Refusal | None:
        """The check before each request, whether it is allowed; None if all are.

        A large body that says what a request is about is read beside the loop, as its processor does.
        """
        gate, state = self._gate, self._state
        if gate is None and state.slave is None:
            return None

        def refused(connection: Channel, command: RemotingCommand) -> RemotingCommand | None:
            answer = None if gate is None else gate.refusal(connection, command)
            return answer if answer is not None or state.slave is None else slave_refusal(state.view.config, command)

        def refusal(connection: Channel, command: RemotingCommand) -> Any:
            if gate is not None and names_in_body(command.code) and is_large(command):
                return partial(state.pools.reads.run_for, connection, refused, connection, command)
            return refused(connection, command)

        return refusal

    def start(self) -> None:
        """Begin what works by itself."""
        state, every = self._state, self._work.every
        config, try_persist = state.view.config, state.config_files.try_persist
        if isinstance(self._gate, PlainGate):
            self._work.begin(self._gate.keep_reloading())
        self.held_pulls.start()
        self.grpc.start(self._work)
        if self._slave is None:
            self._start_of_master()
        else:
            self._slave.start()
        every(config.flush_consumer_offset_interval / 1000, partial(try_persist, state.offsets))
        every(config.flush_delay_offset_interval / 1000, partial(try_persist, state.delay_offsets))
        every(_PERSIST_TRANSACTIONS_S, partial(try_persist, state.transactions))
        every(_PERSIST_FILTERS_S, self._persist_filters)
        every(_SCAN_CLIENTS_S, self.clients.scan_not_active_channels)
        every(_SCAN_CLIENTS_S, self._locks.clean)
        every(SAMPLE_S, lambda: state.stats.sample(time.monotonic(), date.today()))

    def _start_of_master(self) -> None:
        """Begin what puts messages by itself."""
        self._schedule.start()
        self.pop.start()
        if self.timers is not None:
            self.timers.start()
        self._work.every(_ORDER_INFO_S, self.pop.persist_orders)
        self._work.begin(self._check_transactions())

    async def _check_transactions(self) -> None:
        """Ask for the ends of transactions, again and again; at once if the clock was put forward."""
        put_forward = self._state.clock.was_put_forward
        every_s = self._state.view.config.transaction_check_interval / 1000
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await put_forward.wait()
            put_forward.clear()
            await self.transactions.check()

    async def _persist_filters(self) -> None:
        self._state.filters.clean(self._state.clock.now_ms())
        await self._state.config_files.try_persist(self._state.filters)

    def connection_closed(self, connection: Channel) -> None:
        """Forget the client of a connection, and its requests that wait."""
        self.held_pulls.connection_closed(connection)
        self.pop.connection_closed(connection)
        self.clients.connection_closed(connection)

    async def answer_all(self) -> None:
        """Answer what was accepted, and what waits for messages."""
        self.held_pulls.answer_all()
        await self.pop.stop()
        await self._requests.drain(_DRAIN_S)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DRAIN_S
        while not self._state.send_path.answers.is_empty and loop.time() < deadline:
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """End what works by itself."""
        self._work.stop()
        await self.grpc.stop()
        if self._slave is not None:
            await self._slave.stop()
        await self._schedule.stop()
        if self.timers is not None:
            await self.timers.stop()
        await self.ended.stop()

    async def persist(self) -> None:
        """Write what requests and services have changed.

        Raises:
            ReputError: Something could not be made durable.
        """
        state = self._state
        for manager in (
            state.groups, state.filters, state.offsets, state.delay_offsets, state.transactions, self.pop.orders,
        ):  # fmt: skip
            await state.config_files.persist(manager)
