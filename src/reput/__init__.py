"""reput: Apache RocketMQ's message store in Python, byte for byte, and Spark jobs that read its files directly.

The public names are listed below. Each is imported at its first use, so that `import reput` alone is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reput.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptBackupError,
    CorruptConsumeQueueError,
    CorruptIndexFileError,
    CorruptMetadataError,
    CorruptRecordError,
    CorruptStoreError,
    DataLossError,
    MessageIllegalError,
    MissingFieldError,
    MQBrokerError,
    MQClientError,
    RemotingCommandError,
    RemotingDecodeError,
    RemotingError,
    ReplicationError,
    ReputError,
    StoreBusyError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreLockedError,
    StorePoisonedError,
    StoreStateError,
    StoreSyncError,
    SubscriptionError,
)
from reput.extras import has_store, has_tables, require_store, require_tables
from reput.version import __version__ as __version__

if TYPE_CHECKING:
    from reput.broker.embedded import Broker
    from reput.config.message_store import FlushDiskType, MessageStoreConfig
    from reput.formats.message import Message
    from reput.formats.message_batch import MessageExtBatch
    from reput.formats.message_ext import MessageExt
    from reput.formats.metadata import TopicConfig
    from reput.log import log_dataset, read_log
    from reput.store.message_store import MessageStore
    from reput.store.puts.put_future import PutFuture
    from reput.store.results import GetMessageStatus, PutMessageStatus

__all__ = [
    "AccessDeniedError",
    "Broker",
    "ConfigError",
    "CorruptBackupError",
    "CorruptConsumeQueueError",
    "CorruptIndexFileError",
    "CorruptMetadataError",
    "CorruptRecordError",
    "CorruptStoreError",
    "DataLossError",
    "FlushDiskType",
    "GetMessageStatus",
    "MQBrokerError",
    "MQClientError",
    "Message",
    "MessageExt",
    "MessageExtBatch",
    "MessageIllegalError",
    "MessageStore",
    "MessageStoreConfig",
    "MissingFieldError",
    "PutFuture",
    "PutMessageStatus",
    "RemotingCommandError",
    "RemotingDecodeError",
    "RemotingError",
    "ReplicationError",
    "ReputError",
    "StoreBusyError",
    "StoreError",
    "StoreFormatError",
    "StoreFullError",
    "StoreLockedError",
    "StorePoisonedError",
    "StoreStateError",
    "StoreSyncError",
    "SubscriptionError",
    "TopicConfig",
    "log_dataset",
    "read_log",
]

_MODULE_OF = {
    "Broker": "reput.broker.embedded",
    "FlushDiskType": "reput.config.message_store",
    "GetMessageStatus": "reput.store.results",
    "Message": "reput.formats.message",
    "MessageExt": "reput.formats.message_ext",
    "MessageExtBatch": "reput.formats.message_batch",
    "MessageStore": "reput.store.message_store",
    "MessageStoreConfig": "reput.config.message_store",
    "PutFuture": "reput.store.puts.put_future",
    "PutMessageStatus": "reput.store.results",
    "TopicConfig": "reput.formats.metadata",
    "log_dataset": "reput.log",
    "read_log": "reput.log",
}
#: Names that an installation without the extra `store` does not have.
_OF_STORE = {"Broker", "MessageStore"}
#: Those that an installation without the extra `tables` does not have.
_OF_TABLES = {"log_dataset", "read_log"}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at the name's first use (PEP 562), and keep the name here."""
    if name not in _MODULE_OF:
        raise _unknown(name)
    if name in _OF_STORE:
        require_store(f"reput.{name}")
    if name in _OF_TABLES:
        require_tables(f"reput.{name}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def _unknown(name: str) -> Exception:
    """The error about a name that is not here: `from reput import name` shows the text of an ImportError alone."""
    for module in ("reput.client", "reput.testing"):
        if not name.startswith("_") and name in import_module(module).__all__:
            return ImportError(f"cannot import name {name!r} from 'reput': from {module} import {name}", name=name)
    return AttributeError(f"module 'reput' has no attribute {name!r}")


def __dir__() -> list[str]:
    missing = (set() if has_store() else _OF_STORE) | (set() if has_tables() else _OF_TABLES)
    return sorted({"__version__", *__all__} - missing)
