"""`make tests-of FILE=...`: which tests cover a module."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.tests_of import ROOT, covering_tests


def names(file: str) -> list[str]:
    return [test.relative_to(ROOT / "tests").as_posix() for test in covering_tests(ROOT / "src/reput" / file)]


@pytest.mark.slow
def test_the_mirror_comes_first_then_who_imports_the_module_then_who_does_by_a_helper() -> None:
    found = names("transport/client.py")
    order = [
        "unit/transport/test_client.py",
        "unit/transport/test_connection.py",
        "golden/test_namesrv_golden.py",  # by tests/support/namesrv.py
    ]
    assert [name for name in found if name in order] == order
    assert found[0] == order[0]
    assert len(set(found)) == len(found)
    assert names("kernels/machine/cache.py")[0] == "unit/kernels/machine/test_cache.py"


def test_a_module_that_no_test_imports_is_covered_by_those_of_its_users() -> None:
    assert names("cli/commands/query_rows.py") == ["unit/cli/commands/test_query.py"]


def test_a_test_with_the_name_of_a_module_lies_where_the_module_does() -> None:
    folders: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src/reput").rglob("*.py")):
        folders.setdefault(path.stem, []).append(path.parent.relative_to(ROOT / "src/reput").as_posix())
    astray = [
        test
        for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))
        if (test := path.relative_to(ROOT / "tests/unit").as_posix())
        and path.parent.relative_to(ROOT / "tests/unit").as_posix() not in folders.get(path.stem[5:], [])
        and path.stem[5:] in folders
    ]
    assert astray == []


def test_every_module_is_covered() -> None:
    files = sorted((ROOT / "src/reput").rglob("*.py"))
    assert len(files) > 400
    assert [file.name for file in files if not covering_tests(file)] == []


@pytest.mark.parametrize("arguments", [[], ["src/reput/nothing.py"], ["tests/conftest.py"], ["src/reput/store"]])
def test_what_is_no_module_is_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tests.support.tests_of", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "usage: make tests-of FILE=src/reput/store/reads/get.py\n"
