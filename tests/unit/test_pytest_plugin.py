"""The fixture for tests of users, in a run of pytest of its own."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from reput.kernels.machine.cache import COMPLETE
from reput.pytest_plugin import ShownWarnings
from tests.support.kernel_cache import cache_without, whole_cache

ROOT = Path(__file__).parents[2]
TEST = """
from reput.client import Message
from reput.client.sync import Producer, PullConsumer


def test_orders(reput_broker):
    with Producer(reput_broker.namesrv, group="g") as producer:
        producer.send(Message("orders", b"paid"))
    with PullConsumer(reput_broker.namesrv, group="p", topics={"orders": "*"}, consume_from="first") as consumer:
        assert [message.body for message in consumer.poll(timeout=30)] == [b"paid"]


def test_another_test_has_a_broker_of_its_own(reput_broker):
    with PullConsumer(reput_broker.namesrv, group="p") as consumer:
        assert consumer.queues("orders") == ()
"""


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_test_gets_a_broker_that_goes_with_it(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_orders.py").write_text(TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "reput.pytest_plugin",
        "-p",
        "xdist",
        "-n",
        str(processes),
        "--basetemp",
        str(tmp_path / "t"),
        ".",
    ]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert done.stderr == ""  # nothing is compiled


def test_where_there_is_no_store_the_fixture_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text("import sys; sys.modules['numpy'] = None")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reput.pytest_plugin", "."]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "2 errors" in done.stdout
    assert "ConfigError: the fixture reput_broker needs numpy: pip install 'reput[store]'" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_run_says_that_kernels_are_compiled_and_compiles_them_once(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_orders.py").write_text(TEST)
    cache = cache_without(tmp_path / "cache", "gather.total_size", "batched_io.read_runs")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reput.pytest_plugin", "-p", "xdist", "-n", str(processes)]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "REPUT_CACHE_DIR": str(cache)}
    done = subprocess.run([*command, "."], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "2 passed" in done.stdout
    assert done.stderr.count("reput: compiling kernels, once for this version: 1 of 2, about ") == 1
    assert (whole_cache() / COMPLETE).name in {one.name for one in cache.glob("*/*")}


def test_a_warning_leaves_a_test_the_streams_that_it_has_put_in_place(pytestconfig: pytest.Config) -> None:
    record = logging.LogRecord("reput.kernels", logging.WARNING, "", 0, "compiling", (), None)
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        ShownWarnings(pytestconfig).emit(record)
        assert (sys.stdout, sys.stderr) == (out, err)


def test_pytest_finds_the_plugin_and_it_loads_nothing_heavy() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"reput": "reput.pytest_plugin"}
    program = "import sys, reput.pytest_plugin; print({'numpy', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
