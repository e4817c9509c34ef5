"""Inferred schemas are kept by what a commit changes, whole now and then; a kill at any moment loses none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.jobs.lake import inferred_schemas
from reput.jobs.lake.inferred_schemas import InferredSchemas
from tests.support.lake import put_topics, run


class _Killed(BaseException):
    pass


class _Dying(FileLayer):
    """A disk whose process is killed before its operation `left`, counted from 0."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        if self.left == 0:
            raise _Killed
        self.left -= 1

    def rename(self, *arguments: Any) -> None:
        self._step()
        super().rename(*arguments)

    def unlink(self, *arguments: Any) -> None:
        self._step()
        super().unlink(*arguments)

    def make_directories(self, *arguments: Any) -> None:
        self._step()
        super().make_directories(*arguments)


def change(number: int) -> dict[str, str]:
    """Two topics, of which one is in each change."""
    return {"grows": f"id bigint, f{number} string", f"topic-{number}": "id bigint"}


def test_a_kill_at_any_moment_leaves_each_schema_as_it_was_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inferred_schemas, "_MOST_CHANGES", 3)
    kills = 0
    for left in range(60):
        folder = tmp_path / str(left)
        folder.mkdir()
        disk, kept = _Dying(left), dict[str, str]()
        for number in range(14):
            try:
                InferredSchemas(str(folder), disk).keep(change(number))
            except _Killed:
                kills += 1
                disk.left = -1
                found = InferredSchemas(str(folder), disk)
                assert found.texts in (kept, kept | change(number))
                found.keep(change(number))
            kept |= change(number)
            assert InferredSchemas(str(folder), FileLayer()).texts == kept
    assert kills > 20


def test_a_commit_keeps_the_schemas_of_its_topics_alone(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {f"topic-{number}": [b'{"id": 1}'] for number in range(50)})
    run(store, output, decode="json", format="delta")
    whole = (output / "_reput/schemas").read_bytes()
    put_topics(store, {"late": [b'{"id": 1}'], "topic-7": [b'{"id": 2, "new": "x"}']})
    run(store, output, decode="json", format="delta", new_fields="add")
    assert (output / "_reput/schemas").read_bytes() == whole
    changes = sorted((output / "_reput/schema-changes").iterdir())
    assert [json.loads(path.read_text()) for path in changes] == [
        {"late": "id bigint"}, {"topic-7": "id bigint, new string"}
    ]  # fmt: skip
    put_topics(store, {"late": [b'{"id": "x"}'], "topic-7": [b'{"id": 3, "new": "y"}']})
    result = run(store, output, decode="json", format="delta")
    assert (result.messages, result.rejected) == (1, 1)
    table = DeltaTable(output / "messages/topic-7").to_pyarrow_table().sort_by("commit_log_offset")
    assert table["body"].to_pylist() == [
        {"id": 1, "new": None}, {"id": 2, "new": "x"}, {"id": 3, "new": "y"}
    ]  # fmt: skip


def test_a_folder_without_changes_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "schemas").write_text('{\n "orders": "id bigint",\n "notes": ""\n}')
    kept = InferredSchemas(str(tmp_path), FileLayer())
    assert kept.texts == {"orders": "id bigint"}
    kept.keep({"users": "id string"})
    assert InferredSchemas(str(tmp_path), FileLayer()).texts == {"orders": "id bigint", "users": "id string"}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "schemas").write_text('{"orders')
    with pytest.raises(CorruptMetadataError, match=r"schemas: .*it has the schemas of topics"):
        InferredSchemas(str(tmp_path), FileLayer())
