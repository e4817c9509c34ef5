"""What an audit calls clean opens, and answers as before: for each of many damages, one at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.planted_answers import answers
from tests.support.plants import PLANTS, planted_store


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_store(tmp_path_factory.mktemp("planted") / "store")


@pytest.fixture(scope="module")
def answers_of_base(base: Path) -> dict[str, Any]:
    return answers(base, writable=False)


#: Together; `make campaign` draws others.
_SEVERAL = (("index: time", "commitlog: first file deleted"),)


@pytest.mark.parametrize("names", [*((name,) for name in PLANTS), *_SEVERAL], ids=" and ".join)
def test_what_is_clean_opens_and_answers_as_before(
    names: tuple[str, ...], base: Path, answers_of_base: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    for name in names:
        PLANTS[name](path)
    if not audit(path, runner=LocalRunner(1)).is_clean:
        return
    assert answers(path, writable=False) == answers_of_base
    assert answers(path, writable=True) == answers_of_base
