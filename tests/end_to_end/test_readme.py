"""README's examples work as they stand, in their order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for found, text in fenced if found == language]


def test_the_examples_run_one_after_the_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    programs = blocks("python")
    assert len(programs) == 4
    for program in programs:
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    printed = capfd.readouterr().out
    assert "PutMessageStatus.PUT_OK" in printed
    assert "('orders', 'paid', 1)" in printed  # DuckDB
    assert "|orders|shipped|7|" in printed.replace(" ", "")  # Spark


def test_the_commands_run_one_after_the_other(tmp_path: Path) -> None:
    (shell,) = [block for block in blocks("") if block.startswith("reput ")]
    for line in shell.splitlines():
        command = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert (tmp_path / "build/tour-rebuilt/consumequeue/orders/0").is_dir()
