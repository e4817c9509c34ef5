"""Commits of an export: the batches of the log that are in the lake, with their files, each exactly once.

One file, which appears atomically, decides a commit: `_reput/commits/<number>`. Before it, staged files do not count.
After it, the staged files get their names, and a start after a kill completes this. So a reader of the folders sees
only whole files, and none of them twice; while a commit is being published, a reader may see some of its files and not
yet others. A reader of the Delta table sees all of it or nothing: the table's own commit comes last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reput.errors import CorruptMetadataError, StoreError
from reput.files import FileLayer
from reput.formats.own_json import decode_json
from reput.jobs.job_folder import JobFolder
from reput.jobs.lake.files import LakeFile
from reput.log.positions import LastRecord, LogPosition
from reput.log.scan import Damage

_NUMBER_DIGITS = 20
_STAGING = "staging-"


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """A batch of the log that is in the lake.

    Attributes:
        number: from 0 on.
        begin: commit log offset of its begin: the end of the commit before, or of a range that was lost after it.
        end: position at which the next commit begins.
        lake_files: files of its rows.
        damages: damage that was passed over.
    """

    number: int
    begin: int
    end: LogPosition
    lake_files: tuple[LakeFile, ...]
    damages: tuple[Damage, ...] = ()

    @property
    def newest_ms(self) -> int | None:
        """Store time of the last record, in ms since 1970."""
        return None if self.end.last is None else self.end.last.store_timestamp

    def encode(self) -> bytes:
        """Bytes of the commit's file."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1).encode()


def decode_commit(data: bytes, path: str) -> LakeCommit:
    """Decode the file of a commit; raises CorruptMetadataError where it is none."""
    try:
        content: dict[str, Any] = decode_json(data)
        last = content["end"]["last"]
        end = LogPosition(content["end"]["offset"], None if last is None else LastRecord(**last))
        lake_files = tuple(LakeFile(**one) for one in content["lake_files"])
        damages = tuple(Damage(*one) for one in content.get("damages", ()))
        return LakeCommit(content["number"], content["begin"], end, lake_files, damages)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptMetadataError(
            path,
            getattr(error, "pos", 0),
            f"not what an export writes ({error!r}); it says which range of the log is exported: restore it from a "
            "copy, or export to another folder",
        ) from error


class LakeCommits:
    """Commits in one output folder. The caller holds the folder's lock.

    Args:
        folder: the output.
        publish: called for each commit when its files have their names; after a kill perhaps once more.
    """

    def __init__(self, folder: JobFolder, files: FileLayer, publish: Callable[[LakeCommit], None]) -> None:
        self._output = folder.path
        self._state = folder.state_folder()
        self._commits = folder.state_folder("commits")
        self._files = files
        self._publish = publish
        self.last = self._read_last()

    def recover(self) -> None:
        """Publish a commit that was decided before a kill, and remove staged files of undecided commits."""
        if self.last is not None and self._files.exists(self._staging(self.last.number)):
            self._files.sync_directory(self._commits)  # the killed process has not, perhaps
            self._name_files(self.last, again=True)
        for entry in self._files.list_directory(self._state):
            if entry.name.startswith(_STAGING):
                self._files.remove_tree(os.path.join(self._state, entry.name))

    def stage(self) -> str:
        """Make an empty folder for the files of the next commit."""
        folder = self._staging(self._next_number)
        if self._files.exists(folder):
            self._files.remove_tree(folder)
        self._files.make_directories(folder)
        return folder

    def commit(
        self, begin: int, end: LogPosition, lake_files: Sequence[LakeFile], damages: Sequence[Damage]
    ) -> LakeCommit:
        """Commit the staged files: when this returns, they are in the lake, durably."""
        commit = LakeCommit(self._next_number, begin, end, tuple(lake_files), tuple(damages))
        self._files.sync_directory(self._staging(commit.number))
        self._files.write_atomically(self._path(commit.number), commit.encode())
        self.last = commit
        self._name_files(commit)
        return commit

    @property
    def _next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1

    def _name_files(self, commit: LakeCommit, *, again: bool = False) -> None:
        """Give the staged files their names, and publish them.

        Args:
            again: whether an earlier process may have begun with it. It may have been killed between a name and its
                sync, so the names of all folders and files are synced.
        """
        staging = self._staging(commit.number)
        names, folders = [], set[str]()
        for one in commit.lake_files:
            staged, path = os.path.join(staging, one.name), os.path.join(self._output, one.path)
            if self._files.exists(staged):
                names.append((staged, path))
                folders.update(self._files.add_directories(os.path.dirname(path)))
            elif not self._files.exists(path):
                raise StoreError(
                    f"{path}: it was exported, and is missing before commit {commit.number} was complete; so is "
                    f"{staged}. It was removed: export to another folder"
                )
            if again:
                folders.update(self._folders(one))
        for folder in sorted(folders):
            self._files.sync_directory(folder)
        self._files.rename_files(names)
        self._publish(commit)
        self._files.remove_tree(staging)

    def _folders(self, one: LakeFile) -> list[str]:
        """The folder of a file, and those above it up to the output."""
        names = one.path.split("/")[:-1]
        return [os.path.join(self._output, *names[:count]) for count in range(len(names) + 1)]

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
