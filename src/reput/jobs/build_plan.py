"""What a rebuild builds from which log, fixed at its first start: what a killed one has done must fit the rest.

What tasks of the first phase write is not synced, since all of it is written once more, or synced, by those of the
second. So it counts only until the machine is started again; and only for the log as it was.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
from typing import Any

from reput.config.dispatch_rules import DispatchRules
from reput.files import DISK
from reput.files.owner import owner_text
from reput.jobs.geometry import Geometry
from reput.jobs.job_folder import JobFolder
from reput.log.directory import LogFile

_BUILD, _OUTCOMES = "build", "outcomes"
_PLAN, _RESULT = "plan", "result"


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A rebuild's plan.

    Attributes:
        log_files: the log, and when each of them was last written to (ms).
        split_bytes: the log bytes of a task.
        geometry: what is built, and how large its files are.
        index, rules, skip_damage: as `rebuild` is told.
        boot: the start of the machine that the job was begun on.
    """

    log_files: tuple[LogFile, ...]
    modified_ms: tuple[int, ...]
    split_bytes: int
    geometry: Geometry
    index: bool
    rules: DispatchRules
    skip_damage: bool
    boot: str

    def is_of_same_log(self, other: BuildPlan) -> bool:
        """Whether tasks of the other plan, which has the same options, have written what those of this one would."""
        return (self.log_files, self.modified_ms, self.boot) == (other.log_files, other.modified_ms, other.boot)


def plan_build(
    log_files: list[LogFile],
    geometry: Geometry,
    *,
    split_bytes: int,
    index: bool,
    rules: DispatchRules,
    skip_damage: bool,
) -> BuildPlan:
    """The plan for a log as it is now."""
    times = tuple(DISK.modified_ms(file.path) for file in log_files)
    boot, *_ = owner_text().split()
    return BuildPlan(tuple(log_files), times, split_bytes, geometry, index, rules, skip_damage, boot)


class BuildFolder:
    """Where a rebuild builds, and what it remembers there of a start before.

    Attributes:
        path: of the folder for what is built.
        resumed: whether `settle` has found a plan that can be gone on with.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self.path = folder.state_folder(_BUILD)
        self.resumed = False
        if not folder.resumed:  # a kill in the middle of the end of another one may have left something
            self.forget()

    def forget(self) -> None:
        """Begin anew, whatever a start before has done."""
        plan = os.path.join(self.path, _PLAN)
        if DISK.exists(plan):
            DISK.unlink(plan)  # first: from here on nothing of the old one counts
        for name in (_BUILD, _OUTCOMES):
            DISK.remove_tree(self._folder.state_folder(name))
        self.path = self._folder.state_folder(_BUILD)

    def settle(self, plan: BuildPlan) -> BuildPlan:
        """The plan to follow: that of the killed rebuild if it is of the same log; else this one, and all is anew."""
        kept: BuildPlan | None = self._load(_PLAN)
        if kept is not None and kept.is_of_same_log(plan):
            self.resumed = True
            further = replace(kept.geometry.further, bit_maps=plan.geometry.further.bit_maps)
            return replace(kept, geometry=replace(kept.geometry, further=further))
        self.forget()
        further = replace(plan.geometry.further, bit_maps=None)  # a function, which need not be one that pickles
        self._keep(_PLAN, replace(plan, geometry=replace(plan.geometry, further=further)))
        return plan

    @property
    def result(self) -> Any:
        """What was kept as the result of the job; None where not all is built."""
        return self._load(_RESULT) if self._load(_PLAN) is not None else None

    def keep_result(self, result: object) -> None:
        """All is built, and synced."""
        self._keep(_RESULT, result)

    def _keep(self, name: str, value: object) -> None:
        DISK.write_atomically(os.path.join(self.path, name), pickle.dumps(value))

    def _load(self, name: str) -> Any:
        path = os.path.join(self.path, name)
        return pickle.loads(DISK.read_bytes(path)) if DISK.exists(path) else None
