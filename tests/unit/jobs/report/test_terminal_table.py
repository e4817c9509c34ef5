"""Tables on terminals of any width: nothing is squeezed until it cannot be read."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from reput.jobs.report.terminal_table import draw_table

COLUMNS = ("queue", "queue offset", "log offset", "stored", "tags", "keys", "body")
NUMERIC = (False, True, True, False, False, False, False)
CUT = ("queue", "tags", "keys", "body")
TIME = "2026-11-21T18:34:02.469Z"
LONG = ("order-events-of-the-shop/3", "17", "73014444032", TIME, "paid-by-card", "order-1234567890 o-2", "x" * 300)
SHORT = ("t/0", "0", "0", TIME, "", "k", "hello")


def drawn(rows: list[tuple[str, ...]], width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(draw_table(COLUMNS, rows, NUMERIC, CUT, width))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("rows", [[LONG, SHORT], [SHORT], [LONG]])
def test_times_and_numbers_are_whole_and_each_text_has_ten_characters(rows: list[tuple[str, ...]], width: int) -> None:
    lines = drawn(rows, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for row in rows:
        assert TIME in text
        assert row[2] in text.split()
        for value in row:
            assert value[:9] in text
    for number, name in enumerate(COLUMNS):
        assert not any(row[number] for row in rows) or all(word in text for word in name.split())


def test_what_fits_is_a_table_with_a_line_a_row_and_what_does_not_a_block_a_row() -> None:
    table, blocks = drawn([LONG, SHORT], 120), drawn([LONG, SHORT], 60)
    assert [line for line in table if TIME in line][1].startswith("t/0")
    assert [line.split() for line in blocks if line.startswith("log offset")] == [
        ["log", "offset", "73014444032"],
        ["log", "offset", "0"],
    ]


def test_room_that_is_left_goes_to_those_who_want_it() -> None:
    (line,) = [line for line in drawn([LONG], 200) if TIME in line]
    assert all(value in line for value in LONG[:-1])
    assert len(line) == 200


@given(st.lists(st.tuples(*[st.text(max_size=30)] * 7), max_size=3), st.integers(30, 150))
def test_no_text_breaks_a_line(rows: list[tuple[str, ...]], width: int) -> None:
    printable = [tuple("".join(c for c in text if c.isprintable()) for text in row) for row in rows]
    draw_table(COLUMNS, printable, NUMERIC, CUT, width)
    drawn(printable, width)
