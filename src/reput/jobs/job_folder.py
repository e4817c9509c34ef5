"""`JobFolder`: a folder that belongs to one job, and that the same job goes on with after it was killed.

What the job keeps for itself lies below `_reput/`, a name that Spark, Hive and Parquet readers take for hidden:
`job.json` says whose the folder is, `lock` is held by the process that works there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

from reput.errors import ConfigError, StoreFormatError, StoreLockedError
from reput.files import DISK, FileLayer

#: Of everything that is not the job's output.
STATE = "_reput"
#: In there: whose the folder is.
JOB_FILE = "job.json"
_LOCK = "lock"

Option = str | int | float | bool | None | list[str]
"""What an option of a job may be, as JSON has it."""


class JobFolder:
    """A folder that this process works in, from its creation to `close` or `finish`.

    The folder is made, or taken where it is empty. One that the same job left unfinished is gone on with, if the job
    has the same options: half of an output by the old ones and half by the new would be neither.

    Args:
        path: the folder; the ones above it are made, too.
        job: the name of the job, as on the command line.
        options: what the output depends on, in the user's words. The version of reput is added.

    Raises:
        StoreFormatError: the folder is no folder, belongs to another job, or has files that no job is known to have
            written. Nothing is changed then, nor by the errors below.
        ConfigError: the same job, with other options.
        StoreLockedError: another process works there.
    """

    def __init__(
        self, path: str | os.PathLike[str], job: str, options: Mapping[str, Option], *, files: FileLayer = DISK
    ) -> None:
        self.path = os.path.abspath(path)
        self._files = files
        self._state = os.path.join(self.path, STATE)
        wanted = {"job": job, "reput": version("reput"), **options}
        self._check(wanted)  # before a lock file is made in a stranger's folder
        files.make_directories(self._state)
        try:
            self._lock = files.lock(os.path.join(self._state, _LOCK))
        except StoreLockedError:
            raise StoreLockedError(
                f"{self.path}: another process works in this folder; wait until it ends, or give another folder"
            ) from None
        try:
            self.resumed = self._check(wanted)
            if not self.resumed:
                self._empty()  # a kill in the middle of `finish` may have left outcomes of another job
                text = json.dumps(wanted, indent=1, ensure_ascii=False)
                files.write_atomically(os.path.join(self._state, JOB_FILE), text.encode())
        except BaseException:
            self._lock.release()
            raise

    def state_folder(self, *names: str) -> str:
        """The path of a folder below `_reput/`, which is made if it is missing."""
        folder = os.path.join(self._state, *names)
        self._files.make_directories(folder)
        return folder

    def finish(self) -> None:
        """The job is done: remove what it kept for itself, and leave the output alone."""
        self._files.unlink(os.path.join(self._state, JOB_FILE))  # from here on what is left is not gone on with
        self._empty()
        self.close()  # who works here from now on finds nothing that is still to be removed
        self._files.remove_tree(self._state)

    def _empty(self) -> None:
        """Remove everything below `_reput/` but the lock, which is held."""
        for entry in self._files.list_directory(self._state):
            path = os.path.join(self._state, entry.name)
            if entry.is_directory:
                self._files.remove_tree(path)
            elif entry.name != _LOCK:
                self._files.unlink(path)

    def close(self) -> None:
        """Let others work in the folder; what the job kept stays. Closing again does nothing."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, wanted: Mapping[str, Option]) -> bool:
        """Whether the folder has this job already; False where it may be taken for it."""
        if not self._files.exists(self.path):
            return False
        if not self._files.is_directory(self.path):
            raise StoreFormatError(f"{self.path}: a file, and the output is a folder; give another name")
        path = os.path.join(self._state, JOB_FILE)
        if not self._files.exists(path):
            for entry in self._files.list_directory(self.path):
                if entry.name != STATE:
                    raise StoreFormatError(
                        f"{self.path}: the folder is not empty (there is {entry.name}), and no unfinished "
                        f"{wanted['job']} left it; give an empty folder or a new name"
                    )
            return False
        found = _read(path, self._files.read_bytes(path))
        if found.get("job") != wanted["job"]:
            raise StoreFormatError(
                f"{self.path}: belongs to the job {found.get('job')} ({path}), and this is {wanted['job']}; "
                "give another folder"
            )
        names = {**found, **wanted}
        changed = [
            f"{name} was {json.dumps(found.get(name))} and is {json.dumps(wanted.get(name))}"
            for name in names
            if found.get(name) != wanted.get(name)
        ]
        if changed:
            raise ConfigError(
                f"{self.path}: begun with other options: {'; '.join(changed)}; go on with the old ones, or give "
                "another folder"
            )
        return True


def _read(path: str, data: bytes) -> Mapping[str, Any]:
    """The object in a `job.json`."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise StoreFormatError(f"{path}: not the JSON that a job writes ({error}); give another folder") from None
    if not isinstance(found, dict):
        raise StoreFormatError(f"{path}: not the object that a job writes; give another folder")
    return found
