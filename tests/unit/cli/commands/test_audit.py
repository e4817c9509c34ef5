"""reput audit: exit statuses, JSON, text and the HTML report."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.support.commands import Run
from tests.support.damage import flip, overwrite


@pytest.fixture
def damaged(golden: Callable[[str], Path]) -> tuple[Path, Path]:
    """A store, and its queue file in which a bit has flipped."""
    store = golden("clean")
    path = sorted(store.glob("consumequeue/topic-1/1/*"))[0]
    flip(path, 27)
    return store, path


def test_a_clean_store_is_0_and_has_no_findings(golden: Callable[[str], Path], run_reput: Run) -> None:
    answer = run_reput("audit", golden("clean"), "--json")
    assert answer.status == 0, answer.err
    found = answer.object()
    assert (found["messages"], found["units"], found["findings"]) == (1000, 1000, [])
    assert (found["lost_findings"], found["hidden_findings"], found["harmless_findings"]) == (0, 0, 0)
    assert (found["lost_messages"], found["uncounted_bytes"]) == (0, 0)


def test_damage_is_1_and_named(damaged: tuple[Path, Path], run_reput: Run) -> None:
    store, path = damaged
    answer = run_reput("audit", store, "--json")
    assert answer.status == 1, answer.err
    (finding,) = answer.object()["findings"]
    assert (finding["code"], finding["class"], finding["path"], finding["position"]) == (
        "unit-wrong", "hidden", str(path), 20,
    )  # fmt: skip
    assert {"meaning", "advice", "text", "count", "topic", "queue_id", "queue_offset"} <= finding.keys()
    text = run_reput("audit", store)
    assert text.status == 1
    assert "unit-wrong, 1 (hidden): a unit differs from the record" in text.out
    assert str(path) in text.out


def test_what_is_harmless_is_told_and_0(golden: Callable[[str], Path], run_reput: Run) -> None:
    answer = run_reput("audit", golden("torn"))
    assert answer.status == 0, answer.err
    assert "torn-tail" in answer.out


def test_a_report_is_one_html_file(damaged: tuple[Path, Path], tmp_path: Path, run_reput: Run) -> None:
    answer = run_reput("audit", damaged[0], "--report", tmp_path / "report.html", "--work-dir", tmp_path / "work")
    assert answer.status == 1, answer.err
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "unit-wrong" in page
    assert 'id="plot-0"' in page


def test_a_broken_log_folder_is_a_finding_and_no_error(golden: Callable[[str], Path], run_reput: Run) -> None:
    store = golden("clean")
    (store / "commitlog" / "core.1234").write_bytes(b"")
    answer = run_reput("audit", store, "--json")
    assert answer.status == 1, answer.err
    assert [finding["code"] for finding in answer.object()["findings"]] == ["foreign-file"]


def test_an_index_that_the_broker_did_not_have_is_not_missed(golden: Callable[[str], Path], run_reput: Run) -> None:
    store = golden("clean")
    for path in (store / "index").iterdir():
        path.unlink()
    assert run_reput("audit", store).status == 1
    assert run_reput("audit", store, "--set", "messageIndexEnable=false").status == 0


def test_a_log_whose_records_must_carry_a_crc_and_do_not_is_1(golden: Callable[[str], Path], run_reput: Run) -> None:
    answer = run_reput("audit", golden("clean"), "--set", "forceVerifyPropCRC=true")
    assert answer.status == 1
    assert "property-crc-missing" in answer.out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--set", "mappedFileSizeCommitLog=4096"), "an audit takes max_hash_slot_num"),
        (("--runner", "nobody"), "is not one of"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    golden: Callable[[str], Path], run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    answer = run_reput("audit", golden("clean"), *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err


def test_a_report_inside_the_store_is_refused(golden: Callable[[str], Path], run_reput: Run) -> None:
    store = golden("clean")
    answer = run_reput("audit", store, "--report", store / "report.html")
    assert answer.status == 2
    assert "lies inside the store" in answer.err


def test_lost_messages_are_counted_and_findings_are_named_as_findings(
    golden: Callable[[str], Path], run_reput: Run
) -> None:
    store = golden("clean")
    before = len(reput.read_log(store, ["topic"]).read_all())
    middle = sorted((store / "commitlog").iterdir())[1]
    overwrite(middle, 2000, bytes(20_000))
    lost = before - len(reput.read_log(store, ["topic"], mode="DROPMALFORMED").read_all())
    found = run_reput("audit", store, "--json").object()
    assert (found["lost_messages"], found["lost_findings"], found["uncounted_bytes"]) == (lost, 1, 0)
    text = run_reput("audit", store).out
    assert re.search(rf"^messages lost +{lost}$", text, re.MULTILINE)
    assert re.search(r"^lost findings +1$", text, re.MULTILINE)


def test_where_no_queue_reaches_a_loss_its_bytes_are_told(golden: Callable[[str], Path], run_reput: Run) -> None:
    store = golden("clean")
    overwrite(sorted((store / "commitlog").iterdir())[1], 2000, bytes(20_000))
    shutil.rmtree(store / "consumequeue")
    found = run_reput("audit", store, "--json").object()
    assert found["lost_messages"] == 0
    assert found["uncounted_bytes"] >= 20_000
    assert f"0, and messages in {found['uncounted_bytes']} bytes that no queue reaches" in run_reput("audit", store).out


@pytest.mark.parametrize("byte", [b"KEYS", b"TAGS"])
def test_properties_that_contradict_queue_or_index_are_compared_before_a_repair(
    byte: bytes, golden: Callable[[str], Path], run_reput: Run
) -> None:
    """No CRC covers them, and a repair builds what contradicts them anew."""
    store = golden("clean")
    log = sorted((store / "commitlog").iterdir())[0]
    flip(log, log.read_bytes().index(byte) + len(byte) + 2)
    found = run_reput("audit", store, "--json").object()["findings"]
    assert found
    assert all("by reput diff first" in finding["advice"] for finding in found)
