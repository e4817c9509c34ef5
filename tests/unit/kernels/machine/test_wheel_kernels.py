"""Kernels of a wheel are loaded if they are proven to belong here; else kernels are compiled, and a line says why."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite
import numba
import pytest

from reput.kernels.machine import wheel_kernels as module
from reput.kernels.machine.target import NEEDED
from reput.kernels.machine.wheel_kernels import FILE, WheelKernels, decode, encode, origin
from tests.support.kernel_cache import WITHOUT_WHEEL, all_codes, cache_without, installed_with, kernels_in, whole_cache

CODES = {"reput.kernels.one": b"code", "reput.kernels.two": bytes(range(256))}
DAMAGED = WheelKernels({}, "they are damaged; install the wheel again")
#: Prints as JSON what a process has of its wheel's kernels: (kernels loaded, kernels compiled, is a CRC right).
USE = """
import json, zlib
from reput.kernels.machine import wheel_kernels
wheel_kernels.host_features = lambda: wheel_kernels.NEEDED  # on another architecture, too
from reput.kernel_loader import load_kernels
load_kernels()
import numpy
from reput.kernels.machine import crc32
from reput.kernels.machine.jit import _declared
hits, misses = (sum(len(each.stats[i]) for each in _declared) for i in (1, 2))
data, out = numpy.frombuffer(b"reput" * 99, numpy.uint8), numpy.zeros(1, numpy.uint32)
at = numpy.zeros(1, numpy.int64)
crc32.crc32_slices(data.ctypes.data, at, at + data.size, out, False)
print(json.dumps([hits, misses, out.tolist() == [zlib.crc32(data)]]))
"""
#: Prints why the wheel's kernels do not count, and loads nothing.
ASK = (
    "from reput.kernels.machine import wheel_kernels as w; w.host_features = lambda: w.NEEDED; "
    "print(len(w.wheel_kernels().codes), w.wheel_kernels().refusal)"
)


def python(code: str, installed: Path, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(installed), "REPUT_CACHE_DIR": str(cache)} | environment
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)


def as_zip(installed: Path) -> Path:
    return Path(shutil.make_archive(str(installed.parent / "installed"), "zip", installed))


def test_kernels_that_belong_here_count() -> None:
    assert decode(encode(CODES), NEEDED | {"avx2"}) == WheelKernels(CODES)


@pytest.mark.parametrize("name", origin())
def test_kernels_of_another_origin_do_not_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = origin()
    monkeypatch.setattr(module, "origin", lambda: ours | {name: "another"})
    file = encode(CODES)
    monkeypatch.setattr(module, "origin", lambda: ours)
    assert decode(file, NEEDED) == WheelKernels({}, f"they are for {name} another, here is {ours[name]}")


@pytest.mark.parametrize(
    ("owner", "attribute", "value", "name"),
    [
        (numba, "__version__", "0.67.0", "Numba"),
        (llvmlite, "__version__", "0.49.0", "llvmlite"),
        (module.binding, "llvm_version_info", (20, 1, 8), "llvmlite"),
        (sys, "abiflags", "d", "Python"),
        (sys.implementation, "cache_tag", "cpython-399", "Python"),
        (module.binding, "get_default_triple", lambda: "aarch64-unknown-linux-gnu", "system"),
        (module, "TARGET", "x86-64-v3", "target"),
        (module, "TARGET_FEATURES", "+avx2", "target"),
        (module, "sources_digest", lambda: "0" * 64, "sources"),
    ],
)
def test_all_that_the_code_depends_on_is_its_origin(
    owner: object, attribute: str, value: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = origin()
    monkeypatch.setattr(owner, attribute, value)
    assert [key for key, text in origin().items() if text != here[key]] == [name]


@pytest.mark.parametrize("feature", sorted(NEEDED))
def test_a_processor_without_a_feature_of_the_target_gets_none(feature: str) -> None:
    assert decode(encode(CODES), NEEDED - {feature}) == WheelKernels({}, f"they need a processor with {feature}")


def test_a_damaged_file_is_noticed_before_anything_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encode(CODES)
    monkeypatch.setattr(pickle, "loads", lambda data: pytest.fail("code of a damaged file"))
    monkeypatch.setattr(json, "loads", lambda data: pytest.fail("origin of a damaged file"))
    flipped = (file[:i] + bytes([file[i] ^ 1 << bit]) + file[i + 1 :] for i in range(len(file)) for bit in range(8))
    cut = (file[:size] for size in range(len(file)))
    assert {decode(each, NEEDED).refusal for each in (*flipped, *cut, file + b"\0")} == {DAMAGED.refusal}


@pytest.fixture(scope="module")
def file() -> bytes:
    """The file of all kernels; compiled for this processor, which makes no difference here."""
    return encode(all_codes())


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_wheels_kernels_are_loaded_and_nothing_is_compiled_or_kept(form: str, file: bytes, tmp_path: Path) -> None:
    installed = installed_with(tmp_path / "installed", file)
    installed = as_zip(installed) if form == "zip" else installed
    done = python(USE, installed, Path("/dev/null/cache"), TMPDIR=str(tmp_path / "none"))
    assert (json.loads(done.stdout), done.stderr) == ([len(all_codes()), 0, True], "")


def test_a_wheel_that_brings_none_says_nothing(tmp_path: Path) -> None:
    assert python(ASK, installed_with(tmp_path, None), tmp_path / "cache").stdout == "0 \n"


@pytest.mark.parametrize("choice", [WITHOUT_WHEEL, {"NUMBA_CPU_FEATURES": ""}])
def test_who_chooses_a_processor_gets_kernels_for_it(choice: dict[str, str], file: bytes, tmp_path: Path) -> None:
    installed = installed_with(tmp_path, file)
    assert python(ASK, installed, tmp_path / "cache", **choice).stdout == "0 \n"


@pytest.mark.parametrize(
    "source", ["formats/record_layout.py", "kernels/records/record_scan.py", "files/batched_io.py"]
)
def test_a_source_that_was_changed_has_no_compiled_kernels(source: str, file: bytes, tmp_path: Path) -> None:
    installed = installed_with(tmp_path, file)
    with (installed / "reput" / source).open("a") as opened:
        opened.write("\n")
    assert python(ASK, installed, tmp_path / "cache").stdout.startswith("0 they are for sources ")


def test_damage_of_a_zip_is_damage_of_the_wheel(file: bytes, tmp_path: Path) -> None:
    archive = as_zip(installed_with(tmp_path / "installed", file))
    content = bytearray(archive.read_bytes())
    at = content.index(f"reput/kernels/{FILE}".encode()) + 100_000  # within the file
    content[at] ^= 0xFF
    archive.write_bytes(content)
    assert python(ASK, archive, tmp_path / "cache").stdout.startswith("0 they cannot be read: ")


def test_kernels_that_do_not_count_are_told_once_and_compiled(file: bytes, tmp_path: Path) -> None:
    installed = installed_with(tmp_path / "installed", file[:-1])
    cache = cache_without(tmp_path / "cache", "batched_io.read_runs")
    first, second = (python(USE, installed, cache) for _ in range(2))
    reason, begin = first.stderr.splitlines()
    assert reason == f"reput: kernels of the wheel are not used: {DAMAGED.refusal}"
    assert begin.startswith("reput: compiling kernels, once for this version: 1 of 1")
    assert "batched_io.read_runs" in kernels_in(cache)
    assert json.loads(first.stdout) == [len(all_codes()) - 1, 1, True]
    assert (json.loads(second.stdout), second.stderr) == ([len(all_codes()), 0, True], "")
    assert whole_cache().name in {folder.name for folder in cache.iterdir()}
