"""Options and variables that users may have in scripts keep their former names for one release."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import run_reput


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
