"""The traces of a consumer, which a producer of its own sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.instance.traces import Traces
from reput.client.producing.producer import trace_producer
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    from reput.client.instance.session_credentials import SessionCredentials


async def start_traces(
    group: ConsumerGroup, namesrv: str, topic: str, tls: ClientTls | None, credentials: SessionCredentials | None
) -> Traces:
    """Trace what a member of a group handles, until its client is closed; arguments as of `Traces` and the consumer."""
    name = group.namespace.bare(group.name)
    own = await trace_producer(namesrv, f"{name}-CONSUME", tls, credentials)
    return Traces(group.client, own, topic, name)
