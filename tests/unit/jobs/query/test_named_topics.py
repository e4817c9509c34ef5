"""Which topics a statement names: found by one walk over the statement, as a search for each topic finds them."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

import reput
from reput.files import FileLayer
from reput.formats.message import Message
from reput.jobs.query.sql_job import Source, words_of

_TEXTS = st.text(alphabet='aB1_-%|." \n(', max_size=5)


@given(sql=st.lists(_TEXTS, max_size=6).map("".join), names=st.lists(_TEXTS, max_size=6))
@example(sql='select * from "%RETRY%g", A-b', names=["%retry%G", "a-b", "a", "b", "RETRY", "A-", "g", "from"])
@example(sql="select from x", names=["x" * 300, ""])
def test_names_are_found_as_a_search_for_each_finds_them(sql: str, names: list[str]) -> None:
    found = {name for name in names if name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)}
    assert words_of(sql, names) == sorted(found)


def test_folders_of_other_topics_are_not_looked_at(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, small=True) as opened:
        opened.put_messages([Message(f"topic-{n}", b"x") for n in range(30)])
    (tmp_path / "consumequeue/topic-empty").mkdir()
    listed: list[str] = []

    def listing(layer: FileLayer, path: str) -> list[reput.files.Entry]:
        listed.append(path)
        return before(layer, path)

    before, FileLayer.list_directory = FileLayer.list_directory, listing  # type: ignore[method-assign]
    try:
        sql = "select * from 'topic-7', 'topic-empty', 'Topic-8'"
        assert Source(path=tmp_path).tables(sql) == ["topic-7", "topic-8"]
    finally:
        FileLayer.list_directory = before  # type: ignore[method-assign]
    topics = {Path(path).relative_to(tmp_path / "consumequeue").parts[0] for path in listed if "consumequeue/" in path}
    assert topics == {"topic-7", "topic-8", "topic-empty"}
