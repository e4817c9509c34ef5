"""Ids of messages that a producer left without one (`MessageClientIDSetter`)."""

from __future__ import annotations

from datetime import UTC, datetime

#: Digits of an id, and those that all ids of one object begin with; then come the time, and the counter.
ID_DIGITS, PREFIX_DIGITS, TIME_DIGITS, COUNTER_DIGITS = 32, 20, 8, 4
TIME_MASK, COUNTER_MASK = 0xFFFFFFFF, 0xFFFF


class UniqueIds:
    """Makes ids of 32 hexadecimal digits: address, process, this object, ms since the month began, and a counter.

    Args:
        host: 8 or 20 bytes of an address with a port; the last four bytes of the address go in.
        process: Its number in the system; 16 bits of it go in.
    """

    def __init__(self, host: bytes, process: int) -> None:
        self._prefix = f"{host[-8:-4].hex()}{process & 0xFFFF:04x}{id(self) & 0xFFFFFFFF:08x}".upper()
        self._begin_ms = self._end_ms = 0
        self._counter = 0
        #: The time of the last id, and what the ids of that time begin with.
        self._last: tuple[int, str] = -1, ""

    @property
    def prefix(self) -> str:
        """The 20 digits that all ids begin with."""
        return self._prefix

    def month_begin_ms(self, now_ms: int) -> int:
        """Start of the month of a time, in ms since 1970 UTC."""
        if not self._begin_ms <= now_ms < self._end_ms:
            now = datetime.fromtimestamp(now_ms / 1000, UTC)
            begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
            self._begin_ms, self._end_ms = (int(moment.timestamp() * 1000) for moment in (begin, end))
        return self._begin_ms

    def create(self, now_ms: int) -> str:
        """The next id."""
        self._counter = counter = (self._counter + 1) & COUNTER_MASK
        last_ms, begin = self._last
        if now_ms != last_ms:
            begin = f"{self._prefix}{(now_ms - self.month_begin_ms(now_ms)) & TIME_MASK:08X}"
            self._last = now_ms, begin
        return f"{begin}{counter:04X}"
