"""`rebuild`: build consume queues and index files from the commit log alone, byte for byte as live dispatch does.

The plan is a list of splits. A task for each split writes units straight to their slots, and spills its keys. The merge
proves that the splits, and the slots of each queue, join. Then there is a task for each index file, and for each group
of queues to be synced.

The units of batch consume queues have no slots: they are spilled, and written by a task for each queue.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from reput.errors import ConfigError, CorruptRecordError, StoreError, StoreFormatError, StoreSyncError
from reput.files import DISK
from reput.jobs.arguments import check_arguments, chosen_options
from reput.jobs.job_folder import JOB_FILE, STATE, JobFolder, Option
from reput.jobs.rebuild.build import Build, Built, RebuildResult
from reput.jobs.rebuild.emptied_queues import keep_emptied_queues
from reput.jobs.rebuild.options import RebuildOptions
from reput.jobs.rebuild.plan import BuildFolder, BuildPlan, plan_build
from reput.jobs.rebuild.reachable_messages import check_reachable
from reput.jobs.rebuild.swap import check_folders, locked, plan_swap
from reput.jobs.resuming import ResumingRunner
from reput.jobs.runner import Runner
from reput.log.directory import StoreDirectory, check_replaceable
from reput.log.geometry.file_sizes import BATCH, SIMPLE
from reput.log.object_storage import absolute
from reput.progress import Progress

__all__ = ["RebuildOptions", "RebuildResult", "rebuild"]

_UNFINISHED = ".unfinished"
#: Folder in the store for a rebuild in place; it is removed at the end.
_IN_PLACE = "rebuild" + _UNFINISHED


def rebuild(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    *,
    runner: Runner,
    options: RebuildOptions | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> RebuildResult:
    """Build `consumequeue/` and `index/` in the new directory `output`, synced. The store is not changed.

    With `output` None they replace the folders of the store, which no process may have open. They are built in
    `rebuild.unfinished/` of the store, then swapped (`reput.jobs.rebuild.swap`), and the old folders are removed or
    kept. Queues without messages in the log stay as they are, since only they know the offset of their next message.

    Topics with batch consume queues get them in `batchconsumequeue/`: topics that `config/topics.json` or a folder of
    the store names as such, and topics with inner batches that neither names.

    Everything is built in `<output>.unfinished` and renamed at the end: a rebuild that was killed leaves no `output`,
    and the same call continues it. It begins anew if the log was written to meanwhile, or the machine was restarted.

    If queue offsets repeat, as after a crash, the first message wins, as in `ConsumeQueue.putMessagePositionInfo`. A
    gap is filled with filler units, so that each unit stands at its own queue offset (RocketMQ logs an error and puts
    the unit into the gap). The tasks need a shared file system.

    Args:
        options: what is built, and how; None: the defaults.
        changes: single options by name, in place of those in `options`: `rebuild(store, output, runner=runner,
            damaged="skip")`.

    Raises:
        StoreFormatError: no store, a foreign file in the log, or files of two equally frequent sizes, so that the size
            must be given; also if `output` exists and is not an empty folder, or `<output>.unfinished` belongs to no
            rebuild.
        CorruptRecordError: damage in the log, a queue offset beyond what the log can hold, a topic that cannot
            name a folder; not with `damaged="skip"`.
        ConfigError: file sizes or delay levels that RocketMQ does not allow; an `output` inside the store; other
            options than the killed rebuild had; `damaged="skip"` in place.
        CorruptConsumeQueueError: in place: the store's queues lead to whole records that the new ones do not reach; not
            with `allow_fewer`.
        StoreLockedError: another process builds this output, or has the store open that is to be rebuilt in place, or
            dispatches its log.
        StoreFullError: no space.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    options = replace(chosen_options(options, RebuildOptions), **changes)
    directory = StoreDirectory(store_path, commit_log_path=options.commit_log_path)
    if output is None:
        if options.damaged == "skip":
            raise ConfigError(
                "a store whose log is damaged is not rebuilt in place, as it could not be opened: give an output"
            )
        result = _rebuild_in_place(directory, options, runner, progress)
    else:
        result = _rebuild_to(absolute(output, "output"), directory, options, runner, progress)
    return replace(result, seconds=time.perf_counter() - started)


def _rebuild_to(
    output: str,
    directory: StoreDirectory,
    options: RebuildOptions,
    runner: Runner,
    progress: Progress | None,
) -> RebuildResult:
    check_replaceable(output)
    unfinished = output + _UNFINISHED
    is_free = not DISK.exists(output) or DISK.is_empty(output)
    if not is_free and not DISK.exists(unfinished):
        raise StoreFormatError(f"{output}: exists already and is not an empty folder; give the name of a new one")
    directory.check_output(output)
    plan = plan_build(directory, options)
    with _job_folder(unfinished, options.of_job(directory)) as folder:
        build_folder = BuildFolder(folder)
        if build_folder.has_been_named and is_free:  # the output was taken away meanwhile
            build_folder.forget()
        plan = build_folder.settle(plan)
        if not is_free and not build_folder.has_been_named:
            raise StoreFormatError(f"{output}: exists already and is not an empty folder; move it away to go on")
        built = build_folder.result or _build(folder, build_folder, plan, runner, progress)
        if is_free:
            DISK.rename(built.path, output)
        _remove(folder)
    return replace(built.result, resumed=build_folder.resumed)


def _rebuild_in_place(
    directory: StoreDirectory,
    options: RebuildOptions,
    runner: Runner,
    progress: Progress | None,
) -> RebuildResult:
    check_folders(directory)
    unfinished = os.path.join(directory.path, _IN_PLACE)
    with locked(directory.path), _job_folder(unfinished, options.of_job(directory)) as folder:
        build_folder = BuildFolder(folder)
        plan = build_folder.settle(plan_build(directory, options))
        built = build_folder.result or _build(folder, build_folder, plan, runner, progress, directory)
        swap = build_folder.swap
        if swap is None:
            if not options.allow_fewer:
                check_reachable(directory, built.path, directory.log_files())
            kept = folder.state_folder("old")
            swap = plan_swap(directory, built.path, kept, built.result, keep_old=options.keep_old)
            build_folder.keep_swap(swap)
        swap.run()
        _remove(folder)
    return replace(built.result, resumed=build_folder.resumed, kept_folders=tuple(sorted(swap.kept.values())))


def is_unfinished(store: str) -> bool:
    """Whether a rebuild in place of this store was begun and has not ended."""
    return DISK.exists(os.path.join(store, _IN_PLACE, STATE, JOB_FILE))


def remove_rest(store: str) -> None:
    """Remove the folder of a rebuild in place that was killed when all was done. The store must be `locked`."""
    folder = os.path.join(store, _IN_PLACE)
    if not DISK.is_directory(folder) or is_unfinished(store):
        return
    if {entry.name for entry in DISK.list_directory(folder)} <= {STATE}:
        with suppress(StoreError):
            DISK.remove_tree(folder)


@contextmanager
def _job_folder(path: str, options: Mapping[str, Option]) -> Iterator[JobFolder]:
    """Folder of the job. A job that ends with damage in the log removes it."""
    with JobFolder(path, "rebuild", options) as folder:
        try:
            yield folder
        except CorruptRecordError as error:
            _remove(folder)
            advice = "or build from all whole records, with a report of the rest, by --damaged skip (damaged='skip')"
            raise CorruptRecordError(error.path, error.offset, f"{error.reason}; {advice}") from None


def _remove(folder: JobFolder) -> None:
    """Remove the folder of the job, unless a task of a killed driver still writes there."""
    with suppress(StoreError):
        folder.finish()
        DISK.remove_tree(folder.path)


def _build(
    folder: JobFolder,
    build_folder: BuildFolder,
    plan: BuildPlan,
    runner: Runner,
    progress: Progress | None,
    in_place_of: StoreDirectory | None = None,
) -> Built:
    """Build all in the folder of the job. Tasks that a killed start has finished do not run again."""
    build = Build(build_folder.path, plan, ResumingRunner(runner, folder, synced=False), progress)
    try:
        result = build.run()
    except StoreSyncError:
        build_folder.forget()  # the page cache may show what the disk lacks, and the next sync would succeed
        raise
    if in_place_of is not None and plan.log_files:
        sizes = {kind.folder: int(getattr(plan.geometry.config, kind.key)) for kind in (SIMPLE, BATCH)}
        begin = plan.log_files[0].start_offset
        kept = keep_emptied_queues(in_place_of, build.folder, begin, sizes, build.types)
        result = replace(result, kept_queues=tuple(kept))
    built = Built(result, build.folder)
    build_folder.keep_result(built)
    return built
