"""MessageStoreOptions: a checker knows each key of MessageStore.open and its type."""

from __future__ import annotations

from reput.config.message_store import MessageStoreConfig
from reput.config.message_store_options import MessageStoreOptions
from reput.config.rocketmq_config import keys_of


def test_each_key_is_typed_as_in_the_configuration() -> None:
    typed = {name: one.__forward_arg__ for name, one in MessageStoreOptions.__annotations__.items()}
    expected = {name: key.type for name, key in keys_of(MessageStoreConfig).items()}
    assert typed == expected | {"flush_disk_type": "FlushDiskType | Literal['SYNC_FLUSH', 'ASYNC_FLUSH']"}
