"""The three modes: what becomes of records that do not prove themselves although later ones do."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError
from tests.support.commands import run_reput, unknown_words

CLEAN = Path(__file__).parents[2] / "golden" / "5.3.3" / "clean" / "store"
FILE_SIZE = 131_072


def spoiled(path: Path, *numbers: int) -> tuple[Path, list[dict[str, Any]]]:
    """A copy of a store in which the bodies of some records are changed, and the rows of these records."""
    shutil.copytree(CLEAN, path)
    rows = reput.read_log(path).read_all().to_pylist()
    for number in numbers:
        offset = rows[number]["commit_log_offset"]
        file = path / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
        data = bytearray(file.read_bytes())
        data[offset % FILE_SIZE + rows[number]["store_size"] // 2] ^= 0xFF
        data[offset % FILE_SIZE + 4] ^= 0xFF  # the magic code, for those whose body is short
        file.write_bytes(data)
    return path, [rows[number] for number in numbers]


def last_of_a_file() -> int:
    offsets = reput.read_log(CLEAN, ["commit_log_offset"]).read_all()[0].to_pylist()
    return next(i for i, offset in enumerate(offsets) if offset >= FILE_SIZE) - 1


CASES = {
    "one": [500],
    "the first of all": [0],
    "neighbours": [300, 301, 302],
    "far apart": [10, 500, 900],
    "the last of a file": [last_of_a_file()],
    "the first of a file": [last_of_a_file() + 1],
    "both": [last_of_a_file(), last_of_a_file() + 1],
}


@pytest.mark.parametrize("case", CASES)
def test_what_follows_is_read_and_one_row_tells_of_what_is_lost(tmp_path: Path, case: str) -> None:
    path, lost = spoiled(tmp_path / "store", *CASES[case])
    rows = reput.read_log(path, mode="PERMISSIVE").read_all().to_pylist()
    damages = [row for row in rows if row["status"].startswith("DAMAGED: ")]
    assert [row for row in rows if row not in damages] == [
        row for row in reput.read_log(CLEAN).read_all().to_pylist() if row not in lost
    ]
    assert [row["commit_log_offset"] for row in rows] == sorted(row["commit_log_offset"] for row in rows)
    for row in lost:
        begin = row["commit_log_offset"]
        (damage,) = (d for d in damages if d["commit_log_offset"] <= begin < d["commit_log_offset"] + d["store_size"])
        kept = {"store", "commit_log_offset", "store_size", "status"}
        assert damage["store"] == "store"
        assert all(value is None for name, value in damage.items() if name not in kept)
        assert "magic code" in damage["status"]


def test_malformed_ones_are_dropped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, (lost,) = spoiled(tmp_path / "store", 500)
    with caplog.at_level(logging.WARNING, "reput.log"):
        rows = reput.read_log(path, mode="DROPMALFORMED").read_all().to_pylist()
    assert rows == [row for row in reput.read_log(CLEAN).read_all().to_pylist() if row != lost]
    assert f"damaged at offset {lost['commit_log_offset']}" in caplog.text
    assert f"passed over {lost['store_size']} bytes" in caplog.text


def test_failing_fast_is_the_default(tmp_path: Path) -> None:
    path, (lost,) = spoiled(tmp_path / "store", 500)
    for options in ({}, {"mode": "FAILFAST"}):
        with pytest.raises(CorruptRecordError) as caught:
            reput.read_log(path, **options).read_all()
        assert caught.value.offset == lost["commit_log_offset"]


def test_the_row_of_damage_is_in_no_topic_and_at_no_time(tmp_path: Path) -> None:
    path, (lost,) = spoiled(tmp_path / "store", 500)
    every_topic = pa.compute.unique(reput.read_log(CLEAN, ["topic"]).read_all()["topic"]).to_pylist()
    for bound in ({"topics": every_topic}, {"begin": 0}, {"end": 1 << 60}):
        rows = reput.read_log(path, mode="PERMISSIVE", **bound).read_all()
        assert rows.num_rows == 999
        assert lost["commit_log_offset"] not in rows["commit_log_offset"].to_pylist()


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    path, _ = spoiled(tmp_path / "store", 999)
    assert reput.read_log(path, mode="PERMISSIVE").read_all() == reput.read_log(CLEAN).read_all()[:999]


def test_another_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="mode: 'permissive' is none of FAILFAST, PERMISSIVE, DROPMALFORMED"):
        reput.read_log(CLEAN, mode="permissive")


@pytest.mark.parametrize(
    "command",
    [["replay", "TARGET"], ["query", "--topics", "topic-0"], ["export", "TARGET"], ["query", "--sql", "from messages"]],
)
def test_a_command_that_damage_ends_names_commands_that_there_are(tmp_path: Path, command: list[str]) -> None:
    store, _ = spoiled(tmp_path / "store", 500)
    name, *rest = (str(tmp_path / "target") if word == "TARGET" else word for word in command)
    answer = run_reput(name, store, *rest)
    assert answer.status == 2
    assert "--damaged skip" in answer.err
    named = re.findall("`(reput [^`]*)`", answer.err)
    assert "reput repair --salvage" in named or name == "export"
    assert [word for one in named for word in unknown_words(one)] == []
    assert "at the command line" not in answer.err  # other commands have no such option
