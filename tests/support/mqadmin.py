"""The table of mqadmin's commands in docs/admin.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PAGE = Path(__file__).parents[2] / "docs/admin.md"
_ROW = re.compile(r"^\| (?P<commands>`.*`) \| (?P<codes>[\d, ]*) *\| (?P<here>.*) \|$", re.MULTILINE)
_NOT_THERE = "not there"


class Row(NamedTuple):
    """A row of the table: the requests of its commands, and whether they do here what RocketMQ's do."""

    codes: tuple[int, ...]
    is_there: bool


def commands_of_the_page() -> dict[str, Row]:
    """The row of each command."""
    text = _PAGE.read_text().partition("## mqadmin")[2]
    rows = {}
    for found in _ROW.finditer(text):
        row = Row(tuple(map(int, re.findall(r"\d+", found["codes"]))), not found["here"].startswith(_NOT_THERE))
        for name in re.findall(r"`(\w+)`", found["commands"]):
            assert name not in rows, name
            rows[name] = row
    return rows
