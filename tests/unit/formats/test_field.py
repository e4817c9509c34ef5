"""What follows from a table of fields: struct formats and positions."""

from __future__ import annotations

import pytest

from reput.formats.field import Field, positions, struct_format

FIXED = (Field("A", "q", 8, ""), Field("B", "h", 2, ""), Field("C", "i", 4, ""))
VARYING = Field("D", None, None, "")


def test_positions_are_those_of_fields_in_a_row():
    assert positions(FIXED) == {"A": 0, "B": 8, "C": 10}
    assert positions((*FIXED, VARYING)) == {"A": 0, "B": 8, "C": 10, "D": 14}


def test_nothing_after_a_field_of_varying_width_has_a_position():
    with pytest.raises(AssertionError, match="varying width"):
        positions((VARYING, *FIXED))


def test_integers_are_big_endian():
    assert struct_format(FIXED) == ">qhi"
    with pytest.raises(AssertionError, match="varying width"):
        struct_format((*FIXED, VARYING))
