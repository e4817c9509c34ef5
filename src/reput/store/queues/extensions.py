"""The extensions of all consume queues of a store: which queue has one, and in files of which size."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFormatError
from reput.files import FileLayer
from reput.formats.paths import CONSUME_QUEUE_EXT, file_name_to_offset
from reput.log.directory import QueueFiles
from reput.log.queue_extensions import queue_extensions
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.consume_queue_ext import ConsumeQueueExt

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps


class ConsumeQueueExtensions:
    """The extensions of all queues of a store, and whether new units get ext units (`enableConsumeQueueExt`).

    Existing addresses stay readable where the key is off; new units then hold plain tags codes.

    Attributes:
        file_size: Size in bytes of the files that are written; None where none is.
        bit_maps: See `MessageStore.open`.
    """

    def __init__(
        self, files: FileLayer, path: str, config: MessageStoreConfig, *, writable: bool, bit_maps: BitMaps | None
    ) -> None:
        self._files = files
        self._path = path
        self._found: dict[tuple[str, int], QueueFiles] = {}
        writes = writable and config.enable_consume_queue_ext
        self.file_size = config.mapped_file_size_consume_queue_ext if writes else None
        self.bit_maps = bit_maps

    def check(self) -> None:
        """List the files of the directory; nothing is changed.

        Raises:
            StoreFormatError: Ext units are to be written, and there are files of another size than the configured one.
        """
        for found in queue_extensions(self._path, self._files):
            if self.file_size not in (None, found.file_size):
                raise StoreFormatError(
                    f"{found.paths[0]}: {found.file_size} bytes, but mappedFileSizeConsumeQueueExt is "
                    f"{self.file_size}; give mappedFileSizeConsumeQueueExt={found.file_size} (to a command: --set), or "
                    f"move the folder {self._path}/{CONSUME_QUEUE_EXT} away: filters by tags then read the log itself"
                )
            self._found[found.topic, found.queue_id] = found

    def attach(self, queue: ConsumeQueue, on_new_name: Callable[[str], None], on_map: Callable[[], None]) -> None:
        """Give a queue its extension, where it has files or is to have them."""
        found = self._found.get((queue.topic, queue.queue_id))
        if found is None and self.file_size is None:
            return
        starts = [file_name_to_offset(os.path.basename(path)) for path in found.paths] if found else []
        queue.ext = ConsumeQueueExt(
            self._files,
            f"{self._path}/{CONSUME_QUEUE_EXT}/{queue.topic}/{queue.queue_id}",
            found.file_size if found else self.file_size or 0,
            [start for start in starts if start is not None],
            on_new_name=on_new_name,
            on_map=on_map,
        )
