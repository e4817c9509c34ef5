"""Headers of requests that end transactions, and of the broker's question how one ended."""

from __future__ import annotations

from dataclasses import dataclass

from reput.remoting.header import Int32, Int64


@dataclass(frozen=True, slots=True)
class EndTransactionRequestHeader:
    """Outcome of a transaction (END_TRANSACTION).

    `commit_or_rollback`: a transaction type of `SysFlag`, 0 if the producer does not know;
    `tran_state_table_offset`: queue offset of the half message; `from_transaction_check`: the answer to a check.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool = False
    topic: str | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class CheckTransactionStateRequestHeader:
    """The question how the transaction of a half message ended (CHECK_TRANSACTION_STATE, broker to producer).

    Offsets are the half message's that was put last; `msg_id` and `transaction_id`: the unique key.
    """

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeCheckHalfMessageRequestHeader:
    """A half message that was checked too often, to be checked again (RESUME_CHECK_HALF_MESSAGE).

    `msg_id`: an offset message id.
    """

    topic: str | None = None
    msg_id: str | None = None
