"""Delivered offsets of each delay level (`ScheduleMessageService`'s offset table)."""

from __future__ import annotations

from collections.abc import Callable

from reput.files import DISK, FileLayer
from reput.formats.metadata import DelayOffsets
from reput.service.config_manager import ConfigManager


class DelayOffsetManager(ConfigManager[DelayOffsets]):
    """The offsets of `config/delayOffset.json`.

    They are in memory at once and in the file after the next `persist`: a broker that is killed delivers the messages
    of the last seconds again (`flushDelayOffsetInterval`).

    Args:
        root: The store directory.
        files: The file layer.
        delay_offset_update_version_step: The data version goes on by one after this number of changes.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    follows_log = True

    def __init__(self, root: str, files: FileLayer = DISK, *, delay_offset_update_version_step: int = 200) -> None:
        super().__init__(DelayOffsets, root, files)
        self._step = delay_offset_update_version_step
        self._offsets = dict(self._loaded.offset_table)

    def content(self) -> DelayOffsets:
        """The content of `delayOffset.json`, as of now."""
        return DelayOffsets(dict(self._offsets), self.data_version, self._loaded.others)

    def offset(self, level: int) -> int:
        """The queue offset of the next message of a level to be delivered; 0 if none ever was."""
        return self._offsets.get(level, 0)

    def update_offset(self, level: int, offset: int, now_ms: int) -> None:
        """All messages of a level before an offset have been delivered."""
        if self._offsets.get(level) == offset:
            return
        self._offsets[level] = offset
        self._count(self._step, now_ms)

    def copy(self, content: DelayOffsets, max_offset: Callable[[int], int]) -> None:
        """Take over the offsets of a master.

        Args:
            max_offset: The end of a level's queue, up to which its offset is taken.
        """
        offsets = {level: min(offset, max_offset(level)) for level, offset in content.offset_table.items()}
        if offsets != self._offsets:
            self._offsets, self.data_version = offsets, content.data_version
            self._changes += 1
