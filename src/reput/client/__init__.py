"""Producers and consumers of RocketMQ, in asyncio; `reput.client.sync` has the same names without it.

    async with Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send(Message("orders", b"..."))

The public names are listed below. Each is imported at its first use; NumPy, Numba and Arrow are not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.client.consumed_queue import PullLimits
    from reput.client.message_client_ext import MessageClientExt
    from reput.client.message_handler import ConsumeStatus
    from reput.client.producer import Producer
    from reput.client.pull_consumer import PullConsumer
    from reput.client.push_consumer import PushConsumer
    from reput.client.send_result import SendResult, SendStatus
    from reput.client.session_credentials import SessionCredentials
    from reput.client.subscriptions import MessageSelector
    from reput.client.transactions import LocalTransactionState, TransactionSendResult
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
    "LocalTransactionState": ("reput.client.transactions", "LocalTransactionState"),
    "ConsumeStatus": ("reput.client.message_handler", "ConsumeStatus"),
    "MQBrokerError": ("reput.errors", "MQBrokerError"),
    "MQClientError": ("reput.errors", "MQClientError"),
    "Message": ("reput.formats.message", "Message"),
    "MessageClientExt": ("reput.client.message_client_ext", "MessageClientExt"),
    "MessageQueue": ("reput.remoting.queue_tables", "QueueKey"),
    "Producer": ("reput.client.producer", "Producer"),
    "MessageSelector": ("reput.client.subscriptions", "MessageSelector"),
    "PullConsumer": ("reput.client.pull_consumer", "PullConsumer"),
    "PullLimits": ("reput.client.consumed_queue", "PullLimits"),
    "PushConsumer": ("reput.client.push_consumer", "PushConsumer"),
    "SendResult": ("reput.client.send_result", "SendResult"),
    "SendStatus": ("reput.client.send_result", "SendStatus"),
    "SessionCredentials": ("reput.client.session_credentials", "SessionCredentials"),
    "TransactionSendResult": ("reput.client.transactions", "TransactionSendResult"),
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
