"""Recalls of delayed messages by their handles (`RecallMessageRequestHeader`)."""

from __future__ import annotations

from reput.client.instance.arguments import check_topic_name
from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.mq_client_api import decoded
from reput.client.instance.namespaces import Namespace
from reput.config.arguments import check_text
from reput.errors import ConfigError, MessageIllegalError
from reput.remoting.codes import RequestCode
from reput.remoting.recall_handle import decode_recall_handle
from reput.remoting.recall_headers import RecallMessageRequestHeader, RecallMessageResponseHeader


async def recall_message(
    client: ClientInstance, namespace: Namespace, group: str, topic: str, recall_handle: str | None, timeout_s: float
) -> str:
    """Take back a delayed message, and return its id; errors as of `Producer.recall`."""
    check_topic_name(topic)
    if recall_handle is None:
        raise ConfigError(
            "recall_handle None: a message can be taken back that waits for a time of its own, not for one of the "
            "18 levels of delay (delay_ms=61_000, not 60_000), and at a broker of RocketMQ 5.4 or of reput's"
        )
    check_text("recall_handle", recall_handle)
    handle = decode_recall_handle(recall_handle)
    if handle is None:
        raise MessageIllegalError(f"recall_handle {recall_handle!r}: expected the recall_handle of a SendResult")
    topic = namespace.wrap(topic)
    await client.routes.publish_queues(topic)
    address = client.master(handle.broker_name)
    header = RecallMessageRequestHeader(topic, recall_handle, group)
    answer = await client.api.call(address, RequestCode.RECALL_MESSAGE, header, timeout_s=timeout_s)
    return decoded(address, RecallMessageResponseHeader, answer.ext_fields).msg_id
