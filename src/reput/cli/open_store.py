"""Open a store for a command, with a progress bar on stderr if it takes long, as a start after a kill may."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from reput.cli.display.output import progress_bar

if TYPE_CHECKING:
    from reput.config.message_store import MessageStoreConfig
    from reput.progress import Progress
    from reput.store.message_store import MessageStore

#: Time after which a bar is shown.
_LONG_S = 1.0


def open_store(
    path: str, *, config: MessageStoreConfig, read_only: bool = False, retention: bool = False
) -> MessageStore:
    """`MessageStore.open`. After a second a bar shows the current step, its progress, and the time left."""
    from reput.kernel_loader import load_kernels
    from reput.store.message_store import MessageStore

    if not read_only:
        load_kernels()
    with ExitStack() as shown:
        begin = time.monotonic()
        bars: list[Progress] = []

        def progress(done: int, total: int, description: str) -> None:
            if not bars and time.monotonic() - begin >= _LONG_S:
                bars.append(shown.enter_context(progress_bar()))
            for bar in bars:
                bar(done, total, description)

        return MessageStore.open(path, config=config, read_only=read_only, retention=retention, progress=progress)
