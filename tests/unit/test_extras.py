"""A package that is missing is told in one line, before any work is done."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

import reput
import reput.jobs
import reput.spark
from reput.errors import ConfigError
from reput.extras import _EXTRAS, require, what_to_install

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
OF_THE_STORE = ["numpy", "numba"]
#: Names of reput's with the extra that they need, and its packages.
NAMES_OF_EXTRAS = {"Broker": "store", "MessageStore": "store", "log_dataset": "tables", "read_log": "tables"}
PACKAGES = {"store": OF_THE_STORE, "tables": [*OF_THE_STORE, "pyarrow"]}
STORE_AND_ITS_OWN = "numpy,numba,llvmlite,pyarrow"  # numba brings llvmlite
#: Packages whose name differs from that of the import.
NAMES = {"google.protobuf": "protobuf", "prometheus_client": "prometheus-client", "yaml": "PyYAML"}


def test_what_is_installed_is_required_in_silence() -> None:
    require("duckdb", "SQL")
    with pytest.raises(KeyError):
        require("no_such_package", "nothing")


def test_a_session_without_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from reput.spark import session

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match=r"a Spark session needs pyspark: pip install 'reput\[spark\]'"):
        session()


@pytest.mark.parametrize("name", [name for name in reput.spark.__all__ if name != "session"])  # the test above calls it
def test_a_name_of_spark_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delitem(vars(reput.spark), name, raising=False)  # it is kept after its first use
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match=rf"reput.spark.{name} needs pyspark: pip install 'reput\[spark\]'"):
        getattr(reput.spark, name)


def test_each_extra_that_an_error_names_brings_the_package() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for package, extra in _EXTRAS.items():
        brought = {re.split("[^A-Za-z0-9_-]", text)[0] for text in extras[extra]}
        assert NAMES.get(package, package) in brought


def test_each_extra_that_code_or_a_page_names_is_one() -> None:
    root = PYPROJECT.parent
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    files = [root / "README.md", *(root / "src").rglob("*.py"), *(root / "docs").rglob("*.md")]
    named = re.compile(r"extra `(\w+)`|reput\[([\w,]+)\]")
    unknown = {
        (str(path.relative_to(root)), one)
        for path in files
        for extra, several in named.findall(path.read_text())
        for one in (extra or several).split(",")
        if one not in extras
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("name", "extra", "package"),
    [(name, extra, package) for name, extra in NAMES_OF_EXTRAS.items() for package in PACKAGES[extra]],
)
def test_a_name_of_an_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str, extra: str
) -> None:
    monkeypatch.delitem(vars(reput), name, raising=False)  # it is kept after its first use
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"reput.{name} needs {package}: pip install 'reput\[{extra}\]'"):
        getattr(reput, name)
    assert name not in dir(reput)
    assert "Message" in dir(reput)


def test_an_import_that_no_extra_brings_has_no_line() -> None:
    assert what_to_install(ModuleNotFoundError("no numpyro", name="numpyro"), "it") is None
    assert what_to_install(ModuleNotFoundError("no google", name="google"), "it") is None
    found = what_to_install(ModuleNotFoundError("no pyarrow.compute", name="pyarrow.compute"), "reput info")
    assert found == "reput info needs pyarrow: pip install 'reput[tables]'"
    found = what_to_install(ModuleNotFoundError("no numpy", name="numpy"), "reput info")
    assert found == "reput info needs numpy: pip install 'reput[tables]'"


@pytest.mark.parametrize(("name", "home"), [("Producer", "reput.client"), ("LocalBroker", "reput.testing")])
def test_a_name_that_lives_elsewhere_is_told_with_its_home(name: str, home: str) -> None:
    with pytest.raises(ImportError, match=f"from {home} import {name}$"):
        getattr(reput, name)
    assert not hasattr(reput, "no_such_name")


_WITHOUT = """
import importlib, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(type(error).__name__, error.name, error, sep=" | ")
    else:
        print(name)
"""


def test_each_room_of_jobs_says_what_to_install_where_there_is_the_core_alone() -> None:
    rooms = [f"reput.jobs.{one.name}" for one in pkgutil.iter_modules(reput.jobs.__path__) if one.ispkg]
    assert "reput.jobs.query" in _refused(rooms, STORE_AND_ITS_OWN, "tables")


def _refused(modules: Sequence[str], missing: str, extra: str) -> list[str]:
    """The modules that cannot be imported without packages; each says which extra to install."""
    command = [sys.executable, "-c", _WITHOUT, missing, *modules]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    refused = [(module, line) for module, line in zip(modules, told, strict=True) if line != module]
    for module, line in refused:
        needs = rf"ModuleNotFoundError \| (\w+) \| {module} needs \1: pip install 'reput\[{extra}\]'"
        assert re.fullmatch(needs, line), line
    return [module for module, _ in refused]


def _modules_of_pages() -> list[str]:
    """Modules that a page for users names: to import them, or what is in them."""
    pages = [PYPROJECT.parent / "README.md", *(PYPROJECT.parent / "docs").glob("*.md")]
    pages += [page for room in ("jobs", "client") for page in (PYPROJECT.parent / "docs" / room).glob("*.md")]
    named = {name for page in pages for name in re.findall(r"(?:from |import |`)(reput(?:\.\w+)+)", page.read_text())}
    return sorted({_module_of(name) for name in named})


def _module_of(name: str) -> str:
    """The module that a name of reput's is, or is in."""
    while True:
        with suppress(ModuleNotFoundError):
            if find_spec(name) is not None:
                return name
        name = name.rpartition(".")[0]


@pytest.mark.parametrize(
    ("missing", "extra", "some"),
    [
        (STORE_AND_ITS_OWN, "tables", {"reput.jobs.decoding", "reput.store.sinks.replay", "reput.spark.runner"}),
        ("pyspark", "spark", {"reput.spark.sql"}),
    ],
    ids=["tables", "spark"],
)
def test_each_module_that_a_page_names_says_what_to_install(missing: str, extra: str, some: set[str]) -> None:
    assert set(_refused(_modules_of_pages(), missing, extra)) >= some
