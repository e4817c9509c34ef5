"""The commits of an export: which part of the log is in the lake, file by file; each once, whatever is killed.

A commit is decided by one file that comes to be at once, `_reput/commits/<number>`: before it, what tasks have staged
is nothing; behind it, the staged files get their names, and a start that finds this cut short goes on with it. So a
reader of the folders sees whole files only, and none of them twice; of a commit that is being published he sees a part.
Who must not see that reads the Delta table, whose own commit comes last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reput.errors import CorruptMetadataError, StoreError
from reput.files import FileLayer
from reput.jobs.job_folder import JobFolder
from reput.jobs.lake.files import LakeFile
from reput.log.positions import LastRecord, LogPosition
from reput.log.scan import Damage

_NUMBER_DIGITS = 20
_STAGING = "staging-"


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """A part of the log that is in the lake.

    Attributes:
        number: from 0 on.
        begin: commit log offset of its begin: the end of the commit before, or behind what was lost in between.
        end: where the next one goes on.
        lake_files: of its rows.
        damages: what was passed over.
    """

    number: int
    begin: int
    end: LogPosition
    lake_files: tuple[LakeFile, ...]
    damages: tuple[Damage, ...] = ()

    def encode(self) -> bytes:
        """The file's bytes."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1).encode()


def decode_commit(data: bytes, path: str) -> LakeCommit:
    """What a file says; raises CorruptMetadataError where it is none of a commit."""
    try:
        content: dict[str, Any] = json.loads(data)
        last = content["end"]["last"]
        end = LogPosition(content["end"]["offset"], None if last is None else LastRecord(**last))
        lake_files = tuple(LakeFile(**one) for one in content["lake_files"])
        damages = tuple(Damage(*one) for one in content.get("damages", ()))
        return LakeCommit(content["number"], content["begin"], end, lake_files, damages)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptMetadataError(
            path,
            getattr(error, "pos", 0),
            f"not what an export writes ({error!r}); it says what of the log is exported: restore it from a copy, or "
            "export to another folder",
        ) from error


class LakeCommits:
    """The commits in one output folder, whose lock the caller has.

    Args:
        folder: the output.
        publish: called for each commit when its files have their names, perhaps again after a kill.
    """

    def __init__(self, folder: JobFolder, files: FileLayer, publish: Callable[[LakeCommit], None]) -> None:
        self._output = folder.path
        self._state = folder.state_folder()
        self._commits = folder.state_folder("commits")
        self._files = files
        self._publish = publish
        self.last = self._read_last()

    def recover(self) -> None:
        """Publish what was decided when its process was killed, and remove what was staged for nothing."""
        if self.last is not None and self._files.exists(self._staging(self.last.number)):
            self._name_files(self.last)
        for entry in self._files.list_directory(self._state):
            if entry.name.startswith(_STAGING):
                self._files.remove_tree(os.path.join(self._state, entry.name))

    def stage(self) -> str:
        """An empty folder for the files of the next commit."""
        folder = self._staging(self._next_number)
        if self._files.exists(folder):
            self._files.remove_tree(folder)
        self._files.make_directories(folder)
        return folder

    def commit(
        self, begin: int, end: LogPosition, lake_files: Sequence[LakeFile], damages: Sequence[Damage]
    ) -> LakeCommit:
        """Take the staged files into the lake; when this returns, they are there for good."""
        commit = LakeCommit(self._next_number, begin, end, tuple(lake_files), tuple(damages))
        self._files.sync_directory(self._staging(commit.number))
        self._files.write_atomically(self._path(commit.number), commit.encode())
        self.last = commit
        self._name_files(commit)
        return commit

    @property
    def _next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1

    def _name_files(self, commit: LakeCommit) -> None:
        staging = self._staging(commit.number)
        names, folders = [], set[str]()
        for one in commit.lake_files:
            staged, path = os.path.join(staging, one.name), os.path.join(self._output, one.path)
            if self._files.exists(staged):
                names.append((staged, path))
                folders.update(self._files.add_directories(os.path.dirname(path)))
            elif not self._files.exists(path):
                raise StoreError(
                    f"{path}: it was exported, and is gone before commit {commit.number} was complete; so is "
                    f"{staged}. Somebody has removed it: export to another folder"
                )
        for folder in sorted(folders):
            self._files.sync_directory(folder)
        self._files.rename_files(names)
        self._publish(commit)
        self._files.remove_tree(staging)

    def _read_last(self) -> LakeCommit | None:
        names = [entry.name for entry in self._files.list_directory(self._commits) if entry.name.isdigit()]
        if not names:
            return None
        path = os.path.join(self._commits, max(names))
        return decode_commit(self._files.read_bytes(path), path)

    def _path(self, number: int) -> str:
        return os.path.join(self._commits, f"{number:0{_NUMBER_DIGITS}d}")

    def _staging(self, number: int) -> str:
        return os.path.join(self._state, f"{_STAGING}{number}")
