"""EndTransaction, and the question to a producer how a transaction ended (`EndTransactionActivity`)."""

from __future__ import annotations

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.grpc.client_channel import Caller
from reput.broker.grpc.routes import producer_need
from reput.formats.message_ext import MessageExt
from reput.formats.properties import PGROUP
from reput.formats.record_layout import SysFlag
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.grpc.grpc_codes import Code, TransactionResolution, TransactionSource
from reput.remoting.grpc.grpc_interface import (
    EndTransactionRequest,
    RecoverOrphanedTransactionCommand,
    StatusResponse,
    TelemetryCommand,
)
from reput.remoting.header import decode_header
from reput.remoting.topic_validator import TRANS_GROUP, TRANS_HALF_TOPIC
from reput.remoting.transaction_headers import CheckTransactionStateRequestHeader
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.grpc.delivered_messages import delivered_message
from reput.service.grpc.message_checks import checked_topic
from reput.service.grpc.statuses import RefusedCallError, ok, refused
from reput.service.grpc.transaction_data import TransactionData
from reput.store.message_store import MessageStore

_ENDS = {
    TransactionResolution.COMMIT: SysFlag.TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: SysFlag.TRANSACTION_ROLLBACK,
}


class TransactionCalls:
    """Ends transactions by the offsets of their half messages, which clients do not know.

    Args:
        clock, pools, store, offsets: The broker's.
        data: Offsets of half messages that were put or asked for a short time ago; others are looked for.
    """

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        data: TransactionData,
    ) -> None:
        self._clock, self._pools, self._store, self._data = clock, pools, store, data
        self._offsets_of_groups = offsets

    async def end_transaction(self, caller: Caller, request: EndTransactionRequest) -> StatusResponse:
        """Commit or roll back; a client that does not know is asked again."""
        topic, transaction_id = checked_topic(request.topic), request.transaction_id
        caller.require(producer_need(topic))
        if not transaction_id or transaction_id.isspace():
            raise RefusedCallError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        end = _ENDS.get(request.resolution)  # type: ignore[call-overload]
        if end is None:
            return StatusResponse(ok())
        offsets = await self._offsets(caller, topic, transaction_id)
        if offsets is None:
            raise RefusedCallError(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        queue_offset, log_offset = offsets
        is_check = request.source == TransactionSource.SERVER_CHECK
        fields = {
            "producerGroup": topic, "topic": topic, "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(log_offset), "commitOrRollback": str(int(end)), "msgId": request.message_id,
            "fromTransactionCheck": "true" if is_check else "false", "transactionId": transaction_id,
        }  # fmt: skip
        answer = await caller.request(RequestCode.END_TRANSACTION, fields)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer.code, answer.remark)
        self._data.end(topic, transaction_id)
        return StatusResponse(ok())

    async def _offsets(self, caller: Caller, topic: str, transaction_id: str) -> tuple[int, int] | None:
        """Offsets of a half message in its queue and in the log; None if there is none."""
        noted = self._data.take(topic, transaction_id, self._clock.machine_ms())
        if noted is not None:
            return noted.queue_offset, noted.commit_log_offset
        if self._data.is_ended(topic, transaction_id):
            return None
        judged = self._offsets_of_groups.query_offset(TRANS_GROUP, TRANS_HALF_TOPIC, 0)
        return await self._pools.reads.run_for(caller.channel, self._look, topic, transaction_id, judged)

    def _look(self, topic: str, transaction_id: str, judged: int) -> tuple[int, int] | None:
        """The newest half message with a unique key, by the index: after 30 s, and after a restart.

        None if it was ended: checks have gone on beyond it (`judged`), or its message is there.
        """
        found = self._store.query_message(TRANS_HALF_TOPIC, transaction_id)
        halves = [one for one in found if one.unique_key == transaction_id and one.properties.get(PGROUP) == topic]
        newest = max(halves, key=lambda one: one.commit_log_offset, default=None)
        if newest is None or newest.queue_offset < judged:
            return None
        committed = self._store.query_message(topic, transaction_id)
        if any(one.prepared_transaction_offset == newest.commit_log_offset for one in committed):
            return None
        return newest.queue_offset, newest.commit_log_offset

    def question(self, command: RemotingCommand, most_body: int) -> TelemetryCommand:
        """The question for the end of a transaction as a client of gRPC gets it."""
        header = decode_header(CheckTransactionStateRequestHeader, command.ext_fields)
        record = MessageExt(command.body)
        topic, transaction_id = record.properties.get(PGROUP, ""), header.transaction_id or ""
        offsets = header.tran_state_table_offset, header.commit_log_offset
        self._data.note(topic, transaction_id, *offsets, self._clock.machine_ms())
        message = delivered_message(record, record.topic, None, record.reconsume_times, most_body)
        recover = RecoverOrphanedTransactionCommand(message, transaction_id)
        return TelemetryCommand(recover_orphaned_transaction_command=recover)
