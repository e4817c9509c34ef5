"""The examples of docs/lazy-scans.md, as they are, but for the path of the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reput import Message, MessageStore

BLOCKS = [
    block.partition("```")[0]
    for block in (Path(__file__).parents[2] / "docs/lazy-scans.md").read_text().split("```python\n")[1:]
]
#: Parts of what each example prints.
PRINTS = [
    ["orders  │     4 │", "refunds │     1 │", "│            0 │ paid    │"],
    ["│ orders  ┆ 4   │", "│ refunds ┆ 1   │", "shape: (3, 2)"],
    ["[{'topic': 'orders', 'body': b'0'}, {'topic': 'orders', 'body': b'1'}]\n4\n"],
    ["│            5 │"],
]
#: The storage in memory ends with its program, which begins with a copy.
COPY = """
import fsspec

fsspec.filesystem("memory").put({path!r}, "/backups/store", recursive=True)
"""


@pytest.mark.parametrize("number", range(len(PRINTS)))
def test_an_example_runs_and_prints_what_it_should(number: int, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", mapped_file_size_commit_log=1 << 20) as store:
        for body in range(4):
            store.put_message(Message("orders", str(body).encode(), tags="paid"), queue_id=0)
        store.put_message(Message("refunds", b"4"), queue_id=0)
    program = tmp_path / "example.py"
    copy = COPY.format(path=str(tmp_path / "store")) if "memory://" in BLOCKS[number] else ""
    program.write_text(copy + BLOCKS[number].replace("/brokers/a/store", str(tmp_path / "store")))
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for text in PRINTS[number]:
        assert text in done.stdout


def test_every_example_is_run() -> None:
    assert len(BLOCKS) == len(PRINTS)
