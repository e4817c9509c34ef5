"""A rebuild that is killed, wherever, and called again: the files of an undisturbed one, and no finished task twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reput.errors import ConfigError, StoreFormatError, StoreLockedError, StoreSyncError
from reput.files.file import File
from reput.formats.paths import offset_to_file_name
from reput.jobs.rebuild import plan as build_plan
from reput.jobs.rebuild.job import RebuildResult
from reput.jobs.resuming import load
from reput.jobs.runner import LocalRunner
from tests.support.kills import killed
from tests.support.runners import CountingRunner
from tests.support.shares import sampled
from tests.support.small_rebuild import Put, files_of, rebuild_small, write_log

#: A kill at each n-th change: as fine as a test may take.
STRIDE = 4


def plain() -> list[Put]:
    return [Put(queue_id=n % 3, keys=("k", f"k{n}"), body=bytes(150)) for n in range(12)]


def crashed() -> list[Put]:
    """Queue offsets that repeat: the log is read a second time, in order."""
    return [*plain(), Put(queue_step=-2), *plain()]


def tasks_done(output: Path) -> int:
    """Outcomes that are kept, and whole."""
    kept = output.with_name("out.unfinished") / "_reput/outcomes"
    return len([path for path in kept.iterdir() if load(str(path)) is not None]) if kept.exists() else 0


@sampled(2)
@pytest.mark.parametrize("puts", [plain, crashed])
def test_killed_before_any_change_of_the_disk_it_goes_on_and_ends_the_same(
    tmp_path: Path, puts: Callable[[], list[Put]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):  # no power is cut here, and they take most of the time
        monkeypatch.setattr(os, name, lambda descriptor: None)
    write_log(tmp_path / "store", puts())
    runner = CountingRunner()
    expected = rebuild_small(tmp_path / "store", tmp_path / "whole", runner=runner, split_bytes=800)
    files, total = files_of(tmp_path / "whole"), runner.ran
    seen: set[int] = set()
    for changes in range(1, 10_000, STRIDE):
        output = tmp_path / str(changes) / "out"
        build = partial(rebuild_small, tmp_path / "store", output, runner=LocalRunner(1), split_bytes=800)
        if not killed(build, changes):
            break
        done, was_named = tasks_done(output), output.exists()
        assert not was_named or files_of(output) == files, "what has the name is whole"
        job = output.with_name("out.unfinished") / "_reput/job.json"
        if was_named and (changes % 2 or not job.exists()):  # somebody takes it away, and wants another one
            shutil.rmtree(output)
            done, was_named = 0, False
        runner = CountingRunner()
        result = rebuild_small(tmp_path / "store", output, runner=runner, split_bytes=800)
        assert files_of(output) == files
        assert os.listdir(output.parent) == ["out"]
        if not was_named:
            assert sum(runner.ran.values()) == sum(total.values()) - done
        assert (result.messages, result.units, result.keys) == (expected.messages, expected.units, expected.keys)
        seen.add(done)
    assert seen >= {0, 1, 2}
    assert max(seen) >= sum(total.values()) - 1
    assert changes > 100


def interrupted(store: Path, output: Path, **options: Any) -> None:
    """A rebuild that is killed when its first phase has run."""

    class Killing(LocalRunner):
        def run(self, *arguments: Any, description: str, **others: Any) -> list[Any]:
            if description != "read the log":
                os.kill(os.getpid(), signal.SIGKILL)
            return super().run(*arguments, description=description, **others)

    assert killed(lambda: rebuild_small(store, output, runner=Killing(1), **options), 10_000)


def resumed(store: Path, output: Path, **options: Any) -> tuple[RebuildResult, Counter[str]]:
    runner = CountingRunner()
    return rebuild_small(store, output, runner=runner, **options), runner.ran


def test_a_log_that_has_grown_since_is_read_anew(tmp_path: Path) -> None:
    puts = plain()
    write_log(tmp_path / "store", puts)
    interrupted(tmp_path / "store", tmp_path / "out")
    write_log(tmp_path / "store", [*puts, Put(keys=("later",))])
    result, ran = resumed(tmp_path / "store", tmp_path / "out")
    assert (result.messages, result.resumed, ran["read the log"] > 0) == (len(puts) + 1, False, True)
    rebuild_small(tmp_path / "store", tmp_path / "whole")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_after_a_new_start_of_the_machine_nothing_unsynced_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "store", plain())
    interrupted(tmp_path / "store", tmp_path / "out")
    monkeypatch.setattr(build_plan, "owner_text", lambda: "another-boot pid:[1] 1 1")
    result, ran = resumed(tmp_path / "store", tmp_path / "out")
    assert (result.resumed, ran["read the log"] > 0) == (False, True)


def test_the_sizes_found_at_the_first_start_stay(tmp_path: Path) -> None:
    write_log(tmp_path / "store", plain())
    interrupted(tmp_path / "store", tmp_path / "out")
    queue = tmp_path / "store/consumequeue/orders/0"
    queue.mkdir(parents=True)
    (queue / offset_to_file_name(0)).write_bytes(bytes(60))
    (tmp_path / "store/consumequeue/%LMQ%a/0").mkdir(parents=True)
    result, ran = resumed(tmp_path / "store", tmp_path / "out")
    assert (result.resumed, ran["read the log"]) == (True, 0)
    assert result.findings == ()


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"index": False}, "index was true and is false"),
        ({"damaged": "skip"}, 'damaged was "refuse" and is "skip"'),
        ({"message_delay_level": "7s"}, 'message_delay_level was null and is "7s"'),
    ],
)
def test_other_options_are_refused_and_nothing_changes(tmp_path: Path, changed: dict[str, Any], names: str) -> None:
    write_log(tmp_path / "store", plain())
    interrupted(tmp_path / "store", tmp_path / "out")
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=names):
        rebuild_small(tmp_path / "store", tmp_path / "out", **changed)
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before
    _, ran = resumed(tmp_path / "store", tmp_path / "out")
    assert ran["read the log"] == 0


def test_who_runs_the_tasks_and_how_large_they_are_may_change(tmp_path: Path) -> None:
    write_log(tmp_path / "store", plain())
    interrupted(tmp_path / "store", tmp_path / "out", split_bytes=500)
    result, ran = resumed(tmp_path / "store", tmp_path / "out", split_bytes=2000)
    assert (result.resumed, ran["read the log"]) == (True, 0)
    rebuild_small(tmp_path / "store", tmp_path / "whole")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_another_store_is_not_gone_on_with(tmp_path: Path) -> None:
    write_log(tmp_path / "store", plain())
    write_log(tmp_path / "other", plain())
    interrupted(tmp_path / "store", tmp_path / "out")
    with pytest.raises(ConfigError, match="store was"):
        rebuild_small(tmp_path / "other", tmp_path / "out")


def test_an_output_that_somebody_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path / "store", plain())
    interrupted(tmp_path / "store", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").touch()
    with pytest.raises(StoreFormatError, match="exists already"):
        rebuild_small(tmp_path / "store", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["file"]


def test_two_at_once_do_not_build_one_output(tmp_path: Path) -> None:
    write_log(tmp_path / "store", plain())

    class Second(LocalRunner):
        def run(self, *arguments: Any, **options: Any) -> list[Any]:
            with pytest.raises(StoreLockedError, match="another process works in this folder"):
                rebuild_small(tmp_path / "store", tmp_path / "out")
            return super().run(*arguments, **options)

    rebuild_small(tmp_path / "store", tmp_path / "out", runner=Second(1))


def test_behind_a_failed_sync_all_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see what the disk does not have, and the next sync of the same bytes would succeed."""
    store, output = tmp_path / "store", tmp_path / "out"
    write_log(store, plain())
    sync, failing = File.sync, [True]

    def fail_once(file: File) -> None:
        if "/consumequeue/" in file.path and failing:
            failing.clear()
            raise StoreSyncError(f"{file.path}: cannot sync")
        sync(file)

    monkeypatch.setattr(File, "sync", fail_once)
    with pytest.raises(StoreSyncError):
        rebuild_small(store, output)
    runner = CountingRunner()
    assert not rebuild_small(store, output, runner=runner).resumed
    assert runner.ran["read the log"] > 1
