import re

import pyarrow as pa
import pytest

from reput.jobs.json_bodies import parse_in_ranges

ROWS = 5000
BAD = {0, 1, 700, 701, 1212, 1213, 4998}


@pytest.mark.parametrize(("names_row", "most_bodies"), [(True, 3 * ROWS), (False, 8 * ROWS)])
def test_bad_bodies_are_found_without_looking_at_the_others_often(names_row, most_bodies):
    looked_at = []

    def parse(bodies):
        numbers = [int(body) for body in bodies.to_pylist()]
        bad = [row for row, number in enumerate(numbers) if number in BAD]
        looked_at.append(bad[0] + 1 if bad and names_row else len(numbers))
        if bad:
            raise pa.ArrowInvalid(f"{numbers[bad[0]]} is bad" + names_row * f" in row {bad[0]}")
        return numbers

    refused = {}
    ranges = list(parse_in_ranges(pa.array([b"%d" % n for n in range(ROWS)], pa.binary()), parse, refused))
    assert [number for _, numbers in ranges for number in numbers] == [n for n in range(ROWS) if n not in BAD]
    assert all(begin == numbers[0] for begin, numbers in ranges)
    assert set(refused) == BAD
    assert all(re.fullmatch(rf"{row} is bad", reason) for row, reason in refused.items())
    assert sum(looked_at) < most_bodies


@pytest.mark.parametrize(("begin", "reads"), [("JSON parse error: ", ROWS), ("", 2 * ROWS)])
def test_a_body_that_the_parser_refuses_as_the_first_is_not_read_again(begin: str, reads: int) -> None:
    """Another error may quote at its end a body that stands further back, so it is no proof."""
    calls = []

    def parse(bodies):
        calls.append(1)
        raise pa.ArrowInvalid(f"{begin}it is bad in row 0")

    refused = {}
    assert not list(parse_in_ranges(pa.array([b"x"] * ROWS, pa.binary()), parse, refused))
    assert refused == dict.fromkeys(range(ROWS), f"{begin}it is bad")
    assert len(calls) <= reads


@pytest.mark.parametrize("size", [8, 100, 10_000, 1_000_000])
def test_rows_that_are_parsed_at_once_have_a_bound_where_each_may_have_its_own_fields(size: int) -> None:
    bodies = pa.array([b"x" * size] * min(ROWS, 100_000_000 // size), pa.binary())
    ranges = list(parse_in_ranges(bodies, len, {}, most_cells=32 << 20))
    assert [begin for begin, _ in ranges] == [sum(rows for _, rows in ranges[:number]) for number in range(len(ranges))]
    assert sum(rows for _, rows in ranges) == len(bodies)
    cells = [rows * rows * size // 16 for _, rows in ranges]  # a field takes sixteen bytes or more
    assert max(cells) <= 32 << 20
    assert len(list(parse_in_ranges(bodies, len, {}))) == 1
