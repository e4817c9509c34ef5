"""The rules of the house that the import contracts in pyproject.toml cannot express."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import reput

SOURCE = Path(reput.__file__).parent
ROOT = Path(__file__).parents[1]

#: What code outside the file layer may use of `os`: paths as texts, looking, the environment and processes; nothing
#: that opens or changes a file.
OS_NAMES = {
    "_exit", "access", "cpu_count", "environ", "execv", "fspath", "getpid", "getsid", "kill", "listdir",
    "path", "PathLike", "pathsep", "register_at_fork", "sched_getaffinity", "X_OK",
}  # fmt: skip
SHUTIL_NAMES = {"get_terminal_size", "which"}
FILE_MODULES = {"fcntl", "mmap", "pathlib", "tempfile"}
FILE_FUNCTIONS = {"OSFile", "fromfile", "memmap", "memory_map", "tofile", "touch", "write_bytes", "write_text"}
#: First words of a docstring that name nothing; `Whether` is for booleans.
QUESTION = re.compile(r"\s*(How|That|Those|What|When|Where|Which|Who|Why)\b")
#: Words that send the reader back for a noun: the argument or the noun stands in their place.
LOOK_BACK = re.compile(r"\b(so many|those of)\b", re.IGNORECASE)
HEAVY_MODULES = {"numba", "numpy", "pandas", "plotly", "pyarrow", "pyspark", "rich", "typer"}


def file_access(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that reaches for a file without the file layer."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names if name.name in FILE_MODULES)
            case ast.ImportFrom(module="os", names=names):
                yield from ((node.lineno, f"os.{name.name}") for name in names if name.name not in OS_NAMES)
            case ast.ImportFrom(module=str(module)) if module in FILE_MODULES:
                yield node.lineno, module
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in OS_NAMES:
                yield node.lineno, f"os.{name}"
            case ast.ImportFrom(module="io" | "shutil" as module):
                yield node.lineno, module
            case ast.Attribute(value=ast.Name(id="shutil"), attr=name) if name not in SHUTIL_NAMES:
                yield node.lineno, f"shutil.{name}"
            case ast.Attribute(value=ast.Name(id="io"), attr="open" | "FileIO" as name):
                yield node.lineno, f"io.{name}"
            case ast.Attribute(attr=name) if name in FILE_FUNCTIONS:
                yield node.lineno, name
            case ast.Call(func=ast.Name(id="open")):
                yield node.lineno, "open"


def test_no_module_outside_the_file_layer_touches_files_by_itself() -> None:
    sources = [path for path in SOURCE.rglob("*.py") if SOURCE / "files" not in path.parents]
    sources.remove(SOURCE / "kernels/machine/cache.py")  # finds a folder for Numba, which writes there by itself
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sources
        for line, name in file_access(ast.parse(path.read_text()))
    ]
    assert len(sources) > 10
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "with open('x') as file: pass",
        "import os\nos.open('x', 0)",
        "import os\nos.replace('x', 'y')",
        "import os\nwrite = os.pwrite",
        "from os import fsync",
        "from pathlib import Path",
        "import shutil\nshutil.rmtree('x')",
        "from shutil import copyfile",
        "import mmap",
        "import io\nio.open('x')",
        "numpy.memmap('x')",
        "path.write_text('x')",
    ],
)
def test_every_way_to_touch_a_file_is_noticed(text: str) -> None:
    assert list(file_access(ast.parse(text)))


def test_the_file_layer_itself_is_what_the_rule_is_about() -> None:
    assert [name for path in (SOURCE / "files").glob("*.py") for _, name in file_access(ast.parse(path.read_text()))]


#: What code outside a test's own module may import from the tests.
SHARED = {"tests.support", "tests.oracles"}


def imports_from_tests(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import from the tests that is not of what they share."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(level=0, module="tests", names=names):
                modules = [f"tests.{name.name}" for name in names]
            case ast.ImportFrom(level=level, module=module):
                modules = ["." * level + (module or "")]
            case _:
                continue
        for module in modules:
            if module.startswith(("tests.", ".")) and ".".join(module.split(".")[:2]) not in SHARED:
                yield node.lineno, module


def test_every_reader_of_arrow_ends_with_the_program() -> None:
    makers = ("RecordBatchReader.from_batches(", "Scanner.from_batches(")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(maker in path.read_text() for maker in makers)
    }
    assert found == {"log/reads/open_batches.py"}


def test_no_test_imports_from_the_module_of_another_one() -> None:
    sources = [path for folder in ("tests", "lab") for path in (ROOT / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {module}: move what is shared to tests/support"
        for path in sources
        for line, module in imports_from_tests(ast.parse(path.read_text()))
    ]
    assert len(sources) > 200
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "from tests.unit.store.test_put import fill",
        "from tests.crash import test_faults",
        "from tests import conftest",
        "import tests.unit.cli.conftest",
        "from .conftest import Run",
        "from . import conftest",
        "def later():\n    from tests.spark.test_sink import save",
    ],
)
def test_every_way_to_import_from_a_test_is_noticed(text: str) -> None:
    assert list(imports_from_tests(ast.parse(text)))


def test_what_tests_share_may_be_imported() -> None:
    text = "from tests.support.damage import flip\nfrom tests.support import golden\nimport tests.oracles.record_scan"
    assert list(imports_from_tests(ast.parse(text))) == []


#: Tests that are no coroutine functions and run some: processes start, which takes longer than such a test may, or
#: die, or one has a disk of its own.
SEVERAL_RUNS = {
    "crash/test_pop_kill.py",
    "crash/test_timer_kill.py",
    "interop/test_access.py",
    "interop/test_namesrv.py",
    "unit/broker/test_full_disk.py",
}


def runs_in_tests(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, test) of every test that is no coroutine function, and runs one."""
    runners = {"asyncio.run"}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module="tests.support.async_tests", names=names):
                runners |= {name.asname or name.name for name in names}
            case ast.ImportFrom(module="asyncio", names=names):
                runners |= {name.asname or name.name for name in names if name.name == "run"}
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
            yield from ((call.lineno, test.name) for call in calls if ast.unparse(call.func) in runners)


def test_a_test_that_runs_a_coroutine_is_one() -> None:
    found = {
        path.relative_to(ROOT / "tests").as_posix(): name
        for path in (ROOT / "tests").rglob("test_*.py")
        for _, name in runs_in_tests(ast.parse(path.read_text()))
    }
    assert {path: name for path, name in found.items() if path not in SEVERAL_RUNS} == {}
    assert found.keys() == SEVERAL_RUNS


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\ndef test_it():\n    async def scenario(): ...\n    asyncio.run(scenario())",
        "from asyncio import run\ndef test_it():\n    assert run(work()) == 1",
        "from tests.support.async_tests import run\ndef test_it():\n    with served():\n        run(work())",
        "from tests.support.async_tests import run\nclass TestIt:\n    def test_it(self):\n        run(work())",
    ],
)
def test_every_way_to_run_a_coroutine_in_a_test_is_noticed(text: str) -> None:
    assert list(runs_in_tests(ast.parse(text)))


def test_the_table_of_layers_is_the_list_that_imports_are_checked_by() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(re.findall(r"reput\.(\w+)", layer)) for layer in contracts[0]["layers"]]
    page = (ROOT / "ARCHITECTURE.md").read_text().partition("## Layers")[2].partition("**The noun")[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in page.splitlines() if line.startswith("| `")]
    found = [name for row in rows for name in row]
    assert sorted(found) == sorted(name for layer in layers for name in layer)
    floors = [next(floor for floor, layer in enumerate(layers) if name in layer) for name in found]
    assert floors == sorted(floors)


def test_no_room_has_more_modules_than_one_can_count() -> None:
    """A layer that grows has rooms; in `formats`, where a module is a format, one looks for its noun."""
    counts = {
        folder.relative_to(SOURCE).as_posix(): sum(1 for _ in folder.glob("*.py"))
        for folder in SOURCE.rglob("*")
        if folder.is_dir() and folder.name != "__pycache__"
    }
    assert len(counts) > 50
    assert {name: count for name, count in counts.items() if count > 30 and name != "formats"} == {}


def test_a_public_class_has_a_name_of_its_own() -> None:
    """But for the client without asyncio, whose classes are those with it."""
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    assert len(homes) > 500
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if "client/sync.py" not in paths} == {}


#: Modules that put a broker together; a processor or a service takes the parts that it uses.
TAKE_ALL_PARTS = {
    "broker/admin/processors.py", "broker/broker.py", "broker/embedded.py", "broker/metrics/broker_metrics.py",
    "broker/pop/pop.py", "broker/services.py", "testing/local_broker.py",
}  # fmt: skip


def test_a_part_of_the_broker_does_not_take_all_parts() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "reput.broker.state"
    }
    assert found == TAKE_ALL_PARTS


def vague_lines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, first line) of each docstring, also of an attribute, that begins with a question word or looks back."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                first = text.strip().partition("\n")[0]
                if QUESTION.match(first) or LOOK_BACK.search(first):
                    yield node.lineno, first


def test_the_first_line_of_a_docstring_names_its_subject() -> None:
    found = [
        f"{path}:{line}: {text}"
        for folder in (SOURCE, ROOT / "lab/bench", ROOT / "lab/campaign", ROOT / "tests/support")
        for path in sorted(folder.rglob("*.py"))
        for line, text in vague_lines(ast.parse(path.read_text()))
    ]
    assert not found, "a noun phrase says it, or a verb: `Reason why`, `Number of`, `Result of`, `Ask`, `size` bytes"


@pytest.mark.parametrize(
    "text",
    [
        '"""What a module has."""',
        'class A:\n    """Who asks."""',
        'class A:\n    """A."""\n\n    one: int = 0\n    """How many there are."""',
        'def f():\n    """\n    Where it is.\n    """',
        'async def f():\n    """Those of the socket."""',
        'def f(size):\n    """Write so many bytes."""',
        'def f():\n    """Columns are those of a table.\n\n    More.\n    """',
    ],
)
def test_a_vague_first_line_is_noticed_in_every_docstring(text: str) -> None:
    assert len(list(vague_lines(ast.parse(text)))) == 1


def test_whether_begins_a_docstring_of_a_boolean() -> None:
    assert not list(vague_lines(ast.parse('"""Whether it is open."""\n"""Whatever comes."""')))


def test_importing_reput_imports_nothing_heavy() -> None:
    loaded = modules_after("import reput")
    assert "reput.errors" in loaded
    assert loaded & HEAVY_MODULES == set()


@pytest.mark.parametrize(
    "module",
    [
        "reput.config.message_store",
        "reput.formats.checkpoint",
        "reput.formats.consume_queue",
        "reput.formats.index_file",
        "reput.formats.message",
        "reput.formats.paths",
        "reput.formats.record",
        "reput.files",
    ],
)
def test_the_pure_layers_and_the_file_layer_import_nothing_heavy(module: str) -> None:
    assert modules_after(f"import {module}") & HEAVY_MODULES == set()


def test_every_public_name_is_there() -> None:
    assert sorted(reput.__all__) == reput.__all__
    for name in reput.__all__:
        assert getattr(reput, name).__doc__, name
        assert name in dir(reput)
    assert set(dir(reput)) == {"__version__", *reput.__all__}  # what a completion shows


def test_a_package_whose_names_are_imported_late_shows_its_public_names_alone() -> None:
    """What a completion shows: the names are not there yet, and what is there is nobody's."""
    packages = [path for path in SOURCE.rglob("__init__.py") if "\ndef __getattr__(" in path.read_text()]
    assert len(packages) > 4
    for path in packages:
        module = import_module(".".join(path.parent.relative_to(SOURCE.parent).parts))
        assert set(dir(module)) - {"__version__"} == set(module.__all__), module.__name__


def test_a_name_that_reput_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'reput' has no attribute 'nothing'"):
        _ = reput.nothing


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after one statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
