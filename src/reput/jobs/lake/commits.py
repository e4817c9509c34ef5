"""Commits of an export: the batches of the log that are in the lake, with their files, each exactly once.

One file, which appears atomically, decides a commit: `_reput/commits/<number>`. Before it, staged files do not count.
After it, the staged files get their names, and a start after a kill completes this. So a reader of the folders sees
only whole files, and none of them twice; while a commit is being published, a reader may see some of its files and not
yet others. A reader of the Delta table sees all of it or nothing: the table's own commit comes last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from reput.errors import CorruptMetadataError, StoreError
from reput.files import FileLayer
from reput.formats.own_json import decode_json
from reput.jobs.job_folder import JobFolder
from reput.jobs.lake.files import Kind, LakeFile
from reput.jobs.lake.last_commits import LastCommits
from reput.jobs.lake.table_left_out import TableLeftOutError
from reput.log.damages import NO_DAMAGES, Damage, Damages
from reput.log.resume_points import LastRecord, ResumePoint

_NUMBER_DIGITS = 20
_STAGING = "staging-"
#: Commits that are kept: as many, and of as many bytes, but always the last one.
_KEPT_COMMITS, _KEPT_BYTES = 1000, 256 << 20
#: Commits and files after which the last commits of all tables are written: it costs a part of what the files cost.
_COUNTED_COMMITS, _COUNTED_FILES = 100, 100_000
#: Tables of the last commit that a start looks at, though nobody was killed: each costs a millisecond or two.
_CHECKED_TABLES = 100


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """A batch of the log that is in the lake.

    Attributes:
        number: from 0 on.
        begin: commit log offset of its begin: the end of the commit before, or of a range that was lost after it.
        end: point at which the next commit begins.
        lake_files: files of its rows.
        damages: damage that was passed over.
    """

    number: int
    begin: int
    end: ResumePoint
    lake_files: tuple[LakeFile, ...]
    damages: Damages = NO_DAMAGES

    @property
    def newest_ms(self) -> int | None:
        """Store time of the last record, in ms since 1970."""
        return None if self.end.last is None else self.end.last.store_timestamp

    def encode(self) -> bytes:
        """Bytes of the commit's file: JSON with a line for each file."""
        damages = {
            "damages": self.damages.told, "damage_count": self.damages.count, "damaged_bytes": self.damages.size
        }  # fmt: skip
        head = json.dumps(asdict(replace(self, lake_files=())) | damages, ensure_ascii=False)
        names = [field.name for field in fields(LakeFile)]
        rows = ({name: getattr(one, name) for name in names} for one in self.lake_files)
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        return head.replace('"lake_files": []', f'"lake_files": [\n{lines}\n]', 1).encode()


#: (folder of a table, number of its last commit) -> what the table is to get, oldest first, each with its files alone.
Lacks = Callable[[str, int], list[LakeCommit]]


def decode_commit(data: bytes, path: str) -> LakeCommit:
    """Decode the file of a commit; raises CorruptMetadataError if it is none."""
    try:
        content: dict[str, Any] = decode_json(data)
        last = content["end"]["last"]
        end = ResumePoint(content["end"]["offset"], None if last is None else LastRecord(**last))
        lake_files = tuple(LakeFile(**one) for one in content["lake_files"])
        damages = NO_DAMAGES.followed_by([Damage(*one) for one in content.get("damages", ())])
        if "damage_count" in content:
            damages = replace(damages, count=content["damage_count"], size=content["damaged_bytes"])
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

    The last thousand are kept, if they are not larger than a quarter of a GiB: of them a table gets what it lacks.

    Args:
        folder: the output.
        publish: called for each commit when its files have their names, with the tables that have files of it, and
            `lacks`; after a kill, and at a start, perhaps once more.
        skip_gone: what a table that lacks commits gets if these or their files are not kept any more: what is there
            of them; False: nothing, TableLeftOutError.

    Attributes:
        last: the last commit; without its files once they are published.
        tables: kind and topic of the tables of the commit that was the last one at the start, by folder; of very many,
            one.
        losses: what tables have gone on without, by folder.
    """

    def __init__(
        self, folder: JobFolder, files: FileLayer, publish: Callable[[Iterable[str], Lacks], None], *, skip_gone: bool
    ) -> None:
        self._output = folder.path
        self._state = folder.state_folder()
        self._commits = folder.state_folder("commits")
        self._files = files
        self._publish_files = publish
        self._skip_gone = skip_gone
        self.losses: dict[str, str] = {}
        numbers = self._numbers()
        self.last = self._read(numbers[-1]) if numbers else None
        lake_files = () if self.last is None else self.last.lake_files
        tables: dict[str, tuple[Kind, str]] = {one.table: (one.kind, one.topic) for one in lake_files}
        self._are_many = len(tables) > _CHECKED_TABLES
        self.tables = dict(list(tables.items())[:1]) if self._are_many else tables
        self._last_commits = LastCommits(self._state, files)
        if numbers and self._last_commits.number + 1 < numbers[0]:
            raise CorruptMetadataError(
                self._path(self._last_commits.number + 1), 0, "it is missing, and nothing says which tables have files "
                "of it; restore it from a copy, or export to another folder",
            )  # fmt: skip
        for number in numbers[:-1]:
            if number > self._last_commits.number:
                self._last_commits.add(number, self._read(number).lake_files)

    def recover(self) -> None:
        """Complete a commit that was decided before a kill, and remove staged files of undecided commits.

        The tables of the last commit get what they lack, as they were put back from an older copy; if they are very
        many, each gets it with its next files.
        """
        if self.last is not None:
            is_whole = not self._files.exists(self._staging(self.last.number))
            if not is_whole:
                self._files.sync_directory(self._commits)  # the killed process has not, perhaps
                self._name_files(self.last, again=True)
            if is_whole and self._are_many:
                self._count(self.last)
            else:
                self._publish(self.last, again=True)
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

    def commit(self, begin: int, end: ResumePoint, lake_files: Sequence[LakeFile], damages: Damages) -> LakeCommit:
        """Commit the staged files: when this returns, they are in the lake, durably.

        Raises StoreError, and commits nothing, if a name that a file would get is another file's.
        """
        number = self._next_number
        named = tuple(replace(one, commit=number) for one in lake_files)
        for one in named:
            if self._files.exists(path := os.path.join(self._output, one.path)):
                raise StoreError(
                    f"{path}: commit {number} was to give a file this name, and there is one: {self._state} is older "
                    "than the files, as one that was put back from a copy; put the newer one back, or export to "
                    "another folder. Nothing of this batch is exported"
                )
        commit = LakeCommit(number, begin, end, named, damages)
        self._files.sync_directory(self._staging(number))
        self._files.write_atomically(self._path(number), commit.encode())
        self.last = commit
        self._name_files(commit)
        self._publish(commit)
        self._files.remove_tree(self._staging(number))
        return commit

    @property
    def _next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1

    def _name_files(self, commit: LakeCommit, *, again: bool = False) -> None:
        """Give the staged files their names.

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
        self._files.sync_directories(sorted(folders))
        self._files.rename_files(names)

    def _folders(self, one: LakeFile) -> list[str]:
        """The folder of a file, and those above it up to the output."""
        names = one.path.split("/")[:-1]
        return [os.path.join(self._output, *names[:count]) for count in range(len(names) + 1)]

    def _publish(self, commit: LakeCommit, *, again: bool = False) -> None:
        """Add a commit to its tables, and let go what is kept of earlier ones."""
        by_table: dict[str, list[LakeFile]] = {}
        for one in commit.lake_files:
            by_table.setdefault(one.table, []).append(one)

        def lacks(table: str, number: int) -> list[LakeCommit]:
            if number > commit.number or (number == commit.number and not again):
                raise StoreError(
                    f"{os.path.join(self._output, table)}: the table has commit {number} of the export, and the next "
                    f"one is {commit.number}: {self._state} was put back from a copy that is older than the table; put "
                    "the newer one back, or export to another folder"
                )
            if number == commit.number:
                return []
            last = replace(commit, lake_files=tuple(by_table[table]))
            missed = list(self._missed(table, number, commit.number))
            if again and (gone := self._gone(last)):  # its files had names; perhaps they have gone with the table
                self._pass_over(table, number, commit.number, gone)
                return missed
            return [*missed, last]

        self._publish_files(sorted(by_table), lacks)
        self._count(commit)

    def _count(self, commit: LakeCommit) -> None:
        """Let go what is kept of a commit that the tables have, and of earlier ones."""
        self._last_commits.add(commit.number, commit.lake_files)
        since = commit.number - self._last_commits.number
        if since >= _COUNTED_COMMITS or self._last_commits.files_since >= _COUNTED_FILES:
            self._last_commits.write(commit.number)
            self._prune()
        self.last = replace(commit, lake_files=())

    def _missed(self, table: str, number: int, end: int) -> Iterator[LakeCommit]:
        """Commits after a number and before another one, each with its files of a table, which should have them."""
        last = min(self._last_commits.of(table), end - 1)
        for missed in range(number + 1, last + 1):
            if self._files.exists(gone := self._path(missed)):
                commit = self._read(missed)
                own = replace(commit, lake_files=tuple(one for one in commit.lake_files if one.table == table))
                gone = self._gone(own)
            if gone:
                self._pass_over(table, number, last, gone)
            elif own.lake_files:
                yield own

    def check_new(self, table: str) -> None:
        """Raise TableLeftOutError if a table that is not there had files that are not kept any more."""
        for _ in self._missed(table, -1, self._next_number):
            pass

    def _gone(self, commit: LakeCommit) -> str:
        """The first file of a commit that is not there; empty for none."""
        paths = (os.path.join(self._output, one.path) for one in commit.lake_files)
        return next((path for path in paths if not self._files.exists(path)), "")

    def _pass_over(self, table: str, number: int, last: int, gone: str) -> None:
        """Raise TableLeftOutError, or note what the table lacks."""
        reason = (
            f"{os.path.join(self._output, table)}: the table lacks commits of the export after {number}, up to "
            f"{last}, and {gone} is not kept any more: the table was removed, made anew, or put back from a "
            "copy, it or its catalog"
        )
        if not self._skip_gone:
            raise TableLeftOutError(
                f"{reason}. The rows are in files below {self._output}, and the table does not get them; the other "
                "tables go on. Put the newer one back; or give --allow-data-loss (fail_on_data_loss=False), and it "
                "gets what is kept, and goes on from there"
            )
        self.losses[table] = f"{reason}; it goes on without"

    def _prune(self) -> None:
        """Remove the oldest commits; those that are kept are few."""
        entries = [entry for entry in self._files.list_directory(self._commits) if entry.name.isdigit()]
        size = 0
        for count, entry in enumerate(reversed(entries)):
            size += entry.size
            if count and (count >= _KEPT_COMMITS or size > _KEPT_BYTES):
                self._files.unlink(os.path.join(self._commits, entry.name))

    def _numbers(self) -> list[int]:
        return [int(entry.name) for entry in self._files.list_directory(self._commits) if entry.name.isdigit()]

    def _read(self, number: int) -> LakeCommit:
        path = self._path(number)
        return decode_commit(self._files.read_bytes(path), path)

    def _path(self, number: int) -> str:
        return os.path.join(self._commits, f"{number:0{_NUMBER_DIGITS}d}")

    def _staging(self, number: int) -> str:
        return os.path.join(self._state, f"{_STAGING}{number}")
