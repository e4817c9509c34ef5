"""Starting other processes: `lab.bench.child`, and the command `reput`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_child(what: str, *arguments: str) -> float:
    """The number that a function of `lab.bench.child` answers in a process of its own."""
    run = subprocess.run(_child(what, arguments), cwd=_ROOT, check=True, stdout=subprocess.PIPE)
    return float(run.stdout)


def start_child(what: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a function of `lab.bench.child` in a process of its own; it prints its number when it is done."""
    return subprocess.Popen(_child(what, arguments), cwd=_ROOT, stdout=subprocess.PIPE)


def run_children(module: str, calls: Sequence[Sequence[str]]) -> list[list[float]]:
    """The numbers that functions of a module print last, each in a process of its own, all at the same time."""
    commands = [[sys.executable, "-m", module, *call] for call in calls]
    children = [subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) for command in commands]
    answers = [child.communicate()[0].splitlines() for child in children]
    for child in children:
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, child.args)
    return [[float(number) for number in answer[-1].split()] for answer in answers]


def run_killed_child(what: str, *arguments: str) -> None:
    """Run a function of `lab.bench.child` that must end by SIGKILL."""
    run = subprocess.run(_child(what, arguments), cwd=_ROOT, check=False)
    if run.returncode != -9:
        raise AssertionError(f"{what} ended with {run.returncode} instead of being killed")


def run_command(arguments: list[str], *, cache_path: str | None = None) -> None:
    """Run `reput` in a process of its own; `cache_path` is where it finds and leaves compiled kernels."""
    environment = os.environ | ({} if cache_path is None else {"REPUT_CACHE_DIR": cache_path})
    command = [sys.executable, "-m", "reput", *arguments]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def _child(what: str, arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "lab.bench.child", what, *arguments]
