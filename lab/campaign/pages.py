"""Figures into a page of the docs: tables in Markdown, between two marks, and the commit that they are of."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

BEGIN, END = "<!-- written by a command -->\n", "<!-- up to here -->\n"


def source_commit() -> str:
    """Of the source that runs; an empty text outside of a repository."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    ).stdout.strip()


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
