"""Advice of an audit: its command, taken as it is printed, leaves a store that an audit finds clean."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support import damaged_orders as damaged
from tests.support.commands import Answer, run_reput
from tests.support.orders import closed_orders
from tests.support.shares import sampled

SALVAGED = [
    damaged.log_file_gone, damaged.log_files_gone, damaged.middle_file_and_units_gone, damaged.middle_record_broken,
    damaged.middle_file_cut, damaged.middle_file_grown,
]  # fmt: skip
MENDED_IN_PLACE = [
    damaged.first_log_file_gone,
    damaged.last_record_broken, damaged.last_records_zeroed, damaged.last_file_cut, damaged.zeros_cut_off,
    damaged.last_file_cut_and_checkpoint_ahead, damaged.last_files_zeroed, damaged.last_files_gone,
    damaged.file_among_topics, damaged.strange_file, damaged.folder_for_file,
    damaged.short_file_of_a_strange_offset, damaged.topics_gone, damaged.offsets_broken, damaged.offsets_ahead,
    damaged.checkpoint_ahead, damaged.units_zeroed, damaged.queue_file_gone, damaged.index_cut,
    damaged.wrong_type_of_queue, damaged.several,
]  # fmt: skip


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return closed_orders(tmp_path_factory.mktemp("commands") / "store")


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    """A copy to be damaged, in a folder whose name a shell would split."""
    return Path(shutil.copytree(closed_store, tmp_path / "my stores" / "store"))


def take_advice(answer: Answer) -> list[str]:
    """Run the one command that a report advises, word for word; returns its words."""
    (command,) = set(re.findall("`(reput [^`]*)`", answer.out))
    words = shlex.split(command)
    taken = run_reput(*words[1:])
    assert taken.status == 0, taken
    return words


@sampled(4)
@pytest.mark.parametrize("damage", MENDED_IN_PLACE, ids=lambda damage: damage.__name__)
def test_what_can_be_mended_in_place_is_so_by_the_advice(damage: Callable[[Path], None], store: Path) -> None:
    damage(store)
    answer = run_reput("audit", store)
    assert answer.status == 1
    assert take_advice(answer) == ["reput", "repair", str(store), "--apply"]
    assert run_reput("audit", store).status == 0


@sampled(4)
@pytest.mark.parametrize("command", ["audit", "repair"])
@pytest.mark.parametrize("damage", SALVAGED, ids=lambda damage: damage.__name__)
def test_a_log_with_records_after_damage_is_salvaged_by_the_advice(
    damage: Callable[[Path], None], command: str, store: Path
) -> None:
    damage(store)
    answer = run_reput(command, store)
    assert answer.status == 1
    new_store = f"{store}.salvaged"
    assert take_advice(answer) == ["reput", "repair", str(store), "--salvage", new_store, "--apply"]
    assert run_reput("audit", new_store).status == 0


def test_a_log_elsewhere_and_settings_are_in_the_command(store: Path, tmp_path: Path) -> None:
    (store / "commitlog").rename(tmp_path / "log")
    shutil.rmtree(store / "index")
    damaged.units_zeroed(store)
    options = ("--commit-log-path", str(tmp_path / "log"), "--set", "messageIndexEnable=false")
    words = take_advice(run_reput("audit", store, *options))
    assert words == ["reput", "repair", str(store), *options, "--apply"]
    assert run_reput("audit", store, *options).status == 0
    assert not (store / "index").exists()


def test_a_setting_that_is_given_is_in_the_command_also_where_it_is_rocketmqs_default(store: Path) -> None:
    """Without it 48 hours would count, and the repair would not see what the audit has found."""
    damaged.first_log_file_gone(store)
    options = ("--set", "fileReservedTime=72")
    later_s = time.time() + 60 * 3600
    with patch("reput.jobs.audit.log_findings.time.time", lambda: later_s):
        assert run_reput("audit", store).status == 0
        words = take_advice(run_reput("audit", store, *options))
        assert words == ["reput", "repair", str(store), *options, "--apply"]
        assert run_reput("audit", store, *options).status == 0


def test_a_missing_log_file_is_one_finding_that_counts_what_leads_there(store: Path) -> None:
    damaged.log_files_gone(store)
    (finding,) = run_reput("audit", store, "--json").object()["findings"]
    lost = 32_768
    assert (finding["code"], finding["path"], finding["commit_log_offset"], finding["count"]) == (
        "log-file-missing", str(store / "commitlog" / f"{16_384:020d}"), 16_384, 2,
    )  # fmt: skip
    assert finding["text"] == (
        f"2 files are not there: bytes 16384 to {16_384 + lost}; 102 units of queues and 204 entries of the index "
        "lead there"
    )
    assert f"`reput repair {shlex.quote(str(store))} --salvage" in finding["advice"]


def test_a_missing_log_file_comes_before_all_other_findings(store: Path) -> None:
    damaged.log_file_gone(store)
    damaged.checkpoint_ahead(store)
    damaged.strange_file(store)
    (store / "commitlog/00000000000000000000").write_bytes(bytes(16_384))
    codes = [finding["code"] for finding in run_reput("audit", store, "--json").object()["findings"]]
    assert codes[0] == "log-file-missing"
    assert "foreign-file" in codes
    assert run_reput("repair", store).out.split("finding  ")[1].startswith("the log is not mended in place")
