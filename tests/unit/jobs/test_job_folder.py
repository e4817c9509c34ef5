"""JobFolder and ResumingRunner: whose a folder is, and what a job that was killed does again."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reput.errors import ConfigError, StoreFormatError, StoreLockedError
from reput.files import FileLayer, RecordLock
from reput.jobs import job_folder, resuming
from reput.jobs.job_folder import JobFolder
from reput.jobs.resuming import ResumingRunner, keep, load
from reput.jobs.runner import LocalRunner

OPTIONS = {"topics": ["orders"], "level": 1}


class Killed(BaseException):
    """The process ends here."""


class Ending(FileLayer):
    """Dies instead of removing something for the n-th time."""

    def __init__(self, number: int | None = None) -> None:
        self.number, self.removed = number, 0

    def lock(self, path: str) -> RecordLock:
        self.held = super().lock(path)
        return self.held

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def remove_tree(self, path: str) -> None:
        self._step()
        super().remove_tree(path)

    def _step(self) -> None:
        if self.removed == self.number:
            raise Killed
        self.removed += 1


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("prepare", [lambda path: None, lambda path: path.mkdir()], ids=["missing", "empty"])
def test_a_new_folder_is_taken_and_the_same_job_goes_on_with_it(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    path = tmp_path / "out"
    prepare(path)
    with JobFolder(path, "export", OPTIONS) as folder:
        assert not folder.resumed
    with JobFolder(path, "export", OPTIONS) as folder:
        assert folder.resumed


def test_a_kill_before_the_job_was_named_leaves_a_folder_that_can_be_taken(tmp_path: Path) -> None:
    (tmp_path / "out" / "_reput").mkdir(parents=True)
    (tmp_path / "out" / "_reput" / "lock").touch()
    with JobFolder(tmp_path / "out", "export", OPTIONS) as folder:
        assert not folder.resumed


def test_a_finished_job_leaves_only_its_output_which_is_not_gone_on_with(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "out", "export", OPTIONS)
    (tmp_path / "out" / "part").write_bytes(b"rows")
    folder.finish()
    assert tree(tmp_path / "out") == {"part": b"rows"}
    with pytest.raises(StoreFormatError, match="not empty"):
        JobFolder(tmp_path / "out", "export", OPTIONS)


def test_a_kill_between_any_two_steps_of_the_end_leaves_no_outcome_to_another_job(tmp_path: Path) -> None:
    def ended(path: Path, files: FileLayer) -> None:
        folder = JobFolder(path, "audit", {"level": 1}, files=files)
        assert ResumingRunner(LocalRunner(1), folder).run(float, [1, 2], description="scan") == [1.0, 2.0]
        folder.finish()

    healthy = Ending()
    ended(tmp_path / "healthy", healthy)
    assert os.listdir(tmp_path / "healthy") == []
    assert healthy.removed > 2
    for number in range(healthy.removed):
        path = tmp_path / str(number)
        with pytest.raises(Killed):
            ended(path, dying := Ending(number))
        dying.held.release()
        job, options = ("audit", {"level": 1}) if number == 0 else ("audit", {"level": 2})
        with JobFolder(path, job, options) as folder:
            assert folder.resumed == (number == 0)
            task = float if number == 0 else str
            assert ResumingRunner(LocalRunner(1), folder).run(task, [1, 2], description="scan") == [task(1), task(2)]


def a_file(path: Path) -> None:
    path.write_bytes(b"x")


def a_stranger(path: Path) -> None:
    path.mkdir()
    (path / "letters").mkdir()


def another_job(path: Path) -> None:
    JobFolder(path, "audit", OPTIONS).close()


def other_options(path: Path) -> None:
    JobFolder(path, "export", {"topics": ["orders", "bills"], "date": "x"}).close()


def another_version(path: Path) -> None:
    JobFolder(path, "export", OPTIONS).close()
    job = path / "_reput" / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"reput": "0.0"}))


def no_json(path: Path) -> None:
    JobFolder(path, "export", OPTIONS).close()
    (path / "_reput" / "job.json").write_bytes(b'{"job"')


def no_object(path: Path) -> None:
    JobFolder(path, "export", OPTIONS).close()
    (path / "_reput" / "job.json").write_bytes(b"[1]")


@pytest.mark.parametrize(
    ("prepare", "error", "text"),
    [
        (a_file, StoreFormatError, "a file, and the output is a folder"),
        (a_stranger, StoreFormatError, "not empty .there is letters."),
        (another_job, StoreFormatError, "belongs to the job audit"),
        (
            other_options,
            ConfigError,
            r'topics was \["orders", "bills"\] and is \["orders"\]; date was "x" and is null; level was null and is 1',
        ),
        (another_version, ConfigError, 'reput was "0.0"'),
        (no_json, StoreFormatError, "job.json: not the JSON"),
        (no_object, StoreFormatError, "job.json: not the object"),
    ],
)
def test_a_folder_that_is_not_this_jobs_is_refused_and_not_changed(
    tmp_path: Path, prepare: Callable[[Path], None], error: type[Exception], text: str
) -> None:
    path = tmp_path / "out"
    prepare(path)
    before = tree(tmp_path), sorted(os.walk(tmp_path))
    with pytest.raises(error, match=text):
        JobFolder(path, "export", OPTIONS)
    assert (tree(tmp_path), sorted(os.walk(tmp_path))) == before


def test_a_later_reput_goes_on_with_a_folder_of_the_same_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    JobFolder(tmp_path, "export", OPTIONS, layout="tables 1").close()
    monkeypatch.setattr(job_folder, "version", lambda _: "99.0")
    with JobFolder(tmp_path, "export", OPTIONS, layout="tables 1") as folder:
        assert folder.resumed
    with pytest.raises(ConfigError, match='reput was "tables 1" and is "tables 2"'):
        JobFolder(tmp_path, "export", OPTIONS, layout="tables 2")
    with pytest.raises(ConfigError, match='begun with other options: decode was null and is "json"; go on'):
        JobFolder(tmp_path, "export", OPTIONS | {"decode": "json"}, layout="tables 2")


def test_two_cannot_work_in_one_folder(tmp_path: Path) -> None:
    with (
        JobFolder(tmp_path / "out", "export", OPTIONS),
        pytest.raises(StoreLockedError, match="another process works in this folder"),
    ):
        JobFolder(tmp_path / "out", "export", OPTIONS)


@dataclass(frozen=True, slots=True)
class Outcome:
    value: int
    fault: Exception | None = None


def test_a_second_start_runs_only_the_tasks_that_had_not_finished(tmp_path: Path) -> None:
    ran: list[int] = []

    def dies_at_last(item: int) -> Outcome:
        if item == 4:
            raise InterruptedError
        ran.append(item)
        return Outcome(item * item)

    def lives(item: int) -> Outcome:
        ran.append(item)
        return Outcome(item * item)

    with JobFolder(tmp_path / "out", "export", OPTIONS) as folder, pytest.raises(InterruptedError):
        ResumingRunner(LocalRunner(1), folder).run(dies_at_last, range(5), description="squares")
    assert ran == [0, 1, 2, 3]
    seen: list[tuple[int, int, str]] = []

    def tell(*state: Any) -> None:
        seen.append(state)

    with JobFolder(tmp_path / "out", "export", OPTIONS) as folder:
        again = ResumingRunner(LocalRunner(1), folder).run(lives, range(5), description="squares", progress=tell)
    assert again == [Outcome(item * item) for item in range(5)]
    assert ran == [0, 1, 2, 3, 4]
    assert seen == [(4, 5, "squares"), (5, 5, "squares")]


def test_the_same_item_of_another_phase_is_another_task(tmp_path: Path) -> None:
    with JobFolder(tmp_path / "out", "export", OPTIONS) as folder:
        runner = ResumingRunner(LocalRunner(1), folder)
        assert runner.run(str, [1], description="text") == ["1"]
        assert runner.run(float, [1], description="number") == [1.0]


def test_a_fault_is_looked_for_again(tmp_path: Path) -> None:
    with JobFolder(tmp_path / "out", "export", OPTIONS) as folder:
        runner = ResumingRunner(LocalRunner(1), folder)
        damaged = runner.run(lambda item: Outcome(item, ValueError("damage")), [1], description="scan")
        assert damaged[0].fault is not None
        assert runner.run(Outcome, [1], description="scan") == [Outcome(1)]


@pytest.mark.parametrize("size", [0, 5, 30])
def test_an_outcome_that_a_kill_has_torn_is_none(tmp_path: Path, size: int) -> None:
    path = tmp_path / "outcome"
    assert load(str(path)) is None
    keep(str(path), list(range(100)), synced=False)
    assert load(str(path)) == list(range(100))
    path.write_bytes(path.read_bytes()[:size] + b"x" * 1000)
    assert load(str(path)) is None
    keep(str(path), "shorter", synced=False)
    assert load(str(path)) == "shorter"
    assert os.listdir(tmp_path) == ["outcome"]


@pytest.mark.parametrize("foreign", [lambda path: path.chmod(0o666), lambda path: path.chmod(0o620)])
def test_state_that_others_may_write_is_not_read(foreign: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "plan"
    keep(str(path), {"a": 1}, synced=True)
    assert load(str(path)) == {"a": 1}
    foreign(path)
    with pytest.raises(StoreFormatError, match="others may write"):
        load(str(path))


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(os.mkdir),
        pickle.dumps(eval),
        b"cposix\nsystem\n(S'touch called'\ntR.",
        b"creput.__main__\nmain\n(tR.",
        b"creput.jobs.resuming\npickle.loads\n.",
        b"creput.jobs.resuming\nkeep\n.",
        b"creput.jobs.of_another_release\nOutcome\n.",
        b"creput.jobs.resuming\nOfAnotherRelease\n.",
        pickle.dumps(Path("x")),
    ],
)
def test_state_calls_nothing_that_it_names(tmp_path: Path, data: bytes) -> None:
    """Also in a folder of one's own: its content may come from elsewhere."""
    path = tmp_path / "plan"
    path.touch()
    path.chmod(0o600)
    path.write_bytes(len(data).to_bytes(8, "big") + hashlib.blake2b(data, digest_size=16).digest() + data)
    with pytest.raises(StoreFormatError, match="which no job keeps; remove the folder"):
        load(str(path))


@pytest.mark.parametrize("value", [range(3), Path("x"), os.mkdir, [object()], pa.schema([])])
def test_what_cannot_be_read_again_is_not_kept(tmp_path: Path, value: object) -> None:
    path = tmp_path / "plan"
    with pytest.raises(TypeError, match="expected dataclasses, numbers, texts, arrays, tables"):
        keep(str(path), value, synced=False)
    assert not path.exists()


def test_arrays_are_kept_whatever_the_protocol_of_pythons_pickles_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.14 has another one by default."""
    by_default = resuming._Pickler.__init__

    def of_later_python(pickler: pickle.Pickler, file: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> None:
        by_default(pickler, file, protocol)

    monkeypatch.setattr(resuming._Pickler, "__init__", of_later_python)
    keep(str(tmp_path / "plan"), np.arange(3), synced=False)
    assert load(str(tmp_path / "plan")).tolist() == [0, 1, 2]


def test_state_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "plan")
    table = pa.table({"a": pa.chunked_array([[1, None], [3]]), "b": ["x", "y", "z"]})
    kept = (
        Outcome(1),
        {"n": (np.arange(3), np.int64(7), np.dtype("i4,u1"))},
        Counter("aab"),
        bytearray(b"x"),
        {1},
        table,
    )
    keep(path, kept, synced=True)
    found = load(path)
    assert found[0] == Outcome(1)
    assert found[2:] == kept[2:]
    assert [str(value) for value in found[1]["n"]] == [str(value) for value in kept[1]["n"]]


def test_state_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan"
    keep(str(path), {"a": 1}, synced=False)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(StoreFormatError, match="another user has begun"):
        load(str(path))


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_of_state_that_others_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    """They could put a file of this user's there, under another name, or take one away."""
    with JobFolder(tmp_path / "out", "export", OPTIONS):
        pass
    (tmp_path / "out" / "_reput").chmod(mode)
    with pytest.raises(StoreFormatError, match=r"others may write, so it is not read.*chmod go-w"):
        JobFolder(tmp_path / "out", "export", OPTIONS)
    (tmp_path / "out" / "_reput").chmod(mode & ~0o022)
    with JobFolder(tmp_path / "out", "export", OPTIONS) as folder:
        assert folder.resumed


def test_a_folder_of_state_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with JobFolder(tmp_path / "out", "export", OPTIONS):
        pass
    monkeypatch.setattr("os.geteuid", lambda: (tmp_path / "out" / "_reput").stat().st_uid + 1)
    with pytest.raises(StoreFormatError, match="another user has begun"):
        JobFolder(tmp_path / "out", "export", OPTIONS)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_a_job_goes_on_in_its_folder_whatever_the_umask_is(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        for is_again in (False, True):
            with JobFolder(tmp_path / "out", "export", OPTIONS) as folder:
                assert folder.resumed == is_again
                assert ResumingRunner(LocalRunner(1), folder).run(Outcome, [1], description="scan") == [Outcome(1)]
            state = [tmp_path / "out" / "_reput", *(tmp_path / "out" / "_reput").rglob("*")]
            assert not [path for path in state if path.stat().st_mode & 0o022]
    finally:
        os.umask(before)
