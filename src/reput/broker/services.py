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
from reput.broker.large_bodies import is_large
from reput.broker.periodic_work import PeriodicWork
from reput.broker.pop.pop import Pop
from reput.broker.pulls.pull_message_processor import PullMessageProcessor
from reput.broker.pulls.query_processor import QueryProcessor
from reput.broker.rebalance_lock_processor import RebalanceLockProcessor
from reput.broker.request_table import Processor, request_table
from reput.broker.schedule_message_service import ScheduleMessageService
from reput.broker.sends.reply_message_processor import ReplyMessageProcessor
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
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.requests import Refusal

_SCAN_CLIENTS_S = 10.0
_PERSIST_FILTERS_S = 10.0
#: RocketMQ's `transactionMetricFlushInterval`.
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
        ended: Half messages that were ended, and are not marked yet.
        transactions: Asks how transactions ended.
    """

    def __init__(self, state: BrokerState, access: Access, config_path: str | None, client: RemotingClient) -> None:
        self._state = state
        self._gate = state.gate = access.gate
        self._work = PeriodicWork()
        self.clients = ClientProcessor(state)
        self._locks = RebalanceLockProcessor(state)
        pulls = PullMessageProcessor(state)
        self.held_pulls = pulls.held
        self._schedule = ScheduleMessageService(state)
        self.timers = None if state.timers is None else TimerMessageService(state, state.timers)
        self.pop = Pop(state, self.timers)
        state.dispatch.listeners += (pulls.held, self._schedule, *self.pop.listeners)
        if self.timers is not None:
            state.dispatch.listeners.append(self.timers)
        sends, to_client = SendMessageProcessor(state), BrokerToClient(state)
        self.ended = TransactionalOpBatchService(state)
        self.transactions = TransactionalMessageCheckService(state, to_client, self.ended)
        self._slave: Slave | None = None
        if state.config.broker_role is BrokerRole.SLAVE:
            credentials = inner_credentials(state.config)
            synchronize = SlaveSynchronize(state, self.pop.modes, MQClientAPI(client, credentials))
            self._slave = state.slave = Slave(state, synchronize, credentials)
            state.registration.tell_master(self._slave.master_is)
        processors: tuple[Processor, ...] = (
            sends, pulls, QueryProcessor(state), self.clients, self._locks,
            ReplyMessageProcessor(state, sends, to_client),
            *admin_processors(state, to_client, state.files, config_path),
            SendBackProcessor(state), self._schedule, EndTransactionProcessor(state, self.ended),
            RecallMessageProcessor(state, self.timers), *access.processors(state), *self.pop.processors,
        )  # fmt: skip
        self._requests = request_table(
            processors,
            state.config,
            state.sending,
            state.dispatch.with_all_messages,
            state.rpc_latency,
            self._refusal(),
        )
        is_checked = self._refusal() is not None
        self.sends = SendFrameProcessor(state, self._requests, self.pop.ack_frames, is_checked=is_checked)

    def _refusal(self) -> Refusal | None:
        """The check before each request, whether it is allowed; None if all are.

        A large body that says what a request is about is read beside the loop, as its processor does.
        """
        gate, state = self._gate, self._state
        if gate is None and state.slave is None:
            return None

        def refused(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
            answer = None if gate is None else gate.refusal(connection, command)
            return answer if answer is not None or state.slave is None else slave_refusal(state.config, command)

        def refusal(connection: Connection, command: RemotingCommand) -> Any:
            if gate is not None and names_in_body(command.code) and is_large(command):
                return partial(state.reads.run_for, connection, refused, connection, command)
            return refused(connection, command)

        return refusal

    def start(self) -> None:
        """Begin what works by itself."""
        state, every = self._state, self._work.every
        config, try_persist = state.config, state.config_files.try_persist
        if isinstance(self._gate, PlainGate):
            self._work.begin(self._gate.keep_reloading())
        self.held_pulls.start()
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
        """Ask for the ends of transactions, again and again; at once where the clock was put forward."""
        put_forward, every_s = self._state.was_put_forward, self._state.config.transaction_check_interval / 1000
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await put_forward.wait()
            put_forward.clear()
            await self.transactions.check()

    async def _persist_filters(self) -> None:
        self._state.filters.clean(self._state.now_ms())
        await self._state.config_files.try_persist(self._state.filters)

    def connection_closed(self, connection: Connection) -> None:
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
        while not self._state.answers.is_empty and loop.time() < deadline:
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """End what works by itself."""
        self._work.stop()
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
