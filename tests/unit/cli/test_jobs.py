"""What all commands of jobs have: a report, JSON, a bar with the time left, and who runs them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.commands import SMALL_FILES, Run, content_of

#: What a mail takes.
MOST_REPORT_BYTES = 1_500_000


class Job(NamedTuple):
    """How a command is run, in words: STORE and LAKE are there, OUT is not; and what it has."""

    arguments: str
    bar: str
    has_plots: bool = True
    has_runner: bool = True
    has_work_dir: bool = False


JOBS = {
    "dispatch": Job("STORE --output OUT --once --runner local", "dispatch"),
    "rebuild": Job("STORE --output OUT", "read the log"),
    "audit": Job("STORE", "read the log", has_plots=False, has_work_dir=True),
    "diff": Job("STORE STORE", "read the left store", has_plots=False, has_work_dir=True),
    "stats": Job("STORE", "read the log", has_work_dir=True),
    "query": Job("STORE --topics orders --output OUT.parquet", "read the log", has_work_dir=True),
    "export": Job("STORE OUT", "export the log"),
    "import": Job("LAKE OUT", "read and encode"),
    "replay": Job("STORE OUT --speed max", "replay", has_runner=False),
}


@pytest.fixture
def places(store: Path, tmp_path: Path, run_reput: Run) -> dict[str, str]:
    """What stands for the words of `Job.arguments`."""
    assert run_reput("export", store, tmp_path / "lake").status == 0
    return {"STORE": str(store), "LAKE": str(tmp_path / "lake"), "OUT": str(tmp_path / "out")}


def arguments_of(name: str, places: dict[str, str]) -> list[str]:
    words = [re.sub("STORE|LAKE|OUT", lambda word: places[word[0]], text) for text in JOBS[name].arguments.split()]
    return [name, *words, *(SMALL_FILES if name in ("import", "replay") else ())]


@pytest.mark.parametrize("name", JOBS)
def test_help_tells_of_what_all_jobs_have(name: str, run_reput: Run) -> None:
    text, job = run_reput(name, "--help").out, JOBS[name]
    options = set(re.findall(r"--[a-z-]+", text.partition("Options:\n")[2]))
    assert {"--json", "--report"} <= options
    assert ({"--runner", "--master"} <= options) == job.has_runner
    assert ("--work-dir" in options) == job.has_work_dir
    assert f"reput {name} " in text.partition("Example")[2]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_with_a_report_and_json_and_shows_a_bar_on_a_terminal(
    name: str, places: dict[str, str], tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    monkeypatch.setattr(sys, "argv", ["/usr/bin/reput", "of", "a", "test"])
    report = tmp_path / "report.html"
    answer = run_reput(*arguments_of(name, places), "--json", "--report", report)
    assert answer.status == 0, answer.err
    assert answer.object(), "what a program reads is on stdout, and nothing else"
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", answer.err)
    assert JOBS[name].bar in shown
    assert "100%" in shown
    assert " left" in shown
    page = report.read_text()
    assert page.startswith("<!doctype html>")
    assert ('id="plot-0"' in page) == JOBS[name].has_plots
    assert report.stat().st_size < MOST_REPORT_BYTES
    about = dict(re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", page.partition("</header>")[0]))
    assert about["command"] == "reput of a test"
    assert set(re.findall("STORE|LAKE|OUT(?!.parquet)", JOBS[name].arguments)) == {
        word for word, place in places.items() if place in about.values()
    }


@pytest.mark.parametrize("name", JOBS)
def test_a_report_in_a_store_is_refused_before_anything_is_done(
    name: str, places: dict[str, str], tmp_path: Path, run_reput: Run
) -> None:
    before = content_of(tmp_path)
    written = places["OUT"] if name in ("import", "replay") else places["STORE"]
    if name in ("import", "replay"):
        assert run_reput("put", written, "--topic", "others", "--body", "x", *SMALL_FILES).status == 0
        before = content_of(tmp_path)
    answer = run_reput(*arguments_of(name, places), "--report", Path(written) / "report.html")
    assert (answer.status, answer.out) == (2, "")
    assert "lies inside the store" in answer.err
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.has_runner])
def test_a_master_without_spark_is_refused_before_anything_is_done(
    name: str, places: dict[str, str], tmp_path: Path, run_reput: Run
) -> None:
    before = content_of(tmp_path)
    answer = run_reput(*arguments_of(name, places), "--runner", "local", "--master", "local[2]")
    assert (answer.status, answer.out) == (2, "")
    assert "master" in answer.err
    assert content_of(tmp_path) == before


def test_a_report_that_cannot_be_written_costs_not_the_result(
    places: dict[str, str], tmp_path: Path, run_reput: Run
) -> None:
    (tmp_path / "report.html.tmp").mkdir()  # stands in the way
    answer = run_reput(*arguments_of("stats", places), "--report", tmp_path / "report.html", "--json")
    assert (answer.status, answer.object()["messages"] > 0) == (2, True)
    assert "report.html.tmp" in answer.err


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.has_work_dir])
def test_a_work_folder_is_empty_in_the_end_and_never_in_the_store(
    name: str, places: dict[str, str], tmp_path: Path, run_reput: Run
) -> None:
    plain = run_reput(*arguments_of(name, places)).out
    answer = run_reput(*arguments_of(name, places), "--work-dir", tmp_path / "work")
    assert answer.status == 0, answer.err
    without_times = [re.sub(r"(seconds|a second) .*", "", text).split() for text in (plain, answer.out)]
    assert without_times[0] == without_times[1]
    assert list((tmp_path / "work").iterdir()) == []
    refused = run_reput(*arguments_of(name, places), "--work-dir", Path(places["STORE"]) / "work")
    assert (refused.status, "lies inside the store" in refused.err) == (2, True)
