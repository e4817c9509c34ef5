"""When messages were put, by a clock that was ahead and is right again."""

from __future__ import annotations

from reput.broker.appends.put_times import PutTimes


class Log:
    """A log that grows by 100 bytes a message."""

    def __init__(self) -> None:
        self.end = 0
        self.times = PutTimes(lambda: self.end)

    def grow(self, now_ms: int) -> int:
        """The offset of a message that is put now."""
        self.end += 100
        self.times.note(now_ms)
        return self.end - 100


def test_a_store_time_that_is_over_holds() -> None:
    log = Log()
    assert log.times.put_ms(log.grow(5000), 4000, 5000) == 4000


def test_a_store_time_to_come_is_when_the_message_was_seen_first_and_stays_so() -> None:
    log, ahead = Log(), 3_600_000
    old = log.grow(ahead)
    first = log.grow(10_000)  # the clock is right again
    second = log.grow(10_500)  # nothing is noted within a second
    for now_ms in (11_000, 12_000, 60_000):
        assert log.times.put_ms(old, ahead, now_ms) == 10_000
        assert log.times.put_ms(first, ahead, now_ms) == 10_000
        assert log.times.put_ms(second, ahead, now_ms) == 11_000
    third = log.grow(61_000)
    assert log.times.put_ms(third, ahead, 99_000) == 61_000
    assert log.times.put_ms(third, ahead, ahead) == ahead


def test_times_never_go_back_with_the_offset_and_are_none_to_come() -> None:
    log, offsets = Log(), []
    for now_ms in (50_000, 51_500, 9000, 9100, 12_000, 3000, 3500, 7000):
        offsets.append(log.grow(now_ms))
        found = [log.times.put_ms(offset, 1_000_000, now_ms) for offset in offsets]
        assert found == sorted(found)
        assert found[-1] <= now_ms


def test_a_message_that_waits_for_days_was_put_when_it_was_put_and_the_notes_of_a_year_are_few() -> None:
    log, ahead, put = Log(), 1 << 50, dict[int, int]()
    for now_ms in range(0, 3 * 86_400_000, 1000):
        offset = log.grow(now_ms)
        if now_ms % 7_200_000 == 0:
            put[offset] = now_ms
            for one, put_ms in put.items():
                late_ms = log.times.put_ms(one, ahead, now_ms) - put_ms
                assert 0 <= late_ms <= max(1000, (now_ms - put_ms) // 1000)
    for now_ms in range(3 * 86_400_000, 365 * 86_400_000, 600_000):
        log.grow(now_ms)
    assert len(log.times._times) < 30_000
    for one, put_ms in put.items():
        assert 0 <= log.times.put_ms(one, ahead, now_ms) - put_ms <= now_ms // 1000
