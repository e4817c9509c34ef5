"""A gRPC client of a broker in the loop of a test, by Google's library: calls by their names, messages of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc.aio

from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import ClientType, Code, FilterType
from reput.remoting.grpc.grpc_parts import (
    FilterExpression,
    GrpcMessage,
    GrpcMessageQueue,
    GrpcResource,
    Publishing,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    duration,
)
from reput.remoting.grpc.protobuf import Fields, decode, encode

_F = TypeVar("_F", bound=Fields)

#: What answers a call, where that is no class with the name of the call.
_RESPONSES: dict[str, type[Fields]] = dict.fromkeys(
    ("Heartbeat", "EndTransaction", "NotifyClientTermination", "ForwardMessageToDeadLetterQueue"), v2.StatusResponse
)


class GrpcClient:
    """A client, by its id."""

    def __init__(self, channel: Any, client_id: str = "client-1", **metadata: str) -> None:
        self._channel, self.client_id = channel, client_id
        given = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON"} | {
            name.replace("_", "-"): value for name, value in metadata.items()
        }
        self._metadata = tuple(given.items())

    def as_client(self, client_id: str, **metadata: str) -> GrpcClient:
        """Another client of the same connection."""
        return GrpcClient(self._channel, client_id, **metadata)

    async def call(self, name: str, request: Fields, *, timeout_s: float = 30) -> Any:
        """The answer to a call."""
        response = _RESPONSES.get(name) or getattr(v2, f"{name}Response")
        method = self._channel.unary_unary(
            f"/{v2.SERVICE}/{name}",
            request_serializer=encode,
            response_deserializer=lambda data: decode(response, data),
        )
        return await method(request, metadata=self._metadata, timeout=timeout_s)

    def receiving(self, request: v2.ReceiveMessageRequest, *, timeout_s: float | None = 30) -> Any:
        """A receive that has begun; an iterator of parts."""
        method = self._channel.unary_stream(
            f"/{v2.SERVICE}/ReceiveMessage",
            request_serializer=encode,
            response_deserializer=lambda data: decode(v2.ReceiveMessageResponse, data),
        )
        return method(request, metadata=self._metadata, timeout=timeout_s)

    async def receive(self, topic: str, group: str = "g", **more: Any) -> tuple[int, list[GrpcMessage]]:
        """Status code and messages of a receive; its end is the time."""
        timeout_s = more.pop("timeout_s", 30)
        parts = [part async for part in self.receiving(receive_request(topic, group, **more), timeout_s=timeout_s)]
        assert parts[0].status is not None
        assert parts[-1].delivery_timestamp is not None
        messages = [part.message for part in parts[1:-1]]
        assert None not in messages
        return parts[0].status.code, messages

    def telemetry(self) -> Any:
        """The stream of the client."""
        method = self._channel.stream_stream(
            f"/{v2.SERVICE}/Telemetry",
            request_serializer=encode,
            response_deserializer=lambda data: decode(v2.TelemetryCommand, data),
        )
        return method(metadata=self._metadata)

    async def settle(self, settings: Settings) -> tuple[Any, v2.TelemetryCommand]:
        """A stream on which the client has sent settings, and the answer."""
        stream = self.telemetry()
        await stream.write(v2.TelemetryCommand(settings=settings))
        answer = await stream.read()
        assert isinstance(answer, v2.TelemetryCommand)
        return stream, answer

    async def send(self, topic: str, *bodies: bytes, **system: Any) -> v2.SendMessageResponse:
        """The answer to a send of these messages."""
        messages = [message(topic, body, **system) for body in bodies]
        answer = await self.call("SendMessage", v2.SendMessageRequest(messages))
        assert isinstance(answer, v2.SendMessageResponse)
        return answer

    async def ack(self, topic: str, group: str, *messages: GrpcMessage) -> v2.AckMessageResponse:
        """The answer to an ack of these messages."""
        entries = [v2.AckMessageEntry(id_of(one), handle_of(one)) for one in messages]
        request = v2.AckMessageRequest(GrpcResource(name=group), GrpcResource(name=topic), entries)
        answer = await self.call("AckMessage", request)
        assert isinstance(answer, v2.AckMessageResponse)
        return answer


def message(topic: str, body: bytes = b"x", *, user: dict[str, str] | None = None, **system: Any) -> GrpcMessage:
    """A message; `system`: its system properties."""
    given = {"message_id": f"id-{body[:20].hex()}", "message_type": 1, "body_encoding": 1} | system
    return GrpcMessage(GrpcResource(name=topic), user or {}, SystemProperties(**given), body)


def receive_request(topic: str, group: str = "g", *, tags: str = "*", **more: Any) -> v2.ReceiveMessageRequest:
    """A receive of a simple consumer that waits as short as it may."""
    given: dict[str, Any] = {
        "filter_expression": FilterExpression(FilterType.TAG, tags), "batch_size": 32,
        "invisible_duration": duration(60_000), "long_polling_timeout": duration(5000),
    } | more  # fmt: skip
    queue = GrpcMessageQueue(GrpcResource(name=topic), -1)
    return v2.ReceiveMessageRequest(GrpcResource(name=group), queue, **given)


def producer_settings(*topics: str) -> Settings:
    """Settings of a producer."""
    publishing = Publishing([GrpcResource(name=topic) for topic in topics])
    return Settings(ClientType.PRODUCER, request_timeout=duration(3000), publishing=publishing)


def consumer_settings(
    group: str, *topics: str, client_type: int = ClientType.PUSH_CONSUMER, tags: str = "*"
) -> Settings:
    """Settings of a consumer."""
    entries = [SubscriptionEntry(GrpcResource(name=topic), FilterExpression(FilterType.TAG, tags)) for topic in topics]
    subscription = Subscription(GrpcResource(name=group), entries)
    return Settings(client_type, request_timeout=duration(3000), subscription=subscription)


def id_of(one: GrpcMessage) -> str:
    """Message id."""
    assert one.system_properties is not None
    return one.system_properties.message_id


def handle_of(one: GrpcMessage) -> str:
    """Receipt handle."""
    assert one.system_properties is not None
    return one.system_properties.receipt_handle or ""


def bodies(messages: Sequence[GrpcMessage]) -> list[str]:
    """Bodies in their order."""
    return [one.body.decode() for one in messages]


@asynccontextmanager
async def grpc_client(address: str, client_id: str = "client-1", **metadata: str) -> AsyncIterator[GrpcClient]:
    """A client with a connection of its own."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield GrpcClient(channel, client_id, **metadata)
    await asyncio.sleep(0)


OK = int(Code.OK)
