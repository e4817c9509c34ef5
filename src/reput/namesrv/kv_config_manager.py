"""KVConfigManager: values that clients keep in the name server, by namespace and key (`KVConfigManager`)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from reput.errors import ConfigError, CorruptMetadataError
from reput.files import DISK
from reput.files.layer import FileLayer
from reput.formats.kv_config import KVConfigTable, decode_kv_config, encode_kv_config

#: Namespace of the order of a topic's queues: "broker-a:4;broker-b:4" by topic.
NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
#: Of the file: each change writes all of it, and nobody is asked who he is. The orders of 50,000 topics take as much.
_MOST_BYTES = 4 << 20


class KVConfigManager:
    """Values by namespace and key, in a file. What it answers is on the disk.

    Args:
        path: The file; it and its folder are made with the first value.
    """

    def __init__(self, path: str, files: FileLayer = DISK) -> None:
        self._path = os.path.expanduser(path)
        self._files = files
        self._table: KVConfigTable = {}
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Read the file, if there is one.

        Raises CorruptMetadataError if it is damaged, and StoreError if it cannot be read.
        """
        if not self._files.exists(self._path):
            return
        try:
            self._table = decode_kv_config(self._files.read_bytes(self._path))
        except CorruptMetadataError as error:
            raise CorruptMetadataError(
                self._path, error.offset, f"{error.reason}; restore the file from a copy, or remove it"
            ) from None

    def get(self, namespace: str, key: str) -> str | None:
        """A value, None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All values of a namespace by key, None if it never had one."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a value; returns when it is durable.

        Raises StoreError if it cannot be, and ConfigError if the next start could not read it, or the file is
        full; nothing is changed then.
        """
        async with self._writing:
            table = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
            await self._write(table, _MOST_BYTES)

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a value; errors as of `put`."""
        async with self._writing:
            if key in self._table.get(namespace, {}):
                rest = {name: value for name, value in self._table[namespace].items() if name != key}
                await self._write({**self._table, namespace: rest}, sys.maxsize)

    async def _write(self, table: KVConfigTable, most_bytes: int) -> None:
        await asyncio.to_thread(self._replace_file, table, most_bytes)
        self._table = table

    def _replace_file(self, table: KVConfigTable, most_bytes: int) -> None:
        data = encode_kv_config(table)
        if len(data) > most_bytes:
            raise ConfigError(f"{self._path} would have {len(data)} bytes: {most_bytes} at most; delete other values")
        try:
            is_readable = decode_kv_config(data) == table
        except CorruptMetadataError:
            is_readable = False
        if not is_readable:
            raise ConfigError(f"a key or a value could not be read again from {self._path}; nothing was changed")
        self._files.make_directories(os.path.dirname(self._path))
        self._files.write_atomically(self._path, data)
