"""Manual pages, and what shells complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import Run


def test_each_command_has_a_page_with_its_examples_first(tmp_path: Path, run_reput: Run) -> None:
    answer = run_reput("man", tmp_path / "man1", "--json")
    assert answer.status == 0
    pages = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert set(pages) == set(answer.object()["pages"])
    assert {"reput.1", "reput-audit.1", "reput-delete-expired.1", "reput-import.1", "reput-admin-lag.1"} <= set(pages)
    for name, page in pages.items():
        headings = re.findall(r"^\.SH (.*)", page, re.MULTILINE)
        assert headings[:2] == ["NAME", "SYNOPSIS"]
        assert headings[-2:] == ["EXIT STATUS", "SEE ALSO"]
        assert "OPTIONS" in headings
        assert headings[2] == "EXAMPLES" or name == "reput.1"
        requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
        assert requests <= {".TH", ".SH", ".TP", ".PP", ".nf", ".fi"}, name
    assert "reput audit /tmp/store" in pages["reput-audit.1"]
    assert "\\fB\\-\\-quiet\\fR\nNo progress" in pages["reput-audit.1"]
    assert "reput\\-admin\\-lag(1)" in pages["reput.1"]


def test_a_process_of_its_own_writes_all_pages(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "reput", "man", tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(list(tmp_path.iterdir()))} manual pages in {tmp_path}: man -l {tmp_path}/reput.1\n"
    assert (tmp_path / "reput-audit.1").exists()


SHELLS = {
    "bash": lambda line: {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
    "zsh": lambda line: {"_TYPER_COMPLETE_ARGS": line},
    "fish": lambda line: {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


LINES = [
    ("reput aud", "audit"),
    ("reput audit --comm", "--commit-log-path"),
    ("reput audit --qui", "--quiet"),
    ("reput audit --runner spa", "spark"),
    ("reput admin la", "lag"),
    ("reput admin lag --names", "--namesrv"),
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "found"), LINES)
def test_a_shell_completes_commands_options_and_choices(
    shell: str, line: str, found: str, monkeypatch: pytest.MonkeyPatch, run_reput: Run
) -> None:
    for name, value in {"_REPUT_COMPLETE": f"complete_{shell}", **SHELLS[shell](line)}.items():
        monkeypatch.setenv(name, value)
    answer = run_reput()
    assert answer.status == 0
    assert found in re.split(r'[\s":]+', answer.out)
    assert "Usage" not in answer.out


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_for_the_shell_of_the_user_is_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, run_reput: Run
) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)  # else by the processes above this one
    answer = run_reput("--show-completion")
    assert answer.status == 0
    assert f"_REPUT_COMPLETE=complete_{shell}" in answer.out


def test_a_process_of_its_own_completes_as_the_script_of_bash_asks() -> None:
    program = [sys.executable, "-m", "reput"]
    environment = {**os.environ, "_REPUT_COMPLETE": "complete_bash", **SHELLS["bash"]("reput audit --qui")}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "--quiet\n"
