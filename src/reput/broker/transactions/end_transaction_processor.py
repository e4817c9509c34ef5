"""Ends of transactions (`EndTransactionProcessor`): a commit puts the message where it was sent to."""

from __future__ import annotations

import logging

from reput.broker.access.found_names import FoundNames
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.message_by_offset import message_by_offset
from reput.broker.transactions.transactional_op_batch_service import TransactionalOpBatchService
from reput.broker.view import BrokerView
from reput.errors import MessageIllegalError, RemotingCommandError, ReputError, StoreBusyError
from reput.events import Event
from reput.formats.java import parse_long
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.formats.metadata import TransactionMetrics
from reput.formats.properties import PGROUP, REAL_QID, REAL_TOPIC, TRANSACTION_CHECK_TIMES
from reput.formats.record_layout import SysFlag
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.topic_validator import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from reput.remoting.transaction_headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.service.transactional_message import is_too_late
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

_NOT_FOUND = "Find prepared transaction message failed"


class EndTransactionProcessor:
    """Takes END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE.

    Args:
        view, clock, pools, store, transactions, appends, stats, found_names: The broker's.
        ended: Gets the half messages that have ended.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        transactions: TopicMetricsManager[TransactionMetrics],
        appends: Appends,
        stats: BrokerStatsManager,
        found_names: FoundNames,
        ended: TransactionalOpBatchService,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._transactions, self._appends, self._stats, self._found_names = transactions, appends, stats, found_names
        self._ended = ended

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    async def end(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Commit or roll back; a producer that does not know gets no answer, and is asked later."""
        header = decode_header(EndTransactionRequestHeader, command.ext_fields)
        kind = header.commit_or_rollback
        if kind == 0:
            return None
        if kind not in (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        # Not `run_for`: its bound would drop one-way requests of a busy producer, and each is a check later.
        half = await self._pools.reads.run(self._look, header.commit_log_offset)
        if half is None:
            return command.response(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        self._found_names.require(connection, command, topic=half.properties[REAL_TOPIC])
        message = MessageExtBrokerInner.of_record(half.raw)
        age_ms = self._clock.now_ms() - half.born_timestamp
        if not header.from_transaction_check and is_too_late(
            message.properties, age_ms, self._view.config.transaction_time_out
        ):
            return command.response(ResponseCode.ILLEGAL_OPERATION)
        if message.properties.get(PGROUP) != header.producer_group:
            return command.response(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            return command.response(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if kind == SysFlag.TRANSACTION_ROLLBACK:
            self._end(half)
            self._stats.transaction_ended(message.properties[REAL_TOPIC], age_ms, is_commit=False)
            return command.response()
        return await self._commit(command, half, message)

    async def _commit(self, command: RemotingCommand, half: MessageExt, message: MessageExtBrokerInner) -> Answer:
        """Put the message itself (`endMessageTransaction`): its properties stay the half message's."""
        message.topic, message.queue_id = message.properties[REAL_TOPIC], parse_long(message.properties[REAL_QID])
        message.sys_flag = message.sys_flag & ~SysFlag.TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT
        message.prepared_transaction_offset = half.commit_log_offset
        try:
            result = await self._appends.append(message)
            # Behind it in the log: no op message is there without the message.
            self._end(half)
            await self._appends.safe(result.end_offset, on_slaves=True)
        except ReputError as error:
            logger.error(Event("a transaction was not committed", topic=message.topic, error=error))
            return command.response(*self._fault(error))
        age_ms = self._clock.now_ms() - half.born_timestamp
        self._stats.transaction_ended(message.properties[REAL_TOPIC], age_ms, is_commit=True)
        return command.response()

    def _end(self, half: MessageExt) -> None:
        """A producer's end and its answer to a check may cross: it counts once."""
        if not self._ended.is_ending(half.queue_id, half.queue_offset):
            self._transactions.add({half.properties[REAL_TOPIC]: -1}, self._clock.now_ms())
        self._ended.delete_prepare_message(half.queue_id, half.queue_offset)

    def _fault(self, error: ReputError) -> tuple[int, str]:
        """(code, remark) of a commit that failed (`sendFinalMessage`)."""
        if isinstance(error, RemotingCommandError):  # the message cannot wait for its time
            return error.code, error.remark
        if isinstance(error, MessageIllegalError):
            return ResponseCode.MESSAGE_ILLEGAL, (
                "The message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{self._store.config.max_message_size}B, msg properties length limit 32KB."
            )
        if isinstance(error, StoreBusyError):
            return ResponseCode.SYSTEM_ERROR, "OS page cache busy, please try another machine"
        return ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."

    def _look(self, commit_log_offset: int) -> MessageExt | None:
        """The half message at an offset of the log."""
        message = message_by_offset(self._store, commit_log_offset)
        if message is None or message.topic != TRANS_HALF_TOPIC:
            return None
        return message if {REAL_TOPIC, REAL_QID} <= message.properties.keys() else None

    async def resume_check(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Put a half message that was given up back into its queue, as one that was never checked."""
        header = decode_header(ResumeCheckHalfMessageRequestHeader, command.ext_fields)
        try:
            _, offset = decode_message_id(header.msg_id or "")
            found = await self._pools.reads.run_for(connection, message_by_offset, self._store, offset)
            if found is None or found.topic not in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
                raise MessageIllegalError(f"{header.msg_id} is no half message, and none that was given up")
            message = MessageExtBrokerInner.of_record(found.raw)
            message.topic, message.queue_id, message.prepared_transaction_offset = TRANS_HALF_TOPIC, 0, 0
            message.properties[TRANSACTION_CHECK_TIMES] = "0"
            await self._appends.put(message)
            if found.topic == TRANS_CHECK_MAX_TIME_TOPIC:  # it counts again
                self._transactions.add({message.properties.get(REAL_TOPIC, ""): 1}, self._clock.now_ms())
        except ReputError as error:
            logger.error(Event("a half message was not put back", id=header.msg_id, error=error))
            remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        return command.response()
