"""Folders of tables with odd names: each works in every run, or is refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.errors import ConfigError
from tests.support.lake import put_topics, run

ANYWHERE = "my tables, größe: 100% 'a' \"b\" *[x]{y}~=&;"


@pytest.mark.parametrize(("form", "name"), [("delta", f"{ANYWHERE}?#"), ("iceberg", f"{ANYWHERE}%20\\")])
def test_tables_lie_and_are_compacted_in_a_folder_of_any_name(form: str, name: str, tmp_path: Path) -> None:
    output = tmp_path / "here" / name
    for number in range(3):
        put_topics(tmp_path / "store", {"%RETRY%group": [b"%d" % number], "a|b": [b"x"]})
        assert run(tmp_path / "store", output, format=form, compact=2).messages == 2
    assert [path.name for path in output.parent.iterdir()] == [name]


_REFUSED = {"delta": ["x%20y", "%2F", "a\\b", "a\nb"], "iceberg": ["a?b", "a#b", "a\nb"]}


@pytest.mark.parametrize(("form", "name"), [(form, name) for form, names in _REFUSED.items() for name in names])
def test_a_folder_that_the_library_of_tables_takes_for_another_is_refused(form: str, name: str, tmp_path: Path) -> None:
    put_topics(tmp_path / "store", {"orders": [b"x"]})
    with pytest.raises(ConfigError, match=f"a path of {form} tables has no control character, no "):
        run(tmp_path / "store", tmp_path / "here" / name, format=form)
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]
