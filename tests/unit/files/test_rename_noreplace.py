"""A file gets a name that no other file has: nothing is replaced, whatever the file system can do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from reput.errors import StoreError
from reput.files import DISK


@pytest.fixture(params=["links", "no links"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def refuses(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    if request.param == "no links":
        monkeypatch.setattr(os, "link", refuses)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_file_has_the_new_name_alone(folder: Path) -> None:
    DISK.rename_files([(f"{folder}/a", f"{folder}/new")])
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"new": "a", "b": "b"}


def test_a_file_that_has_the_name_stays(folder: Path) -> None:
    with pytest.raises(StoreError):
        DISK.rename_files([(f"{folder}/a", f"{folder}/b")])
    (folder / "broken").symlink_to("nowhere")
    with pytest.raises(StoreError):
        DISK.rename_files([(f"{folder}/a", f"{folder}/broken")])
    assert (folder / "a").read_text() == "a"
    assert (folder / "b").read_text() == "b"
    assert (folder / "broken").is_symlink()


def test_a_file_that_a_kill_has_left_with_both_names_has_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "new").hardlink_to(tmp_path / "a")
    DISK.rename_files([(f"{tmp_path}/a", f"{tmp_path}/new")])
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_names_of_a_folder_are_told_without_a_look_at_the_files(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert DISK.list_names(str(tmp_path)) == ["a", "b", "link"]
    with pytest.raises(StoreError, match="cannot list"):
        DISK.list_names(str(tmp_path / "none"))
