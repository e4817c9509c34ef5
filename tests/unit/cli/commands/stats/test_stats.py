"""reput stats: counts by group and time, as text, JSON and HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.jobs.job_folder import JobFolder
from tests.support.commands import Run, truth
from tests.support.damage import flip


def test_counts_are_those_of_the_records(golden: Callable[[str], Path], run_reput: Run) -> None:
    answer = run_reput("stats", golden("clean"), "--by", "topic,queue", "--json")
    assert answer.status == 0, answer.err
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for _, size, topic, queue_id, *_ in truth("clean", "log"):
        counts[topic, queue_id] += 1
        sizes[topic, queue_id] += int(size)
    found = answer.object()
    assert {(g["topic"], str(g["queue_id"])): g["messages"] for g in found["groups"]} == counts
    assert {(g["topic"], str(g["queue_id"])): g["bytes"] for g in found["groups"]} == sizes
    assert (found["messages"], found["log_bytes"]) == (1000, sizes.total())


def test_topics_are_those_that_count(golden: Callable[[str], Path], run_reput: Run) -> None:
    counts = Counter(topic for _, _, topic, *_ in truth("clean", "log"))
    some = sorted(counts)[:2]
    answer = run_reput("stats", golden("clean"), "--topics", f"{','.join(some)},nothing", "--by", "topic", "--json")
    assert {group["topic"]: group["messages"] for group in answer.object()["groups"]} == {
        topic: counts[topic] for topic in some
    }
    assert answer.object()["messages"] == sum(counts[topic] for topic in some)
    assert "nothing" in answer.err


def test_a_bucket_adds_the_time(store: Path, run_reput: Run) -> None:
    groups = run_reput("stats", store, "--by", "topic", "--bucket", "1d", "--json").object()["groups"]
    assert sum(group["messages"] for group in groups) == 5
    assert all(group["store_timestamp"] % 86_400_000 == 0 for group in groups)
    born = run_reput("stats", store, "--by", "", "--bucket", "1d", "--time-of", "born", "--json").object()["groups"]
    assert set(born[0]) == {"born_timestamp", "messages", "bytes", "body_bytes"}


def test_text_shows_totals_and_the_largest_groups(golden: Callable[[str], Path], run_reput: Run) -> None:
    answer = run_reput("stats", golden("clean"))
    assert re.search(r"The largest groups, 40 of \d\d", answer.out)
    assert "Who uses the disk" in answer.out
    assert len(answer.out.splitlines()) < 90


@pytest.mark.parametrize("arguments", [(), ("--by", "topic", "--bucket", "1h"), ("--by", "", "--bucket", "1m")])
def test_a_report_is_one_html_file_with_a_plot(
    store: Path, tmp_path: Path, run_reput: Run, arguments: tuple[str, ...]
) -> None:
    answer = run_reput("stats", store, "--report", tmp_path / "report.html", *arguments)
    assert answer.status == 0, answer.err
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert 'id="plot-0"' in page


def test_an_empty_store_has_no_groups(golden: Callable[[str], Path], run_reput: Run, tmp_path: Path) -> None:
    path = golden("empty")
    answer = run_reput("stats", path, "--report", tmp_path / "report.html", "--json")
    assert (answer.status, answer.object()["groups"]) == (0, [])
    assert run_reput("stats", path).status == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--by", "colour"), "colour"),
        (("--bucket", "often"), "often"),
        (("--time-of", "death"), "is not one of"),
        (("--runner", "nobody"), "is not one of"),
        (("--report", "no-such-folder/report.html"), "its folder does not exist"),
        (("--report", "/"), "'/' is a folder"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    store: Path, run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    answer = run_reput("stats", store, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err
    assert answer.err.count("\n") == 1


def test_a_report_in_a_folder_of_others_is_refused_before_the_job(
    store: Path, tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reput.files.FileLayer.may_write", lambda _, path: path != str(tmp_path)
    )  # root may write everywhere
    answer = run_reput("stats", store, "--report", tmp_path / "report.html")
    assert (answer.status, answer.out) == (2, "")
    assert "nothing can be written in its folder; name another one" in answer.err


def test_damage_is_a_finding_and_the_rest_is_counted(store: Path, run_reput: Run) -> None:
    path = store / "commitlog" / ("0" * 20)
    flip(path, 4)
    answer = run_reput("stats", store, "--json")
    assert (answer.status, answer.object()["messages"]) == (1, 4)
    assert answer.err.startswith(f"reput: {path}: damaged at offset 0: ")
    assert answer.err.count("\n") == 1
    assert f"finding  {path}: damaged at offset 0: " in run_reput("stats", store).out


def test_latencies_keys_hosts_and_disk_use_are_told(store: Path, run_reput: Run) -> None:
    found = run_reput("stats", store, "--by", "key", "--latency", "--largest", 2, "--json").object()
    assert {group["key"]: group["messages"] for group in found["groups"]} == {"o-1": 1, "o-2": 4, None: 1}
    assert all(group["latency_p50_ms"] <= group["latency_max_ms"] for group in found["groups"])
    assert [body["body_bytes"] for body in found["largest"]] == [11, 9]
    assert [(topic["topic"], topic["messages"], topic["share"]) for topic in found["topics"]] == [("orders", 5, 1.0)]
    assert [file["deleted"] for file in found["files"]][-1] is None
    (host,) = run_reput("stats", store, "--by", "host", "--json").object()["groups"]
    assert ":" not in host["born_host"]


def test_reserved_time_moves_when_retention_deletes(store: Path, run_reput: Run) -> None:
    usual = run_reput("stats", store, "--json").object()["files"][0]
    short = run_reput("stats", store, "--json", "--set", "fileReservedTime=1").object()["files"][0]
    assert usual["expires"] - usual["modified"] == 72 * 3_600_000
    assert short["expires"] - short["modified"] == 3_600_000


def test_a_work_folder_is_for_one_question_and_left_empty(store: Path, tmp_path: Path, run_reput: Run) -> None:
    work = tmp_path / "work"
    with JobFolder(work, "stats", {"store": str(store)}):
        pass  # killed with other options
    refused = run_reput("stats", store, "--work-dir", work, "--json")
    assert (refused.status, refused.out) == (2, "")
    assert "begun with other options: by was null" in refused.err
    answer = run_reput("stats", store, "--work-dir", tmp_path / "other", "--json")
    assert answer.object()["messages"] == 5
    assert list((tmp_path / "other").iterdir()) == []
    assert "lies inside the store" in run_reput("stats", store, "--work-dir", store / "work").err
