"""What a rebuild builds from which log, fixed at its first start: what a killed one has done must fit the rest.

What tasks of the first phase write is not synced, since all of it is written once more, or synced, by those of the
second; nor is what they return. So it counts only until the machine is started again, and only for the log as it was.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reput.config.dispatch_rules import DispatchRules
from reput.files import DISK
from reput.files.owner import owner_text
from reput.jobs.job_folder import JobFolder
from reput.jobs.rebuild.geometry import Geometry
from reput.jobs.resuming import keep, load
from reput.log.directory import LogFile, StoreDirectory
from reput.log.scan import OnDamage
from reput.log.sink_commits import SinkWatch

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps

_BUILD, _OUTCOMES = "build", "outcomes"
_PLAN, _RESULT, _SWAP = "plan", "result", "swap"


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A rebuild's plan.

    Attributes:
        log_files: the log, and when each of them was last written to (ms).
        log_end: where a batch of a sink begins that a start may take back (`reput.log.sink_commits`); None: there is
            none.
        split_bytes: the log bytes of a task.
        geometry: what is built, and how large its files are.
        index, rules, on_damage: as `rebuild` is told.
        boot: the start of the machine that the job was begun on.
    """

    log_files: tuple[LogFile, ...]
    modified_ms: tuple[int, ...]
    log_end: int | None
    split_bytes: int
    geometry: Geometry
    index: bool
    rules: DispatchRules
    on_damage: OnDamage
    boot: str

    def is_of_same_log(self, other: BuildPlan) -> bool:
        """Whether the log is as it was, as far as its files tell."""
        return (self.log_files, self.modified_ms, self.log_end) == (other.log_files, other.modified_ms, other.log_end)


def plan_build(
    directory: StoreDirectory,
    geometry: Geometry,
    *,
    split_bytes: int,
    index: bool,
    rules: DispatchRules,
    on_damage: OnDamage,
) -> BuildPlan:
    """The plan for a log as it is now."""
    log_files = directory.log_files()
    log_end = SinkWatch(directory.files, directory.path).begin_offset
    times = tuple(DISK.modified_ms(file.path) for file in log_files)
    boot, *_ = owner_text().split()
    return BuildPlan(tuple(log_files), times, log_end, split_bytes, geometry, index, rules, on_damage, boot)


class BuildFolder:
    """Where a rebuild builds, and what it remembers there of a start before.

    Attributes:
        path: of the folder for what is built.
        resumed: whether `settle` has found a plan that can be gone on with.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._state = folder.state_folder()
        self.path = os.path.join(self._state, _BUILD)
        self.resumed = False

    def forget(self) -> None:
        """Begin anew, whatever a start before has done."""
        plan = os.path.join(self.path, _PLAN)
        if DISK.exists(plan):
            DISK.unlink(plan)  # first: from here on nothing of the old one counts
        for path in (self.path, os.path.join(self._state, _OUTCOMES)):
            if DISK.exists(path):
                DISK.remove_tree(path)

    def settle(self, plan: BuildPlan) -> BuildPlan:
        """The plan to follow: that of the killed rebuild if it is of the same log; else this one, and all is anew."""
        kept: BuildPlan | None = self._load(_PLAN)
        bit_maps = plan.geometry.further.bit_maps
        if kept is not None:
            if kept.is_of_same_log(plan) and (kept.boot == plan.boot or self.swap is not None):
                self.resumed = True
                return _with_bit_maps(kept, bit_maps)
            if self.swap is not None:  # the store's own folders do not tell any more
                plan = replace(plan, geometry=_with_bit_maps(kept, bit_maps).geometry)
            self.forget()
        DISK.make_directories(self.path)
        self._keep(_PLAN, _with_bit_maps(plan, None))  # a function, which need not be one that pickles
        return plan

    @property
    def result(self) -> Any:
        """What was kept as the result of the job; None where not all is built, and synced."""
        return self._load(_RESULT)

    @property
    def has_been_named(self) -> bool:
        """Whether what was built is not here any more: it has the name of the output."""
        return self.result is not None and not DISK.exists(self.result.path)

    def keep_result(self, result: object) -> None:
        """All is built, and synced."""
        self._keep(_RESULT, result)

    @property
    def swap(self) -> Any:
        """The swap that has begun, if one has."""
        return self._load(_SWAP)

    def keep_swap(self, swap: object) -> None:
        """From here on the store's own folders are about to change: what says how outlives a power cut."""
        for name in (_PLAN, _RESULT):
            self._keep(name, self._load(name), synced=True)
        self._keep(_SWAP, swap, synced=True)

    def _keep(self, name: str, value: object, *, synced: bool = False) -> None:
        keep(os.path.join(self.path, name), value, synced=synced)

    def _load(self, name: str) -> Any:
        return load(os.path.join(self.path, name))


def _with_bit_maps(plan: BuildPlan, bit_maps: BitMaps | None) -> BuildPlan:
    further = replace(plan.geometry.further, bit_maps=bit_maps)
    return replace(plan, geometry=replace(plan.geometry, further=further))
