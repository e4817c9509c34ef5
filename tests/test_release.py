"""What is published: a wheel for each Python, and the programs by which each package is tried."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from lab.release.check import examples, kernels_tag

ROOT = Path(__file__).parents[1]
CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
MINORS = [each.rpartition(" ")[2] for each in CLASSIFIERS if re.search(r"Python :: 3\.\d+", each)]


def test_each_python_that_the_package_names_has_a_wheel_with_kernels() -> None:
    (found,) = re.findall(r"for minor in ([\d. ]+);", (ROOT / "Makefile").read_text())
    assert found.split() == MINORS
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (pythons,) = (step["with"]["python-version"] for step in jobs["build"]["steps"] if "setup-python" in str(step))
    assert sorted(pythons.split()) == MINORS


def test_a_wheel_is_built_with_each_python_that_is_named() -> None:
    command = ["make", "--dry-run", "--directory", str(ROOT), "wheel", "PYTHONS=python3.11 /opt/python"]
    recipes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "for python in python3.11 /opt/python; do" in recipes


def test_each_program_of_the_quick_start_says_what_it_prints() -> None:
    programs = list(examples())
    assert len(programs) >= 3
    assert [one.text for one in programs if one.output is None] == []


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("reput-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", "cp311"),
        ("reput-1.0-py3-none-any.whl", None),
        ("reput-1.0.tar.gz", None),
    ],
)
def test_a_wheel_with_kernels_has_the_tag_of_its_python(name: str, tag: str | None) -> None:
    assert kernels_tag(Path(name)) == tag
