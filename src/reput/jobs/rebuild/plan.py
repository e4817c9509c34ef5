"""Plan of a rebuild, fixed at its first start: files and outcomes of a killed start must fit the next one's.

Files and outcomes of tasks of the first phase are not synced, since tasks of the second phase write or sync all files.
So they count only until the machine is restarted, and only for an unchanged log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reput.config.dispatch_rules import DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.files import DISK
from reput.files.owner import owner_text
from reput.jobs.job_folder import JobFolder
from reput.jobs.rebuild.options import RebuildOptions
from reput.jobs.rebuild.unit_writer import FurtherUnits
from reput.jobs.resuming import keep, load
from reput.log.directory import LogFile, StoreDirectory
from reput.log.geometry.build_sizes import find_sizes
from reput.log.geometry.file_sizes import BATCH, queue_files
from reput.log.queue_types import QueueTypes, find_queue_types
from reput.log.scan import OnDamage
from reput.log.sink_commits import SinkWatch

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps

_BUILD, _OUTCOMES = "build", "outcomes"
_PLAN, _RESULT, _SWAP = "plan", "result", "swap"


@dataclass(frozen=True, slots=True)
class Geometry:
    """Files that a rebuild makes.

    Attributes:
        config: sizes of files, and delay levels; its other keys mean nothing here.
        types: topics with batch consume queues.
        further: what queues have besides a unit for each message.
        findings: derived files of the store that cannot be right, each with the consequence.
    """

    config: MessageStoreConfig
    types: QueueTypes
    further: FurtherUnits
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Plan of a rebuild.

    Attributes:
        log_files: files of the log.
        modified_ms: time of the last write (ms) of each log file.
        log_end: begin of a sink's batch that a start may take back (`reput.log.sink_commits`); None without such a
            batch.
        split_bytes: log bytes of a task.
        geometry: which files are built, and their sizes.
        index, rules, on_damage: as in `RebuildOptions`.
        boot: identity of the machine's start in which the job was begun.
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
        """Whether the log is unchanged, by sizes and times of its files."""
        return (self.log_files, self.modified_ms, self.log_end) == (other.log_files, other.modified_ms, other.log_end)


def find_geometry(directory: StoreDirectory, options: RebuildOptions) -> Geometry:
    """Find the geometry of a rebuild of this store.

    Raises:
        ConfigError: a value that RocketMQ does not allow.
        StoreFormatError: the store's files do not tell a size.
        CorruptMetadataError: `topics.json` and its backup are damaged.
    """
    config, findings = find_sizes(directory, options.config, index=options.index)
    further = FurtherUnits(
        config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None,
        options.bit_maps,
        multi_dispatch=config.enable_lmq,
        enable_lmq=config.enable_lmq,
        any_topic=options.rules.multi_dispatches_any_topic,
    )
    types = find_queue_types(directory, {queue.topic for queue in queue_files(directory, BATCH)})
    return Geometry(config, types, further, tuple(findings))


def plan_build(directory: StoreDirectory, options: RebuildOptions) -> BuildPlan:
    """Make the plan for a log as it is now; raises as `find_geometry`."""
    geometry = find_geometry(directory, options)
    log_files = directory.log_files()
    log_end = SinkWatch(directory.files, directory.path).begin_offset
    times = tuple(DISK.modified_ms(file.path) for file in log_files)
    boot, *_ = owner_text().split()
    on_damage = OnDamage.SKIP if options.damaged == "skip" else OnDamage.RAISE
    return BuildPlan(
        tuple(log_files), times, log_end, options.split_bytes, geometry, options.index, options.rules, on_damage, boot
    )


class BuildFolder:
    """Folder in which a rebuild builds, with the plan, the result and the swap of an earlier start.

    Attributes:
        path: of the folder for what is built.
        resumed: whether `settle` has found a plan that can be continued.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._state = folder.state_folder()
        self.path = os.path.join(self._state, _BUILD)
        self.resumed = False

    def forget(self) -> None:
        """Remove all that earlier starts have done."""
        plan = os.path.join(self.path, _PLAN)
        if DISK.exists(plan):
            DISK.unlink(plan)  # first: without the plan no file or outcome counts
        for path in (self.path, os.path.join(self._state, _OUTCOMES)):
            if DISK.exists(path):
                DISK.remove_tree(path)

    def settle(self, plan: BuildPlan) -> BuildPlan:
        """Choose the plan: that of a killed rebuild of the same log; else `plan`, and all begins anew."""
        kept: BuildPlan | None = self._load(_PLAN)
        bit_maps = plan.geometry.further.bit_maps
        if kept is not None:
            if kept.is_of_same_log(plan) and (kept.boot == plan.boot or self.swap is not None):
                self.resumed = True
                return _with_bit_maps(kept, bit_maps)
            if self.swap is not None:  # the store's folders were changed: they do not tell the geometry any more
                plan = replace(plan, geometry=_with_bit_maps(kept, bit_maps).geometry)
            self.forget()
        DISK.make_directories(self.path)
        self._keep(_PLAN, _with_bit_maps(plan, None))  # bit maps are a function, which may not be picklable
        return plan

    @property
    def result(self) -> Any:
        """Kept result of the job; None until all is built and synced."""
        return self._load(_RESULT)

    @property
    def has_been_named(self) -> bool:
        """Whether the built folder was renamed to the output: it is not here any more."""
        return self.result is not None and not DISK.exists(self.result.path)

    def keep_result(self, result: object) -> None:
        """Keep the result: all is built and synced."""
        self._keep(_RESULT, result)

    @property
    def swap(self) -> Any:
        """Plan of a swap that has begun; None without one."""
        return self._load(_SWAP)

    def keep_swap(self, swap: object) -> None:
        """Keep the plan of the swap durably, before the store's folders change: it must outlive a power cut."""
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
