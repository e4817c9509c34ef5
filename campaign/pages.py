"""Figures into a page of the docs: tables in Markdown, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

BEGIN, END = "<!-- written by a command -->\n", "<!-- up to here -->\n"


def write_between_marks(page: Path, text: str) -> None:
    """Put `text` in the place of what stands between the marks; ValueError where a mark is missing."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page}: a mark is missing: {BEGIN.strip()} or {END.strip()}")
    page.write_text(f"{before}{BEGIN}{text}{END}{after}")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """With an empty line before it, and behind it."""
    cells = ([str(cell).replace("|", "\\|") for cell in line] for line in (head, ["---"] * len(head), *rows))
    return "".join(("\n", *(f"| {' | '.join(line)} |\n" for line in cells), "\n"))
