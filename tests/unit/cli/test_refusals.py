"""Commands that open a store leave one that is refused as it was; and one that opens slowly shows how far it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.cli import job_run
from reput.cli import open_store as opening
from reput.cli.commands import import_
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from tests.support.commands import Run
from tests.support.refused import KINDS, OPTIONS, make_store
from tests.support.shares import sampled
from tests.support.trees import image

# Threads that die with their store are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

SIZES = ["--set", "maxHashSlotNum=7", "--set", "maxIndexNum=6"]
READERS = (
    ["info", *SIZES],
    ["get", "--topic", "early", *SIZES],
    ["query", "--topic", "late", "--key", "late-1", *SIZES],
)
PUT = ["put", "--topic", "t", "--body", "x", *SIZES, "--set", "enableConsumeQueueExt=true"]
PUT += ["--set", "mappedFileSizeConsumeQueueExt=256"]


@sampled(4)
@pytest.mark.parametrize(("kind", "reader"), list(zip(KINDS, itertools.cycle(READERS), strict=False)))
def test_commands_that_open_a_store_change_nothing_of_bad_input(
    tmp_path: Path, run_reput: Run, kind: str, reader: list[str]
) -> None:
    store = tmp_path / "store"
    KINDS[kind].deed(store, make_store(store, killed=KINDS[kind].killed))
    before = image(store)
    answer = run_reput(PUT[0], store, *PUT[1:])
    assert (answer.status > 0, answer.err.count("\n"), str(store) in answer.err) == (True, 1, True), answer.err
    assert image(store) == before
    run_reput(reader[0], store, *reader[1:])
    assert image(store) == before


@pytest.mark.parametrize("seconds", [0, 60])
def test_what_takes_long_is_shown_with_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    store = tmp_path / "store"
    make_store(store, killed=True)
    shown: list[tuple[int, int, str]] = []

    class Bar:
        def __enter__(self) -> object:
            return lambda *told: shown.append(told)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(opening, "progress_bar", Bar)
    monkeypatch.setattr(opening, "_LONG_S", seconds)
    config = MessageStoreConfig(max_hash_slot_num=7, max_index_num=6)
    opening.open_store(str(store), read_only=True, config=config).close()
    assert bool(shown) is not bool(seconds)
    assert all(0 <= done <= total and what for done, total, what in shown)


@pytest.mark.parametrize("command", ["import", "replay"])
def test_jobs_that_write_show_the_start_of_a_killed_store_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_reput: Run, command: str
) -> None:
    make_store(tmp_path / "killed", killed=True)
    make_store(tmp_path / "source", killed=False)
    assert run_reput("export", tmp_path / "source", tmp_path / "lake").status == 0
    shown: list[str] = []

    @contextmanager
    def bar(**_: object) -> Iterator[object]:
        yield lambda done, total, what: shown.append(what)

    for module in (import_, job_run):
        monkeypatch.setattr(module, "progress_bar", bar)
    source = tmp_path / {"import": "lake", "replay": "source"}[command]
    sizes = [text for key, value in OPTIONS.items() for text in ("--set", f"{camel_case(key)}={value}")]
    extra = ("--speed", "max") if command == "replay" else ()
    answer = run_reput(command, source, tmp_path / "killed", *sizes, *extra)
    assert (answer.status, "looking for the end of the log" in shown) == (0, True), answer.err
