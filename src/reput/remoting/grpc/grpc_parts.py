"""Parts of the messages of RocketMQ 5's gRPC protocol (`apache.rocketmq.v2`), which `grpc_interface.py` has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from reput.formats.java import INT64_MAX, INT64_MIN
from reput.remoting.grpc.protobuf import Fields, Int32, Int64


@dataclass(slots=True)
class Timestamp(Fields):
    """Time since 1970 UTC."""

    seconds: Annotated[Int64, 1] = 0
    nanos: Annotated[Int32, 2] = 0


@dataclass(slots=True)
class Duration(Fields):
    """Span of time."""

    seconds: Annotated[Int64, 1] = 0
    nanos: Annotated[Int32, 2] = 0


@dataclass(slots=True)
class GrpcResource(Fields):
    """Name of a topic or a group."""

    resource_namespace: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""


@dataclass(slots=True)
class Address(Fields):
    """Address of a server."""

    host: Annotated[str, 1] = ""
    port: Annotated[Int32, 2] = 0


@dataclass(slots=True)
class Endpoints(Fields):
    """Addresses of a server, of one kind (`AddressScheme`)."""

    scheme: Annotated[Int32, 1] = 0
    addresses: Annotated[Sequence[Address], 2] = ()


@dataclass(slots=True)
class GrpcBroker(Fields):
    """Broker, and where it is."""

    name: Annotated[str, 1] = ""
    id: Annotated[Int32, 2] = 0
    endpoints: Annotated[Endpoints | None, 3] = None


@dataclass(slots=True)
class GrpcMessageQueue(Fields):
    """Queue of a topic; `permission`: `Permission`, `accept_message_types`: `GrpcMessageType`."""

    topic: Annotated[GrpcResource | None, 1] = None
    id: Annotated[Int32, 2] = 0
    permission: Annotated[Int32, 3] = 0
    broker: Annotated[GrpcBroker | None, 4] = None
    accept_message_types: Annotated[Sequence[Int32], 5] = ()


@dataclass(slots=True)
class FilterExpression(Fields):
    """Expression for the messages that a consumer wants; `type`: `FilterType`."""

    type: Annotated[Int32, 1] = 0
    expression: Annotated[str, 2] = ""


@dataclass(slots=True)
class ExponentialBackoff(Fields):
    """Waits that grow."""

    initial: Annotated[Duration | None, 1] = None
    max: Annotated[Duration | None, 2] = None
    multiplier: Annotated[float, 3] = 0.0


@dataclass(slots=True)
class CustomizedBackoff(Fields):
    """Waits one by one."""

    next: Annotated[Sequence[Duration], 1] = ()


@dataclass(slots=True)
class RetryPolicy(Fields):
    """Number of tries, and the waits between them."""

    ONEOF = "exponential_backoff", "customized_backoff"

    max_attempts: Annotated[Int32, 1] = 0
    exponential_backoff: Annotated[ExponentialBackoff | None, 2] = None
    customized_backoff: Annotated[CustomizedBackoff | None, 3] = None


@dataclass(slots=True)
class SubscriptionEntry(Fields):
    """Subscription to a topic."""

    topic: Annotated[GrpcResource | None, 1] = None
    expression: Annotated[FilterExpression | None, 2] = None


@dataclass(slots=True)
class Digest(Fields):
    """Digest of a body; `type`: `DigestType`."""

    type: Annotated[Int32, 1] = 0
    checksum: Annotated[str, 2] = ""


@dataclass(slots=True)
class DeadLetterQueue(Fields):
    """Origin of a dead letter."""

    topic: Annotated[str, 1] = ""
    message_id: Annotated[str, 2] = ""


@dataclass(slots=True)
class SystemProperties(Fields):
    """Properties of a message that are not its user's own."""

    tag: Annotated[str | None, 1] = None
    keys: Annotated[Sequence[str], 2] = ()
    message_id: Annotated[str, 3] = ""
    body_digest: Annotated[Digest | None, 4] = None
    body_encoding: Annotated[Int32, 5] = 0
    message_type: Annotated[Int32, 6] = 0
    born_timestamp: Annotated[Timestamp | None, 7] = None
    born_host: Annotated[str, 8] = ""
    store_timestamp: Annotated[Timestamp | None, 9] = None
    store_host: Annotated[str, 10] = ""
    delivery_timestamp: Annotated[Timestamp | None, 11] = None
    receipt_handle: Annotated[str | None, 12] = None
    queue_id: Annotated[Int32, 13] = 0
    queue_offset: Annotated[Int64 | None, 14] = None
    invisible_duration: Annotated[Duration | None, 15] = None
    delivery_attempt: Annotated[Int32 | None, 16] = None
    message_group: Annotated[str | None, 17] = None
    trace_context: Annotated[str | None, 18] = None
    orphaned_transaction_recovery_duration: Annotated[Duration | None, 19] = None
    dead_letter_queue: Annotated[DeadLetterQueue | None, 20] = None
    lite_topic: Annotated[str | None, 21] = None
    priority: Annotated[Int32 | None, 22] = None


@dataclass(slots=True)
class GrpcMessage(Fields):
    """Message, sent or received."""

    topic: Annotated[GrpcResource | None, 1] = None
    user_properties: Annotated[dict[str, str], 2] = field(default_factory=dict)
    system_properties: Annotated[SystemProperties | None, 3] = None
    body: Annotated[bytes, 4] = b""


@dataclass(slots=True)
class Assignment(Fields):
    """Queue that a push consumer receives from."""

    message_queue: Annotated[GrpcMessageQueue | None, 1] = None


@dataclass(slots=True)
class Status(Fields):
    """Status of an answer; `code`: `Code`."""

    code: Annotated[Int32, 1] = 0
    message: Annotated[str, 2] = ""


@dataclass(slots=True)
class UA(Fields):
    """Language and version of a client."""

    language: Annotated[Int32, 1] = 0
    version: Annotated[str, 2] = ""
    platform: Annotated[str, 3] = ""
    hostname: Annotated[str, 4] = ""


@dataclass(slots=True)
class Publishing(Fields):
    """Settings of a producer."""

    topics: Annotated[Sequence[GrpcResource], 1] = ()
    max_body_size: Annotated[Int32, 2] = 0
    validate_message_type: Annotated[bool, 3] = False


@dataclass(slots=True)
class Subscription(Fields):
    """Settings of a consumer."""

    group: Annotated[GrpcResource | None, 1] = None
    subscriptions: Annotated[Sequence[SubscriptionEntry], 2] = ()
    fifo: Annotated[bool | None, 3] = None
    receive_batch_size: Annotated[Int32 | None, 4] = None
    long_polling_timeout: Annotated[Duration | None, 5] = None
    lite_subscription_quota: Annotated[Int32 | None, 6] = None
    max_lite_topic_size: Annotated[Int32 | None, 7] = None


@dataclass(slots=True)
class Metric(Fields):
    """Address to which a client reports metrics of its own, if it does."""

    on: Annotated[bool, 1] = False
    endpoints: Annotated[Endpoints | None, 2] = None


@dataclass(slots=True)
class Settings(Fields):
    """Settings of a client, as it has them or as the server wants them."""

    ONEOF = "publishing", "subscription"

    client_type: Annotated[Int32 | None, 1] = None
    access_point: Annotated[Endpoints | None, 2] = None
    backoff_policy: Annotated[RetryPolicy | None, 3] = None
    request_timeout: Annotated[Duration | None, 4] = None
    publishing: Annotated[Publishing | None, 5] = None
    subscription: Annotated[Subscription | None, 6] = None
    user_agent: Annotated[UA | None, 7] = None
    metric: Annotated[Metric | None, 8] = None
    client_properties: Annotated[dict[str, str], 9] = field(default_factory=dict)


def to_ms(time: Timestamp | Duration | None) -> int:
    """Milliseconds of a time or a span, rounded down, and at most what 64 bits hold; 0 if it is absent."""
    if time is None:
        return 0
    return min(max(time.seconds * 1000 + time.nanos // 1_000_000, INT64_MIN), INT64_MAX)


def timestamp(ms: int) -> Timestamp:
    """A time by its milliseconds since 1970 UTC."""
    return Timestamp(ms // 1000, ms % 1000 * 1_000_000)


def duration(ms: int) -> Duration:
    """A span of milliseconds."""
    return Duration(ms // 1000, ms % 1000 * 1_000_000)
