"""Modes in which members get messages, as an operator sets them by topic and group (`MessageRequestModeManager`)."""

from __future__ import annotations

from reput.files import DISK, FileLayer
from reput.formats.metadata import MessageRequestModeBody, MessageRequestModes
from reput.service.config_manager import ConfigManager


class MessageRequestModeManager(ConfigManager[MessageRequestModes]):
    """The content of `config/messageRequestMode.json`.

    Args:
        root: The store directory.
        files: The file layer.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    def __init__(self, root: str, files: FileLayer = DISK) -> None:
        super().__init__(MessageRequestModes, root, files)
        self._modes = {topic: dict(groups) for topic, groups in self._loaded.message_request_mode_map.items()}

    def content(self) -> MessageRequestModes:
        """The content of `messageRequestMode.json`, as of now."""
        return MessageRequestModes({topic: dict(groups) for topic, groups in self._modes.items()}, self._loaded.others)

    def find(self, topic: str, group: str) -> MessageRequestModeBody | None:
        """The mode that was set for a topic and a group; None if none was."""
        return self._modes.get(topic, {}).get(group)

    def set_message_request_mode(self, body: MessageRequestModeBody, now_ms: int) -> None:
        """Set it."""
        self._modes.setdefault(body.topic, {})[body.consumer_group] = body
        self._next_version(now_ms)

    def copy(self, content: MessageRequestModes) -> None:
        """Take over what was set at a master."""
        modes = {topic: dict(groups) for topic, groups in content.message_request_mode_map.items()}
        if modes != self._modes:
            self._modes = modes
            self._changes += 1
