"""`JobFolder`: output folder that belongs to one job. The same job continues there after a kill.

The job's own state lies below `_reput/`, a name that Spark, Hive and Parquet readers take for hidden: `job.json` names
the job and its options, `lock` is held by the process that works in the folder.
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
from reput.formats.own_json import decode_json
from reput.log.object_storage import absolute, check_is_no_url

#: Subfolder of everything that is not the job's output.
STATE = "_reput"
#: File in `STATE` that names the job and its options.
JOB_FILE = "job.json"
_LOCK = "lock"

_held: list[str] = []

Option = str | int | float | bool | None | list[str]
"""Value of a job's option, as JSON has it."""


class JobFolder:
    """Output folder that this process holds locked until `close` or `finish`.

    A missing folder is made; an empty one is taken. A folder that the same job left unfinished is continued, if the job
    has the same options: an output made half by old and half by new options would be wrong.

    Args:
        path: the folder; missing parents are made, too.
        job: the name of the job, as on the command line.
        options: the options that the output depends on, in the user's words.
        layout: what a folder has that is gone on with for years, whichever reput began it; None: a folder of one job,
            which the reput that began it ends.

    Raises:
        StoreFormatError: `path` is no folder, belongs to another job, has files that no known job has written, or
            its state is another user's, or may be written by others: some of it are pickles.
            None of these errors changes anything.
        ConfigError: the folder belongs to the same job with other options; or `path` is a URL.
        StoreLockedError: another process works in the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        job: str,
        options: Mapping[str, Option],
        *,
        layout: str | None = None,
        files: FileLayer = DISK,
    ) -> None:
        check_is_no_url(path)
        self.path = absolute(path)
        self._files = files
        self._state = os.path.join(self.path, STATE)
        wanted = {"job": job, "reput": layout or version("reput"), **options}
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
                files.keep_others_out(self._state)
                self._empty()  # a kill during `finish` may have left outcomes of another job
                text = json.dumps(wanted, indent=1, ensure_ascii=False)
                files.write_atomically(os.path.join(self._state, JOB_FILE), text.encode())
        except BaseException:
            self._lock.release()
            raise
        _held.append(self.path)

    def state_folder(self, *names: str) -> str:
        """Path of a folder below `_reput/`. A missing folder is made."""
        folder = os.path.join(self._state, *names)
        if not self._files.exists(folder):
            self._files.make_directories(folder)
            self._files.keep_others_out(folder)
        return folder

    def finish(self) -> None:
        """End the job: remove its own state, and leave the output."""
        self._files.unlink(os.path.join(self._state, JOB_FILE))  # from here on no start continues the rest
        self._empty()
        self.close()  # the next process that works here must find nothing that is still to be removed
        self._files.remove_tree(self._state)

    def _empty(self) -> None:
        """Remove everything below `_reput/` but the lock file, which is held."""
        for entry in self._files.list_directory(self._state):
            path = os.path.join(self._state, entry.name)
            if entry.is_directory:
                self._files.remove_tree(path)
            elif entry.name != _LOCK:
                self._files.unlink(path)

    def close(self) -> None:
        """Release the lock. The job's state stays. Closing again does nothing."""
        if self.path in _held:
            _held.remove(self.path)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, wanted: Mapping[str, Option]) -> bool:
        """Whether the folder has this job already. False: the folder is free. Raises for any other folder."""
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
        if not self._files.is_own(self._state):
            raise StoreFormatError(
                f"{self._state}: state of a job that another user has begun, or that others may write, so it is not "
                "read: what is there may run as you. Give another folder; if nobody else has written there, "
                f"`chmod go-w {self._state}`"
            )
        written = _read(path, self._files.read_bytes(path))
        if written.get("job") != wanted["job"]:
            raise StoreFormatError(
                f"{self.path}: belongs to the job {written.get('job')} ({path}), and this is {wanted['job']}; "
                "give another folder"
            )
        names = [name for name in {**written, **wanted} if written.get(name) != wanted.get(name)]
        if names:
            if len(names) > 1:
                names = [name for name in names if name != "reput"]  # a layout may follow from the options
            changed = [
                f"{name} was {json.dumps(written.get(name))} and is {json.dumps(wanted.get(name))}" for name in names
            ]
            raise ConfigError(
                f"{self.path}: begun with other options: {'; '.join(changed)}; go on with the old ones, or give "
                "another folder"
            )
        return True


def held_paths() -> list[str]:
    """Paths of the folders in which jobs of this process work."""
    return list(_held)


def is_unfinished(path: str) -> bool:
    """Whether a job left this folder unfinished: the same job continues there."""
    return DISK.exists(os.path.join(path, STATE, JOB_FILE))


def _read(path: str, data: bytes) -> Mapping[str, Any]:
    """Parse the JSON object of a `job.json`."""
    try:
        written = decode_json(data)
    except ValueError as error:
        raise StoreFormatError(f"{path}: not the JSON that a job writes ({error}); give another folder") from None
    if not isinstance(written, dict):
        raise StoreFormatError(f"{path}: not the object that a job writes; give another folder")
    return written
