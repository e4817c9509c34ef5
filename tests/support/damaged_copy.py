"""A store of Apache's with one damaged record."""

from __future__ import annotations

import shutil
from pathlib import Path

import reput
from reput.formats.paths import offset_to_file_name
from tests.support.damage import flip

CLEAN = Path(__file__).parents[1] / "golden" / "5.3.3" / "clean" / "store"


def damaged_copy(path: Path, file_number: int) -> tuple[Path, str, int]:
    """`clean` with a byte changed in a body: its path, and the file and offset of the damaged record."""
    shutil.copytree(CLEAN, path)
    start = 131_072 * file_number
    file = path / "commitlog" / offset_to_file_name(start)
    rows = reput.read_log(path, ["commit_log_offset", "body"]).read_all().to_pylist()
    row = next(row for row in rows if row["commit_log_offset"] > start + 60_000 and row["body"])
    flip(file, row["commit_log_offset"] - start + 88)
    return path, str(file), row["commit_log_offset"]
