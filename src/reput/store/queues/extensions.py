"""Extensions of all consume queues of a store: which queue has an extension, and the size of its files."""

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
    from reput.kernels.queues.consume_queue_ext import BitMaps


class ConsumeQueueExtensions:
    """The extensions of all queues of a store, and whether new units get ext units (`enableConsumeQueueExt`).

    If the key is off, existing ext addresses stay readable, and new units hold plain tags codes.

    Attributes:
        file_size: Bytes of a file that is written; None if no ext units are written.
        bit_maps: See `MessageStore.open`.
    """

    def __init__(
        self, files: FileLayer, path: str, config: MessageStoreConfig, *, writable: bool, bit_maps: BitMaps | None
    ) -> None:
        self._files = files
        self._path = path
        self._listed: dict[tuple[str, int], QueueFiles] = {}
        writes = writable and config.enable_consume_queue_ext
        self.file_size = config.mapped_file_size_consume_queue_ext if writes else None
        self.bit_maps = bit_maps

    def check(self) -> None:
        """List the extensions' files; nothing is changed.

        Raises:
            StoreFormatError: Ext units are to be written, and files have another size than the configured size.
        """
        for listed in queue_extensions(self._path, self._files):
            if self.file_size not in (None, listed.file_size):
                raise StoreFormatError(
                    f"{listed.paths[0]}: {listed.file_size} bytes, but mappedFileSizeConsumeQueueExt is "
                    f"{self.file_size}; give mappedFileSizeConsumeQueueExt={listed.file_size} (to a command: --set), "
                    f"or move the folder {self._path}/{CONSUME_QUEUE_EXT} away: filters by tags then read the log"
                )
            self._listed[listed.topic, listed.queue_id] = listed

    def attach(self, queue: ConsumeQueue, on_new_name: Callable[[str], None], on_map: Callable[[], None]) -> None:
        """Give a queue its extension, if the extension has files or is to be written."""
        listed = self._listed.get((queue.topic, queue.queue_id))
        if listed is None and self.file_size is None:
            return
        starts = [file_name_to_offset(os.path.basename(path)) for path in listed.paths] if listed else []
        queue.ext = ConsumeQueueExt(
            self._files,
            f"{self._path}/{CONSUME_QUEUE_EXT}/{queue.topic}/{queue.queue_id}",
            listed.file_size if listed else self.file_size or 0,
            [start for start in starts if start is not None],
            on_new_name=on_new_name,
            on_map=on_map,
        )
