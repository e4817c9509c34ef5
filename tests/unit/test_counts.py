"""counted: a count with its noun."""

from __future__ import annotations

import pytest

from reput.counts import counted


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [
        (1, ("body",), "1 body"),
        (2, ("body",), "2 bodies"),
        (0, ("unit",), "0 units"),
        (12_345, ("key",), "12345 keys"),
        (1, ("row was", "rows were"), "1 row was"),
        (3, ("row was", "rows were"), "3 rows were"),
    ],
)
def test_one_is_singular_and_all_others_are_plural(count: int, nouns: tuple[str, ...], text: str) -> None:
    assert counted(count, *nouns) == text
