"""Types of what fixtures give."""

from __future__ import annotations

from collections.abc import Callable

import reput

OpenStore = Callable[..., reput.MessageStore]

#: `write_log(messages, file_size, *, start=0, spare_files=0)`: the offset of each record.
LogWriter = Callable[..., list[int]]
