"""Files that the process may not read: named with what to do, and the store is as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from tests.support.invariants import SMALL, contents

#: A user who owns nothing here.
NOBODY = 65534
#: What may not be read, and the ways to use the store that cannot do without it.
EVERYWHERE = ("read_log", "read-only", "writing", "rebuild")
CASES = {
    "commitlog": EVERYWHERE,
    "commitlog/00000000000000000000": EVERYWHERE,
    "consumequeue": ("read-only", "writing", "rebuild"),
    "consumequeue/t/0/00000000000000000000": ("read-only", "writing"),
    "index/INDEX": ("read-only", "writing", "rebuild"),
    "checkpoint": ("read-only", "writing"),
    "config/topics.json": ("read-only", "writing", "rebuild"),
    "config/reputShutdown.json": ("read-only", "writing", "rebuild"),
    "lock": ("writing",),
}
USE = """
import json, os, sys
import reput
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
root, nobody = sys.argv[1], int(sys.argv[2])
options = json.loads(sys.argv[3])

def read_only(path):
    with reput.MessageStore.open(path, read_only=True, **options) as store:
        store.query_message("t", "k1"), store.get_message("t", 0, 0).messages(), dict(store.topics)

def write(path):
    with reput.MessageStore.open(path, **options) as store:
        store.put_message(reput.Message("t", b"x"))

ways = {
    "read_log": lambda path: reput.read_log(path).read_all(),
    "read-only": read_only,
    "rebuild": lambda path: rebuild(path, path + "-built", runner=LocalRunner(threads=1)),
    "writing": write,
}
for use in ways.values():  # what it imports and loads may not be readable, either
    use(root + "/whole")
if os.geteuid() == 0:
    os.setgid(nobody)
    os.setuid(nobody)
found = {}
for number, name in enumerate(json.loads(sys.argv[4])):
    for way, use in ways.items():
        try:
            use(f"{root}/{number}")
            found[f"{name} {way}"] = ""
        except reput.StoreError as error:
            found[f"{name} {way}"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody may enter; pytest's own are its user's alone."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    for found in path.rglob("*"):
        found.chmod(0o700)
    shutil.rmtree(path)


def test_a_file_that_may_not_be_read_is_named_and_nothing_is_changed(folder: Path) -> None:
    whole = folder / "whole"
    with reput.MessageStore.open(whole, **SMALL) as store:
        store.update_topic(reput.TopicConfig("t"))
        for number in range(20):
            store.put_message(reput.Message("t", bytes(100), keys=[f"k{number}"]))
    index = min((whole / "index").iterdir())
    before, hidden = contents(whole), {name: name.replace("INDEX", index.name) for name in CASES}
    for number, name in enumerate(CASES):
        copy = shutil.copytree(whole, folder / str(number))
        for path in (copy, *copy.rglob("*")):
            os.chown(path, *((NOBODY, NOBODY) if os.geteuid() == 0 else (-1, -1)))
        (copy / hidden[name]).chmod(0)
    arguments = [sys.executable, "-c", USE, str(folder), str(NOBODY), json.dumps(SMALL), json.dumps([*CASES])]
    done = subprocess.run(arguments, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for number, (name, ways) in enumerate(CASES.items()):
        copy = folder / str(number)
        for way in EVERYWHERE:
            told = found[f"{name} {way}"]
            assert (told != "") == (way in ways), (name, way, told)
            if told:
                assert told.startswith(f"{copy / hidden[name]}: "), told
                assert "permission denied; check owner and mode of it and of its folder" in told
        (copy / hidden[name]).chmod(0o700)
        assert contents(copy) == before, name
