"""The examples of docs/client, as they are, but for the address of the name server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reput import Broker
from tests.support.broker import SMALL

PAGES = Path(__file__).parents[2] / "docs/client"
BLOCKS = [
    (page.name, number, block.partition("```")[0])
    for page in sorted(PAGES.glob("*.md"))
    for number, block in enumerate(page.read_text().split("```python\n")[1:])
]
#: What each example prints, or a part of it.
PRINTS = {
    ("README.md", 0): "SEND_OK 0\nb'one' ('o-1',)\n",
    ("README.md", 1): "",
    ("consumers.md", 0): "orders paid b'one'\n",
    ("consumers.md", 1): "5 b'0'\n5 ['queue_offset', 'tags', 'body']\n10\n",
    ("consumers.md", 2): "0 b'0'\n1 b'1'\n2 b'2'\n",
    ("producer.md", 0): "100 ",
    ("producer.md", 1): "1000 SEND_OK\n",
    (
        "producer.md",
        2,
    ): "['SEND_OK', 'SEND_OK', 'SEND_OK'] ['message_id', 'broker_name', 'queue_id', 'queue_offset', 'status']\n",
    ("producer.md", 3): "COMMIT_MESSAGE\n",
    ("producer.md", 4): "b'42'\n",
    ("tasks.md", 0): "welcome, Ann\n",
    ("testing.md", 0): "1 passed",
    ("testing.md", 1): "1 passed",
    ("testing.md", 2): "[b'one']\n",
}


@pytest.mark.parametrize(("page", "number", "text"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_an_example_runs_and_prints_what_it_should(page: str, number: int, text: str, tmp_path: Path) -> None:
    keys = SMALL | {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with Broker.start(tmp_path / "store", **keys) as broker:
        program = tmp_path / "test_example.py"
        program.write_text(text.replace("127.0.0.1:9876", broker.namesrv))
        command = [sys.executable, str(program)]
        if "def test_" in text:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "reput.pytest_plugin", str(program)]
        env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PRINTS[page, number] in done.stdout


def test_every_page_has_an_example() -> None:
    assert {page for page, _, _ in BLOCKS} == {page.name for page in PAGES.glob("*.md")}
    assert len(BLOCKS) == len(PRINTS)
