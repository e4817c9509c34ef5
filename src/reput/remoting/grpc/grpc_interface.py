"""Messages of RocketMQ 5's gRPC protocol: what calls bring, what answers them, and the commands beside them.

Fields and messages that nobody here looks at are left out, and passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from reput.remoting.grpc.grpc_parts import (
    Assignment,
    Duration,
    Endpoints,
    FilterExpression,
    GrpcMessage,
    GrpcMessageQueue,
    GrpcResource,
    Settings,
    Status,
    Timestamp,
)
from reput.remoting.grpc.protobuf import Fields, Int32, Int64

SERVICE = "apache.rocketmq.v2.MessagingService"


@dataclass(slots=True)
class StatusResponse(Fields):
    """Answer that is a status alone: of Heartbeat, EndTransaction, NotifyClientTermination and the dead letters."""

    status: Annotated[Status | None, 1] = None


@dataclass(slots=True)
class QueryRouteRequest(Fields):
    """Question for the queues of a topic."""

    topic: Annotated[GrpcResource | None, 1] = None
    endpoints: Annotated[Endpoints | None, 2] = None


@dataclass(slots=True)
class QueryRouteResponse(Fields):
    """Queues of a topic."""

    status: Annotated[Status | None, 1] = None
    message_queues: Annotated[Sequence[GrpcMessageQueue], 2] = ()


@dataclass(slots=True)
class SendMessageRequest(Fields):
    """Messages to send."""

    messages: Annotated[Sequence[GrpcMessage], 1] = ()


@dataclass(slots=True)
class SendResultEntry(Fields):
    """Result of a send."""

    status: Annotated[Status | None, 1] = None
    message_id: Annotated[str, 2] = ""
    transaction_id: Annotated[str, 3] = ""
    offset: Annotated[Int64, 4] = 0
    recall_handle: Annotated[str, 5] = ""


@dataclass(slots=True)
class SendMessageResponse(Fields):
    """Results of sends."""

    status: Annotated[Status | None, 1] = None
    entries: Annotated[Sequence[SendResultEntry], 2] = ()


@dataclass(slots=True)
class QueryAssignmentRequest(Fields):
    """Question for the queues that a push consumer receives from."""

    topic: Annotated[GrpcResource | None, 1] = None
    group: Annotated[GrpcResource | None, 2] = None
    endpoints: Annotated[Endpoints | None, 3] = None


@dataclass(slots=True)
class QueryAssignmentResponse(Fields):
    """Queues that a push consumer receives from."""

    status: Annotated[Status | None, 1] = None
    assignments: Annotated[Sequence[Assignment], 2] = ()


@dataclass(slots=True)
class ReceiveMessageRequest(Fields):
    """Wish for messages."""

    group: Annotated[GrpcResource | None, 1] = None
    message_queue: Annotated[GrpcMessageQueue | None, 2] = None
    filter_expression: Annotated[FilterExpression | None, 3] = None
    batch_size: Annotated[Int32, 4] = 0
    invisible_duration: Annotated[Duration | None, 5] = None
    auto_renew: Annotated[bool, 6] = False
    long_polling_timeout: Annotated[Duration | None, 7] = None
    attempt_id: Annotated[str | None, 8] = None


@dataclass(slots=True)
class ReceiveMessageResponse(Fields):
    """Part of the answer to a wish for messages."""

    ONEOF = "status", "message", "delivery_timestamp"

    status: Annotated[Status | None, 1] = None
    message: Annotated[GrpcMessage | None, 2] = None
    delivery_timestamp: Annotated[Timestamp | None, 3] = None


@dataclass(slots=True)
class AckMessageEntry(Fields):
    """Message to ack."""

    message_id: Annotated[str, 1] = ""
    receipt_handle: Annotated[str, 2] = ""
    lite_topic: Annotated[str | None, 3] = None


@dataclass(slots=True)
class AckMessageRequest(Fields):
    """Messages to ack."""

    group: Annotated[GrpcResource | None, 1] = None
    topic: Annotated[GrpcResource | None, 2] = None
    entries: Annotated[Sequence[AckMessageEntry], 3] = ()


@dataclass(slots=True)
class AckMessageResultEntry(Fields):
    """Result of an ack."""

    message_id: Annotated[str, 1] = ""
    receipt_handle: Annotated[str, 2] = ""
    status: Annotated[Status | None, 3] = None


@dataclass(slots=True)
class AckMessageResponse(Fields):
    """Results of acks."""

    status: Annotated[Status | None, 1] = None
    entries: Annotated[Sequence[AckMessageResultEntry], 2] = ()


@dataclass(slots=True)
class ForwardMessageToDeadLetterQueueRequest(Fields):
    """Message that goes to the dead letters."""

    group: Annotated[GrpcResource | None, 1] = None
    topic: Annotated[GrpcResource | None, 2] = None
    receipt_handle: Annotated[str, 3] = ""
    message_id: Annotated[str, 4] = ""
    delivery_attempt: Annotated[Int32, 5] = 0
    max_delivery_attempts: Annotated[Int32, 6] = 0
    lite_topic: Annotated[str | None, 7] = None


@dataclass(slots=True)
class HeartbeatRequest(Fields):
    """Heartbeat of a client."""

    group: Annotated[GrpcResource | None, 1] = None
    client_type: Annotated[Int32, 2] = 0


@dataclass(slots=True)
class EndTransactionRequest(Fields):
    """End of a transaction."""

    topic: Annotated[GrpcResource | None, 1] = None
    message_id: Annotated[str, 2] = ""
    transaction_id: Annotated[str, 3] = ""
    resolution: Annotated[Int32, 4] = 0
    source: Annotated[Int32, 5] = 0
    trace_context: Annotated[str, 6] = ""


@dataclass(slots=True)
class PrintThreadStackTraceCommand(Fields):
    """Question for the stacks of a client's threads."""

    nonce: Annotated[str, 1] = ""


@dataclass(slots=True)
class ThreadStackTrace(Fields):
    """Stacks of a client's threads."""

    nonce: Annotated[str, 1] = ""
    thread_stack_trace: Annotated[str | None, 2] = None


@dataclass(slots=True)
class VerifyMessageCommand(Fields):
    """Message that a client is to consume at once."""

    nonce: Annotated[str, 1] = ""
    message: Annotated[GrpcMessage | None, 2] = None


@dataclass(slots=True)
class VerifyMessageResult(Fields):
    """End of a consumption; how it ended is the command's status."""

    nonce: Annotated[str, 1] = ""


@dataclass(slots=True)
class RecoverOrphanedTransactionCommand(Fields):
    """Question for the end of a transaction."""

    message: Annotated[GrpcMessage | None, 1] = None
    transaction_id: Annotated[str, 2] = ""


@dataclass(slots=True)
class TelemetryCommand(Fields):
    """Command of client or server beside the calls."""

    ONEOF = (
        "settings",
        "thread_stack_trace",
        "verify_message_result",
        "recover_orphaned_transaction_command",
        "print_thread_stack_trace_command",
        "verify_message_command",
    )

    status: Annotated[Status | None, 1] = None
    settings: Annotated[Settings | None, 2] = None
    thread_stack_trace: Annotated[ThreadStackTrace | None, 3] = None
    verify_message_result: Annotated[VerifyMessageResult | None, 4] = None
    recover_orphaned_transaction_command: Annotated[RecoverOrphanedTransactionCommand | None, 5] = None
    print_thread_stack_trace_command: Annotated[PrintThreadStackTraceCommand | None, 6] = None
    verify_message_command: Annotated[VerifyMessageCommand | None, 7] = None


@dataclass(slots=True)
class NotifyClientTerminationRequest(Fields):
    """Farewell of a client."""

    group: Annotated[GrpcResource | None, 1] = None


@dataclass(slots=True)
class ChangeInvisibleDurationRequest(Fields):
    """Other invisible time of a message."""

    group: Annotated[GrpcResource | None, 1] = None
    topic: Annotated[GrpcResource | None, 2] = None
    receipt_handle: Annotated[str, 3] = ""
    invisible_duration: Annotated[Duration | None, 4] = None
    message_id: Annotated[str, 5] = ""
    lite_topic: Annotated[str | None, 6] = None
    suspend: Annotated[bool | None, 7] = None


@dataclass(slots=True)
class ChangeInvisibleDurationResponse(Fields):
    """Answer with the new handle."""

    status: Annotated[Status | None, 1] = None
    receipt_handle: Annotated[str, 2] = ""


@dataclass(slots=True)
class RecallMessageRequest(Fields):
    """Recall of a message that waits for its time."""

    topic: Annotated[GrpcResource | None, 1] = None
    recall_handle: Annotated[str, 2] = ""


@dataclass(slots=True)
class RecallMessageResponse(Fields):
    """Answer with the id of the message."""

    status: Annotated[Status | None, 1] = None
    message_id: Annotated[str, 2] = ""
