"""Store times of records: nothing proves them, so the last one counts if its neighbour or the clock agrees."""

from __future__ import annotations

from collections.abc import Sequence

#: How far two times that agree are apart, at the most (ms).
DAY_MS = 24 * 3_600_000


def trusted_time(times: Sequence[int], now_ms: int) -> int:
    """The latest store time (ms) that counts; 0 if none does.

    A time counts if it is not more than a day after the clock, or if another one of them is not more than a day away.
    Else a wrong bit in one record would be the time of all later ones, for a century.

    Args:
        times: of the log's last records.
        now_ms: the clock.
    """
    return max(
        (
            time
            for number, time in enumerate(times)
            if time <= now_ms + DAY_MS
            or any(abs(other - time) <= DAY_MS for at, other in enumerate(times) if at != number)
        ),
        default=0,
    )
