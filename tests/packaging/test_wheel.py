"""The wheel as a user has it: what is in it, the core alone, and the store."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

import reput
from reput.testing import LocalBroker
from tests.support.cluster.wheel import ROOT, build_sdist, build_wheel, site_packages
from tests.support.installed import make_environment, run

pytestmark = pytest.mark.slow

SOURCES = ROOT / "src"
INFO = f"reput-{reput.__version__}.dist-info"
TABLES = """
import asyncio
from reput.client import Producer, PullConsumer
from reput.errors import ConfigError
async def main(namesrv):
    async with Producer(namesrv, group="shop") as producer, PullConsumer(namesrv, group="g", topics=None) as consumer:
        for work in (producer.send_arrow([]), consumer.poll_arrow(1)):
            try:
                await work
            except ConfigError as error:
                print(error)
asyncio.run(main({namesrv!r}))
"""
STORE = """
import reput, sys
with reput.MessageStore.open(sys.argv[1], small=True) as store:
    store.put_messages([reput.Message("orders", b"%d" % i, keys=[f"o-{i}"]) for i in range(9)])
    store.wait_dispatched()
    print(store.query_message("orders", "o-7")[0].body)
"""
READ = """
print(reput.read_log(sys.argv[1], columns=["topic", "body"]).read_all().num_rows)
"""
BROKER = """
import reput
from reput.client import sync
from reput.testing import broker
with broker() as rocketmq, sync.Producer(rocketmq.namesrv, group="p") as producer:
    queue = producer.send(reput.Message("orders", b"x")).queue
    with sync.PullConsumer(rocketmq.namesrv, group="g", consume_from="first") as consumer:
        consumer.assign([queue])
        print(consumer.poll(timeout=30)[0].body, rocketmq.messages("orders")[0].body)
"""
ARROW = """
import reput, sys
from reput.errors import ConfigError
with reput.MessageStore.open(sys.argv[1], small=True) as store:
    for work in (
        lambda: reput.read_log, lambda: reput.log_dataset, lambda: store.put_arrow(None),
        lambda: store.get_message("orders", 0, 0).to_arrow(),
    ):
        try:
            work()
        except ConfigError as error:
            print(error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `reput` alone."""
    return make_environment(tmp_path_factory.mktemp("core"), wheel)


@pytest.fixture(scope="module")
def with_store(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `reput[store]`."""
    return make_environment(tmp_path_factory.mktemp("store"), wheel, "store")


@pytest.fixture(scope="module")
def with_tables(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `reput[tables]`."""
    return make_environment(tmp_path_factory.mktemp("tables"), wheel, "tables")


def content_of(wheel: Path) -> dict[str, int]:
    """CRC of each file of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {one.filename: one.CRC for one in opened.infolist()}


def test_the_wheel_has_all_sources_and_their_licences_and_nothing_else(wheel: Path) -> None:
    sources = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*") if path.is_file()}
    in_wheel = content_of(wheel).keys()
    assert {name for name in in_wheel if not name.startswith(INFO)} == {
        name for name in sources if "__pycache__" not in name
    }
    assert {"reput/py.typed", "pyspark_reput/py.typed", "reput/jobs/report/browser/echarts.min.js"} <= in_wheel
    metadata = PathDistribution(zipfile.Path(wheel, f"{INFO}/")).metadata
    licences = metadata.get_all("License-File") or []
    assert metadata["License-Expression"] == "Apache-2.0 AND BSD-3-Clause"
    assert {"LICENSE", *(f"LICENSE-{name}" for name in ("d3", "echarts", "zrender")), "NOTICE-echarts"} == {
        Path(name).name for name in licences
    }
    assert {f"{INFO}/licenses/{name}" for name in licences} <= in_wheel


def test_the_source_distribution_builds_the_same_wheel_and_has_no_tests(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "sdist").mkdir()
    (tmp_path / "again").mkdir()
    with tarfile.open(build_sdist(tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("reput-*")
    assert {path.name for path in source.iterdir()} == {
        "src", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore",
    }  # fmt: skip
    assert content_of(build_wheel(tmp_path / "again", source)) == content_of(wheel)


def test_the_image_of_the_page_on_containers_installs_the_wheel_that_the_page_makes(tmp_path: Path) -> None:
    page = (ROOT / "docs/containers.md").read_text()
    (make,) = re.findall(r"^pip wheel .*$", page, re.MULTILINE)
    ((copied, to),) = re.findall(r"^COPY (\S+) (\S+)$", page, re.MULTILINE)
    (install,) = re.findall(r"^RUN (pip .*)$", page, re.MULTILINE)
    shutil.copytree(SOURCES, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1"}  # nothing is fetched
    subprocess.run(make, shell=True, cwd=tmp_path, check=True, env=environment)
    (image := tmp_path / "image").mkdir()
    for path in tmp_path.glob(copied):
        shutil.copy(path, image)
    environment |= {"PIP_TARGET": str(tmp_path / "site")}
    subprocess.run(install.replace(to, f"{image}/"), shell=True, check=True, env=environment)
    assert (tmp_path / "site/reput/version.py").exists()


def test_the_core_takes_less_than_250_mb_and_needs_nothing_more(core: Path) -> None:
    site = site_packages(core / "bin" / "python")
    sizes = [
        os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(site, followlinks=True) for name in names
    ]
    assert 10e6 < sum(sizes) < 250e6
    assert not {"numpy", "numba", "pyarrow", "pyspark", "pandas", "pytest"} & {entry.name for entry in site.iterdir()}
    check = run(core, "python", "-m", "pip", "check")
    assert (check.returncode, check.stdout) == (0, "No broken requirements found.\n")


def test_the_core_has_the_client_and_says_what_the_store_needs(core: Path) -> None:
    done = run(core, "python", "-c", "from reput import Message; import reput.client.sync, reput.namesrv.name_server")
    assert (done.returncode, done.stderr) == (0, "")
    extras = {"Broker": "store", "MessageStore": "store", "log_dataset": "tables", "read_log": "tables"}
    for name, extra in extras.items():
        done = run(core, "python", "-c", f"import reput; reput.{name}")
        line = f"reput.errors.ConfigError: reput.{name} needs numpy: pip install 'reput[{extra}]'"
        assert done.stderr.splitlines()[-1] == line


def test_the_core_has_the_commands_that_need_no_store(core: Path, tmp_path: Path) -> None:
    for arguments in (["--help"], ["--version"], ["config"], ["man", tmp_path / "man"], ["admin", "--help"]):
        done = run(core, "reput", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
    done = run(core, "reput", "info", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (tmp_path / "commitlog").mkdir()
    for command, package in (("info", "numpy"), ("audit", "numpy"), ("dispatch", "pyarrow")):
        done = run(core, "reput", command, tmp_path)
        line = f"reput: reput {command} needs {package}: pip install 'reput[tables]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_the_core_sends_and_consumes_and_says_what_tables_need(core: Path, reput_broker: LocalBroker) -> None:
    namesrv = ("--namesrv", reput_broker.namesrv)
    assert run(core, "reput", "admin", "create-topic", "orders", *namesrv).returncode == 0
    done = run(core, "reput", "produce", "orders", *namesrv, stdin="one\ntwo\n")
    assert (done.returncode, done.stderr) == (0, "")
    done = run(core, "reput", "consume", "orders", *namesrv)
    assert sorted(done.stdout.splitlines()) == ["one", "two"]
    done = run(core, "reput", "admin", "topics", *namesrv)
    assert (done.returncode, "orders" in done.stdout) == (0, True)
    done = run(core, "python", "-c", TABLES.replace("{namesrv!r}", repr(reput_broker.namesrv)))
    needs = "needs numpy: pip install 'reput[tables]'"
    assert done.stdout == f"send_arrow {needs}\npoll_arrow {needs}\n"


def test_the_extra_store_has_store_and_broker_without_arrow(with_store: Path, tmp_path: Path) -> None:
    assert not (site_packages(with_store / "bin" / "python") / "pyarrow").exists()
    done = run(with_store, "python", "-c", STORE, tmp_path / "store")
    assert (done.stdout, done.stderr) == ("b'7'\n", "")
    done = run(with_store, "python", "-c", BROKER)
    assert (done.stdout, done.stderr) == ("b'x' b'x'\n", "")
    for command in (
        ["info"],
        ["get", "--topic", "orders"],
        ["tail", "--topic", "orders", "--from", "first", "--timeout", "0"],
    ):
        done = run(with_store, "reput", command[0], tmp_path / "store", *command[1:])
        assert (done.returncode, done.stderr) == (0, ""), command
    for command in ("audit", "stats"):
        done = run(with_store, "reput", command, tmp_path / "store")
        assert done.stderr == f"reput: reput {command} needs pyarrow: pip install 'reput[tables]'\n"
    done = run(with_store, "python", "-c", ARROW, tmp_path / "store")
    needs = "needs pyarrow: pip install 'reput[tables]'"
    asked = ("read_log", "log_dataset", "put_arrow", "to_arrow")
    assert [line.removeprefix("reput.") for line in done.stdout.splitlines()] == [f"{one} {needs}" for one in asked]


def test_the_extra_tables_has_the_jobs(with_tables: Path, tmp_path: Path) -> None:
    done = run(with_tables, "python", "-c", STORE + READ, tmp_path / "store")
    assert (done.stdout, done.stderr) == ("b'7'\n9\n", "")
    assert run(with_tables, "reput", "audit", tmp_path / "store").returncode == 0
    done = run(with_tables, "reput", "query", tmp_path / "store", "--sql", "select 1")
    assert done.stderr == "reput: SQL needs duckdb: pip install 'reput[lake]'\n"
