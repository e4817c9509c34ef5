"""Options of the clients, which `reput.client.sync` hands on; their classes in asyncio say what each one means."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from reput.client.consuming.consumed_queue import PullLimits
    from reput.client.instance.session_credentials import SessionCredentials
    from reput.client.instance.subscriptions import ConsumeFrom, MessageSelector
    from reput.client.producing.transactions import CheckTransaction
    from reput.transport.tls import ClientTls


class ClientOptions(TypedDict, total=False):
    """Of each client."""

    tls: ClientTls | None
    credentials: SessionCredentials | None
    namespace: str | None


class ProducerOptions(ClientOptions, total=False):
    """Of `reput.client.Producer`."""

    timeout: float
    retries: int
    auto_batch: bool
    check_transaction: CheckTransaction | None
    topics: Collection[str]
    trace: bool | str


class PushConsumerOptions(ClientOptions, total=False):
    """Of `reput.client.PushConsumer`."""

    orderly: bool
    broadcasting: bool
    consume_from: ConsumeFrom
    trace: bool | str
    concurrency: int
    max_reconsume_times: int | None
    limits: PullLimits | None
    offsets_path: str | None
    consume_timeout: float
    close_timeout: float


class PullConsumerOptions(ClientOptions, total=False):
    """Of `reput.client.PullConsumer`."""

    topics: Mapping[str, str | MessageSelector] | None
    consume_from: ConsumeFrom
    trace: bool | str
