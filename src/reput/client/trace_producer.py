"""The producer that sends the traces of another client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.client.client_instance import ClientInstance
from reput.client.producer import Producer
from reput.client.traces import Traces
from reput.service.topic_validator import MAX_GROUP_LENGTH
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    from reput.client.session_credentials import SessionCredentials

#: How long a send of traces may take.
_TRACE_S = 5.0


async def trace_producer(
    namesrv: str, name: str, tls: ClientTls | None, credentials: SessionCredentials | None
) -> Producer:
    """A producer, started, that sends the traces of another client."""
    group = f"_INNER_TRACE_PRODUCER-{name}"[:MAX_GROUP_LENGTH]
    producer = Producer(namesrv, group=group, timeout=_TRACE_S, tls=tls, credentials=credentials)
    await producer.start()
    return producer


async def consumer_traces(
    client: ClientInstance,
    namesrv: str,
    topic: str,
    group: str,
    tls: ClientTls | None,
    credentials: SessionCredentials | None,
) -> Traces:
    """The traces of a consumer, with a producer that is started; arguments as of `Traces` and the consumer."""
    return Traces(client, await trace_producer(namesrv, f"{group}-CONSUME", tls, credentials), topic, group)
