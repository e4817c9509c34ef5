"""Tests that cover a module: `python -m tests.support.tests_of src/reput/store/reads/get.py` prints their files.

First the test of the same path and name in tests/unit, then those that import the module, then those with a module of
tests/support or a conftest.py that imports it.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TESTS = ROOT / "tests"
_SOURCE = ROOT / "src/reput"


def module_of(path: Path) -> str:
    """Name of the module in a file of src or tests."""
    path = path.relative_to(ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT).with_suffix("")
    return ".".join(path.parts).removesuffix(".__init__")


def _imports_of(path: Path) -> set[str]:
    """Imports of a file, also within functions: modules, and names in modules, which may be modules, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                found.update(name.name for name in names)
            case ast.ImportFrom(level=0, module=str(module), names=names):
                found.update([module, *(f"{module}.{name.name}" for name in names)])
    return found


@cache
def _importers() -> dict[str, list[Path]]:
    """Files of src and tests by what they import."""
    found: dict[str, list[Path]] = {}
    for path in sorted([*_TESTS.rglob("*.py"), *_SOURCE.rglob("*.py")]):
        for name in _imports_of(path):
            found.setdefault(name, []).append(path)
    return found


def _mirror(path: Path) -> Path:
    """The test of the same path and name as a file of src/reput."""
    return _TESTS / "unit" / path.relative_to(_SOURCE).parent / f"test_{path.stem.strip('_')}.py"


def _nearest_tests(path: Path) -> list[Path]:
    found = [mirror] if (mirror := _mirror(path)).exists() else []
    importers = _importers().get(module_of(path), [])
    found += [one for one in importers if _is_test(one)]
    for one in importers:
        if one.is_relative_to(_TESTS / "support"):
            found += filter(_is_test, _importers().get(module_of(one), []))
        elif one.name == "conftest.py" and one.parent != _TESTS:  # that one is of all tests
            found += sorted(one.parent.rglob("test_*.py"))
    return list(dict.fromkeys(found))


def _is_test(path: Path) -> bool:
    return path.is_relative_to(_TESTS) and path.name.startswith("test_")


def covering_tests(path: Path) -> list[Path]:
    """Files of tests that cover a file of src/reput, its mirror first.

    A module that no test imports is covered by the tests of the modules that import it, else by those of its folder.
    """
    level, seen = [path], {path}
    while level:
        if found := list(dict.fromkeys(test for one in level for test in _nearest_tests(one))):
            return found
        users = {user for one in level for user in _importers().get(module_of(one), []) if user.is_relative_to(_SOURCE)}
        level = sorted(users - seen)
        seen.update(level)
    folders = (folder.glob("test_*.py") for folder in _mirror(path).parents)
    return next(found for folder in folders if (found := sorted(folder)))


if __name__ == "__main__":
    file = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else ROOT
    if not (file.is_file() and file.is_relative_to(_SOURCE)):
        sys.exit("usage: make tests-of FILE=src/reput/store/reads/get.py")
    print(*(test.relative_to(ROOT) for test in covering_tests(file)), sep="\n")
