"""Whose a folder is, and whether that process lives."""

from __future__ import annotations

import subprocess
import sys

from reput.files.owner import is_alive, owner_text


def test_a_process_is_alive_until_it_ends() -> None:
    code = "import sys; from reput.files.owner import owner_text; print(owner_text(), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        owner = child.stdout.readline()
        assert is_alive(owner) is True
        child.communicate("")
    assert is_alive(owner) is False


def test_the_owner_may_be_a_process_above() -> None:
    code = 'from reput.files.owner import owner_text; print(owner_text("bash"), owner_text())'
    command = f"{sys.executable} -c '{code}'; echo $$"
    output = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    text, shell = output.splitlines()
    above, own = text.split()[:4], text.split()[4:]
    assert above[2] == shell != own[2]
    assert above[:2] == own[:2]


def test_nobody_of_that_name_above_means_the_process_itself() -> None:
    assert owner_text("no such command") == owner_text()


def test_the_id_of_a_process_that_began_later_is_not_the_owner() -> None:
    assert is_alive(owner_text().rpartition(" ")[0] + " 1") is False


def test_another_machine_or_a_garbled_name_cannot_be_asked() -> None:
    machine, *_ = owner_text().split()
    for text in ("", "garbled", f"{machine} pid:[1] 1 1", "another pid:[1] 1 1", "a b c d"):
        assert is_alive(text) is None
