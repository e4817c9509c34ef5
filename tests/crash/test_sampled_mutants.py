"""The sample of small changes: what is changed, and that it stays while other code moves."""

from __future__ import annotations

import pytest

from campaign.sampled_mutants import changes
from campaign.sampled_mutants.main import equal_changes, name_of

SOURCE = '''
def first(rows, limit=10):
    """Not 3."""
    if len(rows) > limit:
        raise ValueError(f"{len(rows)} > 7")
    rows.sort()
    return rows[0] is None
'''


def test_each_kind_of_change_is_made_once_a_place() -> None:
    made = {
        (change.kind, (SOURCE.encode()[: change.begin] + change.text.encode() + SOURCE.encode()[change.end :]).decode())
        for change in changes.changes_of("reput/log/rows.py", SOURCE)
    }
    assert made == {
        ("bound moved by one", SOURCE.replace("limit=10", "limit=11")),
        ("bound moved by one", SOURCE.replace("rows) > limit", "rows) >= limit")),
        ("comparison turned", SOURCE.replace("rows) > limit", "rows) <= limit")),
        ("check dropped", SOURCE.replace("len(rows) > limit:", "False:")),
        ("call dropped", SOURCE.replace("rows.sort()", "pass")),
        ("bound moved by one", SOURCE.replace("rows[0]", "rows[1]")),
        ("comparison turned", SOURCE.replace("[0] is None", "[0] is not None")),
    }


def test_a_change_keeps_its_rank_while_code_around_it_moves() -> None:
    before = changes.changes_of("reput/log/rows.py", SOURCE)
    after = changes.changes_of(
        "reput/log/rows.py", "LIMIT = 5\n\n" + SOURCE.replace("rows.sort()", "rows.sort()\n    rows.pop()")
    )
    assert {change.rank(8) for change in before} < {change.rank(8) for change in after}
    assert {change.rank(8) for change in before}.isdisjoint(change.rank(9) for change in before)


def test_two_changes_that_look_the_same_are_told_apart() -> None:
    source = "def f(a):\n    a.go(1)\n    a.go(1)\n"
    made = changes.changes_of("reput/log/rows.py", source)
    assert len({change.key for change in made}) == len(made) == 4


@pytest.mark.slow
def test_each_change_known_to_be_equal_is_still_one_of_the_source() -> None:
    names = {name_of(change) for layer in changes.LAYERS for change in changes.changes_of_layer(layer)}
    known = equal_changes()
    assert known.keys() <= names
    assert all(known.values())
