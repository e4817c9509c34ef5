"""Ctrl-C at any moment of a command without Spark, a second one, and what the one line says."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.interrupted import AT_A_CALL, interrupted_at, run_interrupted
from tests.support.large_store import write_large_store
from tests.support.terminal import all_of

MOMENTS = 8


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupts") / "shop"
    write_large_store(path, 6000)
    return path


@pytest.mark.slow
def test_a_command_ends_with_one_line_at_every_moment(shop: Path) -> None:
    seconds = run_interrupted("stats", shop).seconds
    statuses = []
    for number in range(MOMENTS):
        ended = run_interrupted("stats", shop, seconds=seconds * number / MOMENTS, whole_group=number % 2 == 1)
        ended.check()
        statuses.append(ended.status)
    assert 130 in statuses  # each of them may come too late, where the machine is busy


@pytest.mark.slow
def test_a_job_that_can_go_on_says_where_and_the_same_command_goes_on_there(shop: Path, tmp_path: Path) -> None:
    job = ("stats", shop, "--work-dir", tmp_path / "work", "--json")
    done = interrupted_at("reput.jobs.resuming", "keep", *job)
    kept = f"what is done is kept in {tmp_path / 'work'}, and the same command goes on there"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"reput: interrupted; {kept}\n")
    assert list((tmp_path / "work" / "_reput" / "outcomes").iterdir())
    other = run_interrupted("stats", shop, "--work-dir", tmp_path / "work", "--crc")
    assert "begun with other options" in other.err
    assert run_interrupted(*job).status == 0
    assert not (tmp_path / "work" / "_reput").exists()


def test_an_interrupted_rebuild_says_where_it_goes_on(shop: Path, tmp_path: Path) -> None:
    output = tmp_path / "rebuilt"
    done = interrupted_at("reput.jobs.resuming", "keep", "rebuild", shop, "--output", output)
    kept = f"what is done is kept in {output}.unfinished, and the same command goes on there"
    assert (done.returncode, done.stderr) == (130, f"reput: interrupted; {kept}\n")
    assert run_interrupted("rebuild", shop, "--output", output).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rebuilt"]


def test_a_job_that_has_ended_does_not_say_that_it_goes_on(shop: Path, tmp_path: Path) -> None:
    job = ("stats", shop, "--work-dir", tmp_path / "work")
    done = interrupted_at("reput.jobs.job_folder", "JobFolder.close", *job)
    assert (done.returncode, done.stderr) == (130, "reput: interrupted\n")


def test_a_second_interrupt_ends_the_command_at_once_with_the_same_line(shop: Path, tmp_path: Path) -> None:
    done = interrupted_at("reput.jobs.statistics.job", "count", "stats", shop, times=2)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "reput: interrupted\n")


def test_an_interrupt_that_python_swallows_ends_the_command(shop: Path) -> None:
    program = """
import os, signal, sys

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

from reput.__main__ import main
from reput.log import directory

def drop(call):
    def run(*arguments, **options):
        Dropped()
        return call(*arguments, **options)
    return run

directory.StoreDirectory.__init__ = drop(directory.StoreDirectory.__init__)
main()
"""
    done = subprocess.run([sys.executable, "-c", program, "stats", shop], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "reput: interrupted\n")


@pytest.mark.parametrize("module", ["reput.jobs.job_folder", "reput.spark.jvm"])
def test_an_interrupt_in_the_middle_of_an_import_ends_the_command(shop: Path, module: str) -> None:
    """Python knows the module then, and the module has no functions yet."""
    program = f"""
import os, signal, sys
from importlib.machinery import SourceFileLoader

execute = SourceFileLoader.exec_module

def interrupted(loader, module):
    if module.__name__ == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
    execute(loader, module)

SourceFileLoader.exec_module = interrupted
from reput.__main__ import main
main()
"""
    command = [sys.executable, "-c", program, "stats", str(shop), "--runner", "spark"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "reput: interrupted\n")


def test_a_command_that_is_started_with_interrupts_ignored_goes_on(shop: Path) -> None:
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + AT_A_CALL
    command = [sys.executable, "-c", program, "reput.jobs.statistics.job", "count", "1", "stats", str(shop)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_interrupt_leaves_the_terminal_with_a_cursor(shop: Path) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", AT_A_CALL, "reput.jobs.statistics.job", "count", "2", "stats", shop]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(terminal)
        shown = all_of(controller)
    assert process.returncode == 130
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")
    assert shown.endswith("reput: interrupted\r\n")
