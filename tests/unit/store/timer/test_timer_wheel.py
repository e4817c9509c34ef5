"""TimerWheel against a plain dictionary of times."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from reput.files import FileLayer
from reput.formats.timer_wheel import SLOTS
from reput.store.timer.timer_wheel import TimerWheel

#: Slots on both sides of the place where the wheel begins again, of pages' ends, and of half a wheel.
NOW = 1_500_000 * SLOTS
NEAR = st.sampled_from([0, 1, 127, 128, 129, 1000, SLOTS // 2 - 1, SLOTS // 2])
TIMES = st.builds(int.__add__, st.sampled_from([NOW - 1000, NOW - 1, NOW, NOW + 5]), NEAR)
STEPS = st.lists(st.tuples(TIMES, st.integers(0, 5)), max_size=8)  # how many wait; 0: none any more


@given(STEPS, TIMES, NEAR, st.integers(0, 8))
def test_it_answers_as_a_dictionary_of_times(
    steps: list[tuple[int, int]], begin: int, width: int, log_end: int
) -> None:
    wheel = TimerWheel(FileLayer(), "/nowhere", 1, 0)
    waiting: dict[int, tuple[int, int]] = {}
    for position, (time, num) in enumerate(steps):
        waiting = {other: value for other, value in waiting.items() if (other - time) % SLOTS}
        if num:
            wheel.put(time, position, position, num)
            waiting[time] = num, position
        else:
            wheel.clear(time)
    end = begin + width
    between = sorted(time for time in waiting if begin <= time < min(end, begin + SLOTS // 2))
    assert wheel.next_time(begin, end) == next(iter(between), None)
    assert wheel.num_between(begin, end) == sum(waiting[time][0] for time in between)
    assert wheel.total(begin) == sum(num for time, (num, _) in waiting.items() if time >= begin)
    beyond = {slot.time for slot in wheel.beyond(log_end)}
    assert beyond == {time for time, (_, position) in waiting.items() if position >= log_end}


def test_what_was_used_before_a_start_is_found_after_it(tmp_path: Path) -> None:
    wheel = TimerWheel(FileLayer(), str(tmp_path), 1000, 0)
    wheel.put(NOW * 1000, 0, 7, 3)
    wheel.write(wheel.changed_pages())
    again = TimerWheel(FileLayer(), str(tmp_path), 1000, 0)
    assert again.next_time((NOW - 500_000) * 1000, (NOW + 500_000) * 1000) == NOW * 1000
    assert [slot.last_pos for slot in again.beyond(7)] == [7]
    assert again.beyond(8) == []
