"""Logs of commands that serve, on stderr: lines with fields, as logfmt or JSON, and bounded in number."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from queue import Full, Queue
from typing import Any, TextIO

from reput.events import Event, LineBound, encode_fields

#: Limits of lines of one message in ten seconds: from the level WARNING on of one error and of all, and below it.
_MOST_WARNINGS, _MOST_ERRORS, _MOST_OTHERS = 1, 10, 100
#: Lines that wait while nobody reads stderr, and how long the end waits for whoever reads.
_MOST_WAITING, _END_S = 10_000, 1.0


@contextmanager
def logs_on_stderr(level: str, *, as_json: bool) -> Iterator[None]:
    """Write logs of reput from a level on (`debug`, `info`, `warning`, `error`), and warnings of libraries."""
    handler = LineWriter(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=as_json))
    bound = RateBound()
    handler.addFilter(bound)
    root, own = logging.getLogger(), logging.getLogger("reput")
    former = own.level
    root.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        handler.removeFilter(bound)
        for record in bound.left_out():
            handler.handle(record)
        own.setLevel(former)
        root.removeHandler(handler)
        handler.close()


class LineWriter(logging.Handler):
    """Writes the lines of records in the thread `reput-log`: who logs, a loop above all, waits for no reader.

    Lines that come while too many wait are dropped, and the log says how many they were.

    Args:
        stream: Where lines go; not through its buffer, whose lock the end of the process waits for.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: Queue[str | None] = Queue(_MOST_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="reput-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the logger."""
        try:
            self._lines.put_nowait(self.format(record))
        except Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what waits; not if nobody reads it."""
        with suppress(Full):
            self._lines.put(None, timeout=_END_S)
            self._thread.join(_END_S)
        super().close()

    def _run(self) -> None:
        line: str | None = ""
        while line is not None:
            line = self._lines.get()
            with suppress(OSError, ValueError):  # whoever read has gone
                _write(self._stream, self._told() + ("" if line is None else f"{line}\n"))

    def _told(self) -> str:
        """A line of those that were dropped before; an empty text if there are none."""
        self.acquire()
        dropped, self._dropped = self._dropped, 0
        self.release()
        if not dropped:
            return ""
        event = Event("lines dropped: nobody has read the log", lines=dropped)
        return self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, event, None, None)) + "\n"


def _write(stream: TextIO, text: str) -> None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if raw is None:  # it is in memory
        stream.write(text)
        return
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[raw.write(data) :]


class LineFormatter(logging.Formatter):
    """One line a record: time (ISO 8601, UTC, ms), level, logger, message, fields."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Called by a handler."""
        event: Any = record.msg
        event = event if isinstance(event, Event) else Event(record.getMessage())
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message" if self._as_json else "msg": event.message,
            **event.fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        repeated = getattr(record, "repeated", 0)
        if repeated:
            line["repeated"] = repeated
        return json.dumps(line) if self._as_json else encode_fields(line)


class RateBound(logging.Filter):
    """Bounds the records of a message in ten seconds, so that no client fills a disk with logs: a hundred below
    WARNING; from there on one of each `error`, and no more than ten. The next one says how many were left out
    (`repeated`).

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._bound = LineBound()
        self._last: dict[tuple[str, str], tuple[logging.LogRecord, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by a handler."""
        message: Any = record.msg
        key = record.name, message.message if isinstance(message, Event) else str(message).partition("\n")[0]
        error = message.fields.get("error") if isinstance(message, Event) else None
        now = self._clock()
        _, count = self._last.get(key, (record, 0))
        is_warning = record.levelno >= logging.WARNING
        has_room = self._bound.has_room(key, _MOST_ERRORS if is_warning else _MOST_OTHERS, now)
        if not has_room or (is_warning and not self._bound.has_room((*key, error), _MOST_WARNINGS, now)):
            self._last[key] = record, count + 1
            return False
        self._bound.count(key, now)
        if is_warning:
            self._bound.count((*key, error), now)
        self._last.pop(key, None)
        record.repeated = count
        return True

    def left_out(self) -> list[logging.LogRecord]:
        """The last record of each message that was left out, with the number of those before it."""
        records = []
        for record, count in self._last.values():
            record.repeated = count - 1
            records.append(record)
        self._last.clear()
        return records
