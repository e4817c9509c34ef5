"""The two environments that the Makefile makes: what a user needs for `make run`, and what a developer needs."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FLIGHTS = ROOT / "examples/flights/requirements.txt"


def requirements(lines: list[str]) -> dict[str, Requirement]:
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {each.name: each for each in found}


def packages_of_pyproject() -> dict[str, Requirement]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = requirements([line for lines in extras.values() for line in lines])
    return {name: each for name, each in found.items() if name != "reput"}


def recipes(folder: Path, target: str) -> str:
    """What make would run for a target in a folder without `.venv`."""
    (folder / FLIGHTS.relative_to(ROOT)).parent.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", str(FLIGHTS.relative_to(ROOT))):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    command = ["make", "--dry-run", "--directory", str(folder), target]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_flights_ask_for_the_ranges_of_pyproject() -> None:
    asked, declared = requirements(FLIGHTS.read_text().splitlines()), packages_of_pyproject()
    assert {name: str(each) for name, each in asked.items()} == {name: str(declared[name]) for name in asked}


def test_run_installs_no_package_for_developers(tmp_path: Path) -> None:
    asked = recipes(tmp_path, "run") + recipes(tmp_path / "packages", ".venv/for-users")
    assert "reput[broker,spark,java]" in asked
    assert "dev" not in asked.replace("/dev/", "")


@pytest.mark.parametrize("target", ["lint", "test", "test-rest", "interop", "docs", "bench", "campaign", "soak"])
def test_targets_for_developers_install_everything(tmp_path: Path, target: str) -> None:
    assert "reput[all,dev]" in recipes(tmp_path, target)
