"""What all commands have: --quiet, --verbose, and defaults in a file of the user's."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import GOLDEN, Run
from tests.support.shares import sampled

STORE = GOLDEN / "clean/store"


@sampled(3)
@pytest.mark.parametrize(("options", "is_shown"), [((), True), (("--quiet",), False), (("--verbose",), False)])
def test_progress_is_shown_on_a_terminal_unless_an_option_forbids_it(options: tuple[str, ...], is_shown: bool) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "reput", "stats", str(STORE), *options]
    counting = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=terminal)
    os.write(terminal, b"begin\n")
    os.close(terminal)
    out, _ = counting.communicate()
    shown = os.read(controller, 1 << 16)
    os.close(controller)
    assert counting.returncode == 0
    assert "messages" in out
    assert (b"100%" in shown) is is_shown
    assert (shown == b"begin\r\n") is (options == ("--quiet",))


def test_verbose_writes_logs_to_stderr_and_the_result_to_stdout(run_reput: Run) -> None:
    silent, verbose = (run_reput("audit", STORE, "--json", *options) for options in ((), ("--verbose",)))
    assert silent.err == ""
    assert 'logger=reput.cli msg=begun step="read the log"' in verbose.err
    assert verbose.object().keys() == silent.object().keys()
    assert run_reput("audit", STORE, "--json").err == ""


def test_errors_are_told_by_a_quiet_command_too(run_reput: Run) -> None:
    answer = run_reput("audit", "/nowhere/store", "--quiet")
    assert answer.status == 2
    assert "/nowhere/store" in answer.err


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of defaults of the commands in this test."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("REPUT_DEFAULTS", str(path))
    return path


def test_options_of_the_file_hold_unless_the_command_line_says_otherwise(defaults: Path, run_reput: Run) -> None:
    defaults.write_text('[dump]\njson = true\nlimit = 2\n\n[admin.lag]\nnamesrv = "127.0.0.1:1"\n')
    assert len(run_reput("dump", STORE).lines()) == 2
    assert len(run_reput("dump", STORE, "--limit", 3).lines()) == 3
    assert not run_reput("info", STORE).out.startswith("{")
    assert "127.0.0.1:1" in run_reput("admin", "lag", "g").err


def test_lists_and_times_are_as_on_the_command_line(defaults: Path, run_reput: Run) -> None:
    defaults.write_text('[audit]\nset = ["maxHashSlotNum=7"]\n\n[query]\nbegin = 2100-01-01T00:00:00Z\n')
    assert run_reput("query", STORE, "--json").out == ""
    assert run_reput("audit", STORE).out != run_reput("audit", STORE, "--set", "maxHashSlotNum=500").out


def test_the_file_is_looked_for_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_reput: Run) -> None:
    monkeypatch.delenv("REPUT_DEFAULTS", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not run_reput("info", STORE).out.startswith("{")
    (tmp_path / ".config/reput").mkdir(parents=True)
    (tmp_path / ".config/reput/config.toml").write_text("[info]\njson = true\n")
    assert run_reput("info", STORE).out.startswith("{")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[adit]\n", "there is no command 'adit'; did you mean 'audit'?"),
        ("[info]\njason = true\n", "[info] jason: there is no such option; did you mean 'json'?"),
        ("[admin.leg]\n", "[admin] leg: there is no such command; did you mean 'lag'?"),
        ("[info]\nstore = 'x'\n", "[info] store: there is no such option"),
        ("[info]\njson = 'yes'\n", "[info] json: expected true or false, found 'yes'"),
        ("[dump]\nlimit = [1]\n", "[dump] limit: expected one text or number, found [1]"),
        ("json = true\n", "json: an option stands in the table of its command: [stats]"),
        ("[info\n", "no TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_what_is_near(
    defaults: Path, text: str, reason: str, run_reput: Run
) -> None:
    defaults.write_text(text)
    command = text.strip("[").partition("]")[0].partition(".")[0].strip()
    answer = run_reput(command if command in ("dump", "admin") else "info", STORE)
    assert answer.status == 2
    assert reason in answer.err
    assert str(defaults) in answer.err


def test_a_file_that_the_environment_names_must_be_there(defaults: Path, run_reput: Run) -> None:
    answer = run_reput("info", STORE)
    assert answer.status == 2
    assert f"{defaults}: no such file; REPUT_DEFAULTS names it" in answer.err
    assert run_reput("--help").status == 0
