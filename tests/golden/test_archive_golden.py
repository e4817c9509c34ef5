"""Log files that RocketMQ wrote come back of an archive byte for byte, also those that are not sealed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.archives import there_and_back

CORPORA = Path(__file__).parent
LOG_FILES = sorted(path for path in CORPORA.rglob("commitlog*/*") if path.name.isdigit())


def name_of(path: Path) -> str:
    return "-".join(path.relative_to(CORPORA).parts)


@pytest.mark.parametrize("path", LOG_FILES, ids=name_of)
def test_a_log_file_of_apache_comes_back(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    archived = there_and_back(data, int(path.name), tmp_path)
    assert archived.messages or not any(data[4:12])


def test_there_are_log_files() -> None:
    assert len(LOG_FILES) > 20
