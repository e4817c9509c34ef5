"""Names that users may have from earlier versions, kept for one release."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.store.sinks.replay import ReplayedBatch
from tests.support.commands import run_reput

FORMER = [
    ("reput.jobs.export", "reput.jobs.lake"),
    ("reput.jobs.import_", "reput.jobs.lake"),
    ("reput.jobs.restore", "reput.jobs.backup"),
    ("reput.jobs.salvage", "reput.jobs.repair"),
    ("reput.jobs.sql", "reput.jobs.query"),
    ("reput.store.import_sink", "reput.store.sinks.import_sink"),
    ("reput.store.replay", "reput.store.sinks.replay"),
]


@pytest.mark.parametrize(("former", "now"), FORMER, ids=[former for former, _ in FORMER])
def test_a_former_import_path_gives_the_same_objects(former: str, now: str) -> None:
    names = import_module(former).__all__
    assert names
    for name in names:
        assert getattr(import_module(former), name) is getattr(import_module(now), name)


def test_a_store_for_an_external_dispatcher_may_be_opened_by_the_former_name(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, dispatch="spark") as store:
        store.put_message(reput.Message("orders", b"x"))
        assert store.dispatch_behind_bytes > 0
    assert (tmp_path / "config" / "reputDispatch.json").exists()


def test_preload_and_verified_records_have_their_former_names(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path) as store:
        store.put_message(reput.Message("orders", b"x"))
        store.wait_dispatched()
        assert store.warm_up() == store.preload()
        assert store.recovery.confirmed_records == store.recovery.verified_records


def test_the_lag_of_a_replayed_batch_has_its_former_name() -> None:
    assert ReplayedBatch(pa.record_batch({"n": [1]}), 0.5).behind_s == 0.5


@pytest.mark.parametrize(
    ("command", "former", "now"),
    [
        ("config", "--broker-conf", "--config"),
        ("delete-expired STORE", "--broker-conf", "--config"),
        ("admin groups", "--config", "--client-config"),
        ("rejoin STORE --master 127.0.0.1:1", "--config", "--client-config"),
    ],
)
def test_an_option_has_its_former_name_which_no_help_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, former: str, now: str
) -> None:
    file = tmp_path / "file"
    file.write_text("wrongKey=1\n")
    words = command.split()
    answer = run_reput(*words, former, file)
    assert (answer.status, f"{file}:1: " in answer.err) == (2, True)
    assert run_reput(*words, f"{former}={file}") == run_reput(*words, now, file) == answer
    assert f" {former} " not in run_reput(*words, "--help").out

    groups = words[0] if words[0] != "admin" else "admin.groups"
    (tmp_path / "defaults.toml").write_text(f'[{groups}]\n{former.removeprefix("--")} = "{file}"\n')
    monkeypatch.setenv("REPUT_DEFAULTS", str(tmp_path / "defaults.toml"))
    assert run_reput(*words) == answer


def test_files_that_the_environment_names_have_their_former_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPUT_CONFIG", str(tmp_path / "defaults"))
    assert f"{tmp_path}/defaults: no such file; REPUT_CONFIG names it" in run_reput("config").err
    (tmp_path / "now").touch()
    monkeypatch.setenv("REPUT_DEFAULTS", str(tmp_path / "now"))
    assert run_reput("config").status == 0
    monkeypatch.setenv("REPUT_ADMIN_CONFIG", str(tmp_path / "client"))
    assert f"{tmp_path}/client: cannot open" in run_reput("admin", "groups").err
    monkeypatch.setenv("REPUT_CLIENT_CONFIG", str(tmp_path / "other"))
    assert f"{tmp_path}/other: cannot open" in run_reput("admin", "groups").err
