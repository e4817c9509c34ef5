"""What is deployed or run elsewhere: image, units of systemd and workflows name only what is there, and it starts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: Ports that are free, after which each command below is started.
FREE = {
    "broker": ["--port", "0", "--namesrv-port", "0", "--set", "metricsPromExporterPort=0"],
    "namesrv": ["--port", "0"],
}


def instruction(name: str) -> str:
    """The only instruction of its name in the Containerfile."""
    (found,) = re.findall(rf"^{name} (.*)$", CONTAINERFILE, re.MULTILINE)
    return str(found)


def starts_and_ends(command: list[str]) -> None:
    """A command of reput says that it is ready, and ends well at SIGTERM."""
    command = [sys.executable, "-m", "reput", *command, *FREE[command[0]], "--set", "bindAddress=127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
        finally:
            process.terminate()
    assert (ready.split(" ")[0], process.returncode) == ("ready", 0)


def test_image_copies_files_that_are_there() -> None:
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.*)$", CONTAINERFILE, re.MULTILINE)]
    assert copied
    assert [path for paths in copied for path in paths if not (ROOT / path).exists()] == []


def test_command_of_the_image_starts(tmp_path: Path) -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["reput"]
    starts_and_ends([word.replace("/store", str(tmp_path / "store")) for word in json.loads(instruction("CMD"))])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_command_of_the_unit_starts(unit: Path, tmp_path: Path) -> None:
    parsed = ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(unit)
    program, *command = shlex.split(parsed["Service"]["ExecStart"])
    assert program == "/opt/reput/bin/reput"
    state = "/var/lib/" + parsed["Service"]["StateDirectory"]
    assert any(state in word for word in command)
    (tmp_path / f"{command[0]}.conf").touch()
    starts_and_ends([word.replace(state, str(tmp_path)).replace("/etc/reput", str(tmp_path)) for word in command])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.stem)
def test_workflow_runs_targets_and_files_that_are_there(workflow: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]
    made = [target for command in commands if command.startswith("make ") for target in command.split()[1:]]
    paths = [word for command in commands for word in command.split() if re.match(r"(tests/|\.ci/)", word)]
    paths += [job["uses"] for job in jobs if "uses" in job]
    assert made
    assert [target for target in made if target not in targets] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_workflows_try_each_python_that_the_package_names() -> None:
    declared = set(re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()))
    tried = set(re.findall(r'"(3\.\d+)"', (ROOT / ".github/workflows/ci.yml").read_text()))
    assert declared <= tried
