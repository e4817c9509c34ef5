"""Configuration: the name server's keys, shown and changed by requests (`Configuration`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from reput.config.namesrv import NamesrvConfig
from reput.config.properties import change_properties, format_properties, parse_properties
from reput.config.rocketmq_config import key_texts, refused_keys
from reput.errors import RemotingCommandError
from reput.files import DISK
from reput.files.layer import FileLayer
from reput.remoting.codes import ResponseCode


class Configuration:
    """The configuration in use, and its file.

    Args:
        config: As at the start.
        on_change: Called with the configuration after each change; None for one that no request changes.

    Attributes:
        config: In use now. A changed port, address or idle time counts from the next start on.
    """

    def __init__(
        self, config: NamesrvConfig, on_change: Callable[[NamesrvConfig], None] | None, files: FileLayer = DISK
    ) -> None:
        self.config = config
        self._on_change = on_change
        self._files = files
        self._writing = asyncio.Lock()

    def text(self) -> str:
        """All keys as a properties text."""
        return format_properties(key_texts(self.config, NamesrvConfig))

    async def update(self, text: str) -> None:
        """Change keys by a properties text; returns when the file `configStorePath` holds them, too.

        Raises RemotingCommandError (NO_PERMISSION) for a key that no request may change, and ConfigError for a wrong
        key or value; nothing is changed then.
        """
        if self._on_change is None:
            remark = "a broker's own name server has no keys of its own; start one with `reput namesrv` to change them"
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, remark)
        changes = parse_properties(text, "UPDATE_NAMESRV_CONFIG")
        if refused_keys(changes, self.config.config_black_list, NamesrvConfig):
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        async with self._writing:
            changed = NamesrvConfig.from_mapping(changes, self.config)
            changed.require_startable()
            await asyncio.to_thread(self._write, changes)
            self.config = changed
            self._on_change(changed)

    def _write(self, changes: dict[str, str]) -> None:
        path = os.path.expanduser(self.config.config_store_path)
        before = self._files.read_bytes(path).decode("utf-8", "replace") if self._files.exists(path) else ""
        self._files.make_directories(os.path.dirname(path))
        self._files.write_atomically(path, change_properties(before, path, changes).encode())
