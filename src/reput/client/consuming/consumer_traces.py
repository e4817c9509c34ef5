"""The traces of a consumer, which a producer of its own sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.traces import Traces
from reput.client.producing.producer import trace_producer
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    from reput.client.instance.session_credentials import SessionCredentials


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
