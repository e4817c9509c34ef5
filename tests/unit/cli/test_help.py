"""The help of every command, and its examples: they are run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import run_reput
from tests.support.kernel_cache import cache_without
from tests.support.shares import sampled

GROUPS = {
    "Read and write a store": ["put", "get", "tail", "query", "dump", "info", "top"],
    "Check and mend": ["audit", "diff", "repair", "rebuild"],
    "Data pipeline": ["stats", "export", "import", "replay"],
    "Backups": ["backup", "backups", "archive", "restore", "prune"],
    "Serve": ["namesrv"],
    "Run a store": ["dispatch", "delete-expired", "config", "warm"],
    "Help": ["man"],
}
SERVING = {"Serve": ["broker", "namesrv"]}
#: Of a broker: tests/unit/cli/test_produce_consume.py, test_admin.py.
ASKING = {"Send and consume": ["produce", "consume"], "Replicate": ["follow", "rejoin"], "Operate brokers": ["admin"]}
#: Options after those of an example, so that it takes free ports.
FREE_PORTS = {"broker": ("--port", "0", "--namesrv-port", "0"), "namesrv": ("--port", "0")}
COMMANDS = [command for commands in GROUPS.values() for command in commands]


def examples_of(command: str) -> list[str]:
    """The lines under `Example:` in the command's help."""
    lines = iter(run_reput(command, "--help").out.splitlines())
    assert any(line.strip() in ("Example:", "Examples:") for line in lines)
    examples = []
    for line in lines:
        if not line.strip():
            break
        examples.append(line.strip())
    return examples


def run_example(example: str, folder: Path) -> int:
    """Run one example with `folder` in place of /tmp and /opt; what stands before a `|` or `&&` goes to the shell."""
    *producer, command = re.split(r" \| | && ", re.sub("/(tmp|opt)/", f"{folder}/", example))
    stdin = subprocess.run(producer[0], shell=True, check=True, capture_output=True).stdout if producer else None
    program, *arguments = shlex.split(command)
    assert program == "reput"
    if arguments[0] in GROUPS["Serve"]:
        return run_server(arguments)
    options = ("--timeout", "0") if arguments[0] == "tail" else ()  # it waits for ever
    return run_reput(*arguments, *options, stdin=stdin).status


def run_server(arguments: list[str]) -> int:
    """Run a server in a process of its own, and stop it once it is ready."""
    command = [sys.executable, "-m", "reput", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.terminate()
        return process.wait(timeout=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What /tmp is to the examples, with the store that those of `put` make, its backups, and its first export."""
    folder = tmp_path_factory.mktemp("examples")
    cache_without(folder / "reput-cache", "batched_io.read_runs")  # all kernels take minutes
    for example in (*examples_of("put"), *examples_of("backup"), examples_of("export")[0]):
        assert run_example(example, folder) == 0, example
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_works_as_it_stands(folder: Path, command: str) -> None:
    examples = examples_of(command)
    assert examples
    for example in examples:
        assert run_example(example, folder) == 0, example


@sampled(2)
@pytest.mark.parametrize("command", SERVING["Serve"])
def test_every_example_of_what_serves_is_ready_and_ends_with_a_signal(tmp_path: Path, command: str) -> None:
    (example,) = examples_of(command)
    words = [*shlex.split(example.replace("/tmp/", f"{tmp_path}/"))[1:], *FREE_PORTS[command]]
    program = [sys.executable, "-m", "reput", *words]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert line.startswith("ready "), errors
    assert process.returncode == 0, errors


def test_the_command_alone_lists_all_commands_in_groups() -> None:
    answer = run_reput()
    assert answer.status == 0
    _, *groups, _ = answer.out.partition("Options:\n")[2].split("\n\n")
    listed = {heading: lines for heading, *lines in map(str.splitlines, groups)}
    names = {
        heading: [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
        for heading, lines in listed.items()
    }
    assert names == {f"{heading}:": commands for heading, commands in (GROUPS | SERVING | ASKING).items()}


@pytest.mark.parametrize("group", [(), ("admin",)])
@pytest.mark.parametrize("columns", ["60", "200"])
def test_the_list_of_commands_cuts_no_sentence(
    group: tuple[str, ...], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    answer = run_reput(*group, "--help")
    assert "..." not in answer.out.partition("\n")[2]
    whole = " ".join(answer.out.split())
    assert ("the messages that only it has, and give them up." in whole) is (not group)
    assert ("the newest ones, or those from an offset or a time on." in whole) is bool(group)


@sampled(4)
@pytest.mark.parametrize("arguments", [("--help",), ("info", "--help")])
@pytest.mark.parametrize(("terminal", "widest"), [(60, 60), (100, 100), (250, 120), (None, 80)])
def test_help_is_as_wide_as_the_terminal_up_to_120_columns(
    arguments: tuple[str, ...], terminal: int | None, widest: int
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if terminal is not None:
        environment["COLUMNS"] = str(terminal)
    command = [sys.executable, "-m", "reput", *arguments]
    helped = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    assert widest - 12 <= max(map(len, helped.stdout.splitlines())) <= widest


@pytest.mark.parametrize("command", [*COMMANDS, *SERVING["Serve"]])
def test_options_are_long_and_json_is_among_them(command: str) -> None:
    lines = run_reput(command, "--help").out.partition("Options:\n")[2].splitlines()
    options = [line.split()[0] for line in lines if line.strip().startswith("-")]
    assert "--json" in options or command == "tail"  # which has --format json, as consume
    assert all(option.startswith("--") for option in options)
