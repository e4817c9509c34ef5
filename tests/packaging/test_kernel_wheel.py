"""A wheel with compiled kernels, in an environment that has nothing else of reput: nothing is compiled."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reput.kernels.machine.target import NEEDED
from reput.kernels.machine.wheel_kernels import FILE, host_features
from tests.support.cluster.wheel import ROOT, build_wheel, site_packages, without_source_tree
from tests.support.installed import make_environment

pytestmark = pytest.mark.slow

PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
#: Prints the first message's body, and how many kernels were loaded and compiled.
FIRST_PUT = """
import reput, sys
with reput.MessageStore.open(sys.argv[1], small=True) as store:
    store.put_message(reput.Message("orders", b"one", keys=["o-1"]))
    store.wait_dispatched()
    print(store.query_message("orders", "o-1")[0].body.decode())
from reput.kernels.machine.jit import _declared
print(all(each.stats.cache_hits for each in _declared), any(each.stats.cache_misses for each in _declared))
"""
REFUSAL = "from reput.kernels.machine.wheel_kernels import wheel_kernels; print(wheel_kernels().refusal)"


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("pure"))


@pytest.fixture(scope="module")
def wheel(pure: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `make wheel` makes it; the first run after a change of sources compiles its kernels."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", str(ROOT / "lab/release/kernel_wheel.py"), str(pure), str(folder)]
    subprocess.run(command, env=without_source_tree(), check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Path:
    return make_environment(tmp_path / "environment", wheel, "store")


def python(environment: Path, code: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(environment / "bin/python"), "-c", code, *map(str, arguments)]
    variables = without_source_tree() | variables
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True)


def content_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_wheel_is_the_pure_one_and_its_kernels(pure: Path, wheel: Path) -> None:
    tag = f"{PYTHON}-{PYTHON}-manylinux_2_28_x86_64"
    assert wheel.name == pure.name.replace("py3-none-any", tag)
    assert wheel.stat().st_size < 3e6
    before, after = content_of(pure), content_of(wheel)
    assert after.keys() - before.keys() == {f"reput/kernels/{FILE}"}
    changed = {name.rpartition("/")[2] for name, data in before.items() if after[name] != data}
    assert changed == {"WHEEL", "RECORD"}
    (about,) = (data.decode().splitlines() for name, data in after.items() if name.endswith(".dist-info/WHEEL"))
    assert {"Root-Is-Purelib: false", f"Tag: {tag}"} <= set(about)
    (record,) = (name for name in after if name.endswith(".dist-info/RECORD"))
    rows = {name: (digest, size) for name, digest, size in csv.reader(after[record].decode().splitlines())}
    assert rows.pop(record) == ("", "")
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for name, data in after.items()}
    assert rows == {
        name: (f"sha256={digests[name].rstrip(b'=').decode()}", str(len(data)))
        for name, data in after.items()
        if name != record
    }


def test_the_first_put_of_a_fresh_environment_compiles_nothing(environment: Path, tmp_path: Path) -> None:
    assert host_features() >= NEEDED
    cache = tmp_path / "cache"
    done = python(environment, FIRST_PUT, tmp_path / "store", REPUT_CACHE_DIR=str(cache))
    assert (done.stdout, done.stderr) == ("one\nTrue False\n", "")
    assert not cache.exists()
    done = python(environment, "from reput.__main__ import main; main()", "warm", "--where")
    assert done.stdout == f"{site_packages(environment / 'bin/python')}/reput/kernels/{FILE}\n"


def test_a_wheel_whose_file_was_cut_gives_a_reason(environment: Path) -> None:
    file = site_packages(environment / "bin/python") / "reput/kernels" / FILE
    os.truncate(file, file.stat().st_size - 1)
    assert python(environment, REFUSAL).stdout == "they are damaged; install the wheel again\n"
