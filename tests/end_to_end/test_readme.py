"""Examples of the README work as they stand, in their order; and the Java program of the tour."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reput import Broker
from tests.support.commands import run_reput
from tests.support.pages import ROOT, Block, blocks
from tests.support.rocketmq.apache import maven

README = ROOT / "README.md"
TOUR = ROOT / "docs/tour.md"


def found(page: Path, *languages: str) -> list[Block]:
    return [block for block in blocks(page.read_text(encoding="utf-8")) if block.language in languages]


@pytest.mark.java
def test_the_java_program_runs_as_it_stands_and_prints_what_the_tour_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", found(TOUR, "python")[0].text], cwd=tmp_path, check=True)
    (program,) = found(TOUR, "java")
    assert program.text == (ROOT / "examples/broker/src/main/java/Orders.java").read_text()
    (command,) = [block for block in found(TOUR, "sh") if block.text.startswith("mvn ")]
    assert command.output is not None
    shutil.copytree(ROOT / "examples/broker", tmp_path / "examples/broker")
    with Broker.start(tmp_path / "build/tour", bind_address="127.0.0.1", brokerIP1="127.0.0.1") as broker:
        words = shlex.split(command.text.replace("127.0.0.1:9876", broker.namesrv))
        words.append(f"-Drocketmq.log.root={tmp_path}")
        with maven():
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    printed = done.stdout.removesuffix("\x1b[0m")  # Maven's last word
    assert done.returncode == 0, printed + done.stderr
    assert printed.splitlines()[0] == command.output.splitlines()[0]
    assert sorted(printed.splitlines()) == sorted(command.output.splitlines())


def test_the_readme_s_ten_lines_run_and_then_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = found(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", program.text], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, *tailed, rows = done.stdout.splitlines()
    assert (first, tailed[8], rows) == ("b'{\"total\": 7}'", "8 paid ('o-8',)", "9")
    (shell,) = [block for block in found(README, "", "sh") if block.text.startswith("reput ")]
    monkeypatch.chdir(tmp_path)
    query, audit, _ = shell.text.splitlines()
    assert "36" in run_reput(*shlex.split(query)[1:]).out
    assert run_reput(*shlex.split(audit)[1:]).status == 0


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 600
