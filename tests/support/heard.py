"""Lines of reput's log that a test waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Heard(logging.Handler):
    """Keeps the lines of a logger; `wait` returns when one with a text has come."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._came = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._came:
            self.lines.append(f"{record.levelname} {record.getMessage()}")
            self._came.notify_all()

    def about(self, path: Path) -> list[str]:
        """The lines that name a file below a folder: stores of other tests may still have something to say."""
        return [line for line in self.lines if str(path) in line]

    def wait(self, text: str) -> None:
        with self._came:
            assert self._came.wait_for(lambda: any(text in line for line in self.lines), 60), self.lines


@contextmanager
def heard(name: str) -> Iterator[Heard]:
    """Lines of the logger of this name until the end of the block."""
    handler, logger = Heard(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
