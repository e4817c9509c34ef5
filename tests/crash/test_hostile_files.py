"""Files made by an enemy: whoever looks is told or gets a right result, soon, and with little memory."""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.campaign.children import in_child
from lab.campaign.hostile import DEEP, LAUGHS, look_at, set_index, set_many, set_value
from lab.campaign.samples import sample
from tests.support.shares import sampled


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _link(target: str) -> Callable[[Path], None]:
    def link(file: Path) -> None:
        file.unlink()
        file.symlink_to(target)

    return link


def _grow(file: Path) -> None:
    os.truncate(file, 1 << 40)


def _grow_all(file: Path) -> None:
    for one in file.parent.iterdir():
        os.truncate(one, 1 << 40)


def _text(content: bytes) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        file.write_bytes(content)
        file.with_name(f"{file.name}.bak").write_bytes(content)

    return write


@sampled(3)
@pytest.mark.parametrize(
    ("pattern", "deed"),
    [
        *((pattern, _pipe) for pattern in ("lock", "checkpoint", "config/topics.json", "config/reputShutdown.json")),
        *(
            (pattern, _pipe)
            for pattern in ("commitlog/*", "consumequeue/orders/0/*", "batchconsumequeue/*/*/*", "index/*")
        ),
        ("index/*", _link("/dev/zero")),
        ("consumequeue/orders/0/*", _link("/dev/full")),
        *((pattern, _grow) for pattern in ("checkpoint", "config/topics.json", "config/reputShutdown.json", "lock")),
        *((pattern, _grow_all) for pattern in ("commitlog/*", "batchconsumequeue/*/*/*", "index/*")),
        *(("config/topics.json", _text(content)) for content in (b"[" * DEEP, b"1e999")),
        pytest.param("config/topics.json", _text(LAUGHS), marks=pytest.mark.slow),
        *(("config/reputShutdown.json", _text(content)) for content in (b"[" * DEEP, b'{"commitLogEnd":1e999}', b"[]")),
        *((f"config/{name}", _text(b"[" * DEEP)) for name in ("reputSinks.json", "reputDispatch.json")),
        *((f"config/{name}", _text(b"[[]]")) for name in ("reputSinks.json", "reputDispatch.json")),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_whatever_lies_there_nobody_hangs_dies_or_takes_all_memory(
    tmp_path: Path, pattern: str, deed: Callable[[Path], None]
) -> None:
    source = sample(with_crc=False, closed=True)
    path = Path(shutil.copytree(source.path, tmp_path / "store"))
    deed(sorted(path.glob(pattern))[-1] if "*" in pattern else path / pattern)
    assert look_at(path, source, pattern).total() == 6


@sampled(4)
@pytest.mark.parametrize("way", [set_many, set_index, set_value])
@pytest.mark.parametrize("seed", range(4))
def test_many_odd_numbers_at_once_do_nobody_harm(
    tmp_path: Path, way: Callable[[Path, random.Random], str], seed: int
) -> None:
    source = sample(with_crc=bool(seed % 2), closed=True)
    path = Path(shutil.copytree(source.path, tmp_path / "store"))
    assert look_at(path, source, way(path, random.Random(seed))).total() == 6


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (lambda: (faulthandler.disable(), os.kill(os.getpid(), 11)), "killed by SIGSEGV"),  # no trace among the dots
        (lambda: os.kill(os.getpid(), 14), "did not end within 30 s"),
        (lambda: bytes(4 << 30), "MemoryError"),
    ],
)
def test_a_process_that_dies_hangs_or_takes_all_memory_is_told(deed: Callable[[], object], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        in_child(deed)  # type: ignore[arg-type]
