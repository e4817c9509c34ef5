"""Where compiled kernels are kept, and what is done where nothing can be written."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reput.kernels.machine import cache
from tests.support.kernel_cache import WITHOUT_WHEEL, cache_without, kernels_in, whole_cache

#: Prints whether a kernel came from the cache (hits, misses), and where that is.
LOAD = (
    "from reput.kernels.machine import cache, crc32 as c; "
    "from reput.kernel_loader import load_kernels; load_kernels(); "
    "print(*map(len, c.crc32_slices.stats[1:]), cache.cache_folder())"
)
#: In front of it: every attempt to change something below a folder is an error.
REFUSED = """
import os, sys
def refuse(event, arguments):
    writes = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
    if writes or event in ("os.mkdir", "os.rename", "os.remove"):
        if str(arguments[0]).startswith({folder!r}):
            raise OSError({number}, os.strerror({number}), arguments[0])
sys.addaudithook(refuse)
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    environment = os.environ | WITHOUT_WHEEL | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def compiled() -> Path:
    """The cache of these sources, with all kernels."""
    return whole_cache()


def test_where_the_cache_cannot_be_written_a_folder_of_this_user_is_found_again(tmp_path: Path, compiled: Path) -> None:
    kept = tmp_path / f"reput-{os.geteuid()}" / compiled.name
    kept.parent.mkdir(mode=0o700)
    shutil.copytree(compiled, kept)  # as an earlier process left it
    done = python(LOAD, REPUT_CACHE_DIR="/dev/null/cache", TMPDIR=str(tmp_path))
    assert done.stdout.split() == ["1", "0", str(kept)]
    (line,) = done.stderr.splitlines()
    assert line == (
        f"reput: /dev/null/cache cannot be written: compiled kernels are kept in {kept.parent}, and compiled again at "
        "each start without that folder. Set REPUT_CACHE_DIR to a folder that can be written and stays"
    )


def test_without_any_folder_that_can_be_written_the_error_names_the_variable() -> None:
    code = (
        "import sys, tempfile\n"
        "from reput.errors import ConfigError\n"
        "tempfile._candidate_tempdir_list = lambda: ['/dev/null']\n"
        "try:\n"
        "    import reput.kernels.machine.crc32\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    done = python(code, REPUT_CACHE_DIR="/dev/null/cache")
    assert done.stdout.startswith("/dev/null/cache cannot be written, nor is there a folder for temporary files")
    assert "REPUT_CACHE_DIR" in done.stdout


def test_a_whole_cache_is_used_where_it_is_although_nothing_can_be_written_there(
    tmp_path: Path, compiled: Path
) -> None:
    shipped = Path(shutil.copytree(compiled, tmp_path / "cache" / compiled.name))
    done = python(REFUSED.format(folder=str(tmp_path), number=errno.EACCES) + LOAD, REPUT_CACHE_DIR=str(shipped.parent))
    assert done.stdout.split() == ["1", "0", str(shipped)]
    assert done.stderr == ""


def test_a_kernel_that_is_not_kept_as_the_disk_is_full_is_used_all_the_same(tmp_path: Path) -> None:
    folder = cache_without(tmp_path / "cache", "batched_io.read_runs")
    kept, full = folder / whole_cache().name, REFUSED.format(folder=str(tmp_path), number=errno.ENOSPC)
    load = "from reput.kernel_loader import load_kernels; load_kernels(processes=1); "
    loaded = "from reput.files import batched_io; print(batched_io.read_runs.is_loaded)"
    done = python(full + load + loaded, REPUT_CACHE_DIR=str(folder))
    assert done.stdout == "True\n"
    begin, warning = done.stderr.splitlines()
    assert begin.startswith("reput: compiling kernels, once for this version: 1 of 1")
    assert warning == (
        f"reput: {kept} cannot be written: No space left on device: compiled kernels are not kept, and are compiled "
        "again at each start. Free some space there, or set REPUT_CACHE_DIR to a folder that can be written"
    )
    assert not (kept / cache.COMPLETE).exists()
    assert "batched_io.read_runs" not in kernels_in(folder)
    python(load, REPUT_CACHE_DIR=str(folder))
    assert "batched_io.read_runs" in kernels_in(folder)
    done = python(full + load, REPUT_CACHE_DIR=str(folder))
    assert done.stderr == ""


def test_a_whole_cache_whose_last_mark_has_no_room_is_used(tmp_path: Path) -> None:
    folder = cache_without(tmp_path / "cache")
    full = REFUSED.format(folder=str(tmp_path), number=errno.ENOSPC)
    done = python(full + LOAD, REPUT_CACHE_DIR=str(folder))
    assert (done.stdout.split()[:2], done.stderr) == (["1", "0"], "")


def test_a_part_of_a_cache_that_cannot_be_written_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "reput.cache")
    monkeypatch.setenv("REPUT_CACHE_DIR", "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache.cache_root.cache_clear()
    try:
        assert cache.cache_path("kernels", cache.COMPLETE) == str(tmp_path / f"reput-{os.geteuid()}" / "kernels")
    finally:
        cache.cache_root.cache_clear()


@pytest.mark.parametrize("kind", ["a file", "a folder"])
def test_what_is_there_is_found_although_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("REPUT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "can_be_written", lambda folder: False)
    shipped = tmp_path / "classes"
    shipped.touch() if kind == "a file" else shipped.mkdir()
    assert cache.cache_path("classes") == str(shipped)


@pytest.mark.parametrize("trap", ["others may write", "a file", "a link"])
def test_a_folder_that_somebody_else_could_fill_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    """Compiled code is loaded from there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = tmp_path / f"reput-{os.geteuid()}"
    if trap == "others may write":
        root.mkdir()
        root.chmod(0o777)
    elif trap == "a file":
        root.touch()
    else:
        (tmp_path / "elsewhere").mkdir()
        root.symlink_to(tmp_path / "elsewhere")
    found = Path(cache._temporary_root())
    assert found != root
    assert found.parent == tmp_path
    assert found.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("variable", ["REPUT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_the_environment_chooses_the_folder(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REPUT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    rest = {"REPUT_CACHE_DIR": "", "XDG_CACHE_HOME": "reput", "HOME": ".cache/reput"}
    assert Path(cache.chosen_root()) == tmp_path / rest[variable]


def test_another_processor_can_be_chosen_as_for_numba(tmp_path: Path) -> None:
    code = "from reput.kernels.machine import cache; print(cache.cache_folder())"
    here, generic, again = (
        python(code, REPUT_CACHE_DIR=str(tmp_path), **choice).stdout
        for choice in ({}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "generic"})
    )
    assert here != generic == again
