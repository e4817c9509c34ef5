"""Producers and consumers of RocketMQ, in asyncio; `reput.client.sync` has the same names without it.

    async with Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send(Message("orders", b"..."))

The public names are listed below. Each is imported at its first use; NumPy, Numba and Arrow are not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.client.consuming.consumed_queue import PullLimits
    from reput.client.consuming.message_handler import ConsumeStatus
    from reput.client.consuming.pull_consumer import PullConsumer
    from reput.client.consuming.push_consumer import PushConsumer
    from reput.client.instance.message_client_ext import MessageClientExt
    from reput.client.instance.send_result import SendResult, SendStatus
    from reput.client.instance.session_credentials import SessionCredentials
    from reput.client.instance.subscriptions import MessageSelector
    from reput.client.producing.producer import Producer
    from reput.client.producing.transactions import LocalTransactionState, TransactionSendResult
    from reput.errors import AccessDeniedError, MQBrokerError, MQClientError
    from reput.formats.message import Message
    from reput.remoting.queue_tables import QueueKey as MessageQueue
    from reput.transport.tls import ClientTls

__all__ = [
    "AccessDeniedError",
    "ClientTls",
    "ConsumeStatus",
    "LocalTransactionState",
    "MQBrokerError",
    "MQClientError",
    "Message",
    "MessageClientExt",
    "MessageQueue",
    "MessageSelector",
    "Producer",
    "PullConsumer",
    "PullLimits",
    "PushConsumer",
    "SendResult",
    "SendStatus",
    "SessionCredentials",
    "TransactionSendResult",
]

_PLACE_OF = {
    "AccessDeniedError": ("reput.errors", "AccessDeniedError"),
    "ClientTls": ("reput.transport.tls", "ClientTls"),
    "LocalTransactionState": ("reput.client.producing.transactions", "LocalTransactionState"),
    "ConsumeStatus": ("reput.client.consuming.message_handler", "ConsumeStatus"),
    "MQBrokerError": ("reput.errors", "MQBrokerError"),
    "MQClientError": ("reput.errors", "MQClientError"),
    "Message": ("reput.formats.message", "Message"),
    "MessageClientExt": ("reput.client.instance.message_client_ext", "MessageClientExt"),
    "MessageQueue": ("reput.remoting.queue_tables", "QueueKey"),
    "Producer": ("reput.client.producing.producer", "Producer"),
    "MessageSelector": ("reput.client.instance.subscriptions", "MessageSelector"),
    "PullConsumer": ("reput.client.consuming.pull_consumer", "PullConsumer"),
    "PullLimits": ("reput.client.consuming.consumed_queue", "PullLimits"),
    "PushConsumer": ("reput.client.consuming.push_consumer", "PushConsumer"),
    "SendResult": ("reput.client.instance.send_result", "SendResult"),
    "SendStatus": ("reput.client.instance.send_result", "SendStatus"),
    "SessionCredentials": ("reput.client.instance.session_credentials", "SessionCredentials"),
    "TransactionSendResult": ("reput.client.producing.transactions", "TransactionSendResult"),
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at the name's first use (PEP 562), and keep the name here."""
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'reput.client' has no attribute {name!r}")
    module, attribute = _PLACE_OF[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
