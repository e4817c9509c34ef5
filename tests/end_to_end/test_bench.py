"""The measurements run as users run them, on a hundredth of their size, and answer for every goal."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.bench import messages
from lab.bench.figures import Figure, Goal, Other
from lab.bench.main import QUESTIONS
from lab.bench.publish import CHOSEN, chosen, overview, parts
from lab.bench.report import format_value, print_others, print_verdicts
from lab.campaign.pages import BEGIN, END

ROOT = Path(__file__).parents[2]
#: What reput should reach: at least so many a second, at most so many seconds or microseconds.
GOALS = {
    "put_arrow, appended, dispatch running, recycled memory": ("least", 1_500_000),
    "put_message, ASYNC_FLUSH, 1 thread": ("least", 150_000),
    "put_message, ASYNC_FLUSH, 1 thread, p99": ("most", 50),
    "put_message, ASYNC_FLUSH, 16 threads": ("least", 150_000),
    "put_message, SYNC_FLUSH, 16 threads": ("least", 20_000),
    "get of 32 as views": ("most", 5),
    "query_message, one key a call": ("least", 200_000),
    "query_messages, 1000 keys a call": ("least", 2_000_000),
    "rebuild of queues and index, synced": ("least", 3_000_000),
    "export to Parquet, all columns, synced": ("least", 1_200_000),
    "import from Parquet, all columns, synced": ("least", 500_000),
    "audit, one thread": ("least", 1),
    "put_message beside a backup, the longest": ("most", 10),
    "read_log, all columns": ("least", 3_000_000),
    "statistics by topic, queue and hour": ("least", 4_000_000),
    "sink of messages that Spark makes": ("least", 500_000),
    "sink of messages that Spark makes, batches by rows": ("least", 500_000),
    "import reput": ("most", 0.15),
    "open of an empty store": ("most", 0.6),
    "put_arrow over many queues, part of the rate over ten": ("least", 0.9),
    "put_message over many queues, part of the rate over ten": ("least", 0.9),
    "put_arrow over many queues, appended and dispatched": ("least", 1_000_000),
    "close of many queues, all written": ("most", 5),
    "open of many queues after a clean exit": ("most", 5),
    "open of many queues after a kill": ("most", 5),
    "resident memory with a filled store open and idle": ("most", 200),
    "anonymous memory while a reader of 1 GB is put, over the memory before": ("most", 200),
    "most resident memory of a rebuild, one worker": ("most", 500),
    "spark source, all columns": ("least", 600_000),
    "spark source, without maps and lists": ("least", 900_000),
    "spark source, five small columns": ("least", 3_000_000),
    "spark source, most resident memory of a Python worker": ("most", 1000),
    "stream, append to visible row, idle, p50": ("most", 100),
    "stream, append to visible row, 200 k msg/s, p50": ("most", 1000),
    **{
        f"task of Spark's at a broker that gives {messages} messages a pull, {columns} columns, of a core": (
            "least",
            500_000,
        )
        for messages in (32, 2048)
        for columns in (5, 22)
    },
    "dispatch, behind a writer of 200 k msg/s, p50": ("most", 1000),
    "dispatch, behind a writer of 200 k msg/s, p99": ("most", 1000),
    "Iceberg, catch-up, Spark on two cores": ("least", 1_000_000),
    "Iceberg, from put to readable row, 50 k msg/s, interval of 1 s, p99": ("most", 5),
}
#: How many times as fast as somebody else it should be, who did the same in the same run.
TIMES = {
    "put_arrow, appended and dispatched, recycled memory": 5,
    "put_arrow, SYNC_FLUSH, durable": 0.8,
    "put_messages, 1000 a call, appended and dispatched": 5,
    "put_message, ASYNC_FLUSH, 1 thread": 0.6,
    "put_message, ASYNC_FLUSH, 16 threads": 0.6,
    "put_message, SYNC_FLUSH, 1 thread": 0.9,
    "put_message, SYNC_FLUSH, 16 threads": 1.4,
    "put_message, SYNC_FLUSH, 64 threads": 1.4,
    "get of 32 as views": 2,
    "get of 1000 as Arrow": 2.5,
    "query_message, one key a call": 2,
    "query_messages, 1000 keys a call": 20,
    "rebuild of queues and index, synced": 8,
    "recovery of a killed store": 8,
    "slave of reput's master, catch-up until dispatched": 3,
    "slave of RocketMQ's master, catch-up until dispatched": 3,
}
#: The machine's own figures, without which the others say nothing.
LIMITS = {"memcpy, one thread", "page cache pwrite, recycled", "fdatasync of small writes"}


def bench(directory: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What a quick run prints, and the JSON that it keeps."""
    command = [sys.executable, "-m", "lab.bench.main", "--quick", "--directory", str(directory), *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (kept,) = directory.iterdir()  # and nothing of the data is left
    return run.stdout, json.loads(kept.read_text())


@pytest.mark.java
@pytest.mark.campaign
def test_a_quick_run_has_a_figure_for_every_goal(tmp_path: Path) -> None:
    printed, kept = bench(tmp_path)
    figures = {figure["name"]: figure for answers in kept["questions"].values() for figure in answers}
    goals = {name: figure["goal"] for name, figure in figures.items() if figure["goal"]}
    assert goals == {
        name: {"least": None, "most": None, "stretch": None} | {side: bound} for name, (side, bound) in GOALS.items()
    }
    assert set(figures) >= LIMITS
    assert all(value > 0 for figure in figures.values() for value in figure["values"])
    assert all(figure["ratio"] > 0 for figure in figures.values() if figure["limit"])
    others = {name: figure["other"] for name, figure in figures.items() if figure["other"]}
    assert {name: other["least"] for name, other in others.items() if other["least"]} == TIMES
    assert all(value > 0 for other in others.values() for value in other["values"])
    assert all(f"  {name}  " in printed for name in others)
    verdicts = [line for line in printed.splitlines() if line.startswith(("met ", "missed "))]
    assert [line.rpartition(": ")[0].split(maxsplit=1)[1] for line in verdicts] == list(GOALS)


def test_every_question_has_its_place_on_a_page_of_figures() -> None:
    figure = Figure("ours", "msg/s", [4.0, 9.0, 5.0], Goal(least=6), other=Other("theirs", [2.0, 3.0, 1.0], least=2))
    run = {
        "begun": "2026-11-26", "scale": 1, "repeats": 3, "reput": "0", "python": "3", "numpy": "2", "numba": "0",
        "pyarrow": "21", "system": "Linux", "processors": 2, "load_at_the_start": 0.5,
        "questions": {name: [figure.to_json()] for name in ("limits", *QUESTIONS)},
    }  # fmt: skip
    written = overview(run)
    assert "Not measured in this run" not in written
    assert f"| goals met | 0 of {len(QUESTIONS) + 1} |" in written
    row = (
        "| ours | 5 msg/s (4 .. 9) | 2 msg/s, theirs | 2.50 (2 .. 5) | ≥ 6 msg/s, ≥ 2 times (prototype) | **missed** |"
    )
    pages = parts(run)
    assert row in pages["figures-writing.md"]
    assert sum(page.count("\n## ") for page in pages.values()) == len(QUESTIONS)
    del run["questions"]["audit"]  # type: ignore[attr-defined]
    assert "Not measured in this run: Audit.\n" in overview(run)
    assert "## Audit" not in "".join(parts(run).values())
    failed = Figure("pulls: failed requests, reput", "requests", [3.0], Goal(most=0))
    run["questions"]["broker.pulls"].append(failed.to_json())  # type: ignore[index]
    assert "Not measured in this run: Audit; Pulls.\n" in overview(run)
    failed.values = [0.0]
    run["questions"]["broker.pulls"][1] = failed.to_json()  # type: ignore[index]
    assert "Not measured in this run: Audit.\n" in overview(run)
    with pytest.raises(ValueError, match="the run has no figure of put_arrow, appended and dispatched"):
        chosen(run)
    run["questions"]["another"] = []  # type: ignore[index]
    with pytest.raises(ValueError, match="no place for another"):
        overview(run)


#: Rows of README's table, and the figures that they show.
README_ROWS = {
    "rebuild of queues and index": "rebuild of queues and index, synced",
    "put of an Arrow table, until it can be consumed": "put_arrow, appended and dispatched, recycled memory",
    "start of a 1 GB store after a kill": "recovery of a killed store",
    "queries of one key each": "query_message, one key a call",
    "single puts of 64 threads, each synced": "put_message, SYNC_FLUSH, 64 threads",
}


def test_the_pages_of_figures_and_readme_show_the_run_that_is_kept() -> None:
    run = json.loads((ROOT / "lab/figures.json").read_text())
    for page, written in (("docs/figures.md", chosen(run)), ("lab/figures.md", overview(run))):
        _, _, rest = (ROOT / page).read_text().partition(BEGIN)
        assert rest.partition(END)[0] == written
    assert {path.name: path.read_text() for path in (ROOT / "lab").glob("figures-*.md")} == parts(run)
    others = {one["name"]: one["other"] for figures in run["questions"].values() for one in figures if one["other"]}
    readme = (ROOT / "README.md").read_text()
    shown = {row: float(times) for row, times in re.findall(r"^\| (.+) \| ([0-9.]+) \|$", readme, re.MULTILINE)}
    assert shown == {row: float(f"{others[name]['times']:.2g}") for row, name in README_ROWS.items()}


def test_what_users_ask_about_is_in_the_run_that_is_kept_and_has_what_reput_loses() -> None:
    run = json.loads((ROOT / "lab/figures.json").read_text())
    names = {one["name"] for figures in run["questions"].values() for one in figures}
    assert set(CHOSEN.values()) <= names
    assert len(CHOSEN) == 15
    text = chosen(run)
    assert f"| date | {run['begun'][:10]} |" in text
    assert text.count("**missed**") >= 5


@pytest.mark.slow
def test_one_question_alone_prints_its_json(tmp_path: Path) -> None:
    printed, kept = bench(tmp_path, "--only", "put_message", "--json", "--without-apache")
    assert json.loads(printed) == kept
    assert not any(figure["other"] for figure in kept["questions"]["put_message"])
    assert list(kept["questions"]) == ["limits", "put_message"]


def test_a_goal_is_met_at_its_bound() -> None:
    assert Goal(least=5).is_met(5)
    assert not Goal(least=5).is_met(4.9)
    assert Goal(most=5).is_met(5)
    assert not Goal(most=5).is_met(5.1)


@pytest.mark.parametrize(("unit", "times"), [("msg/s", 0.5), ("us a call", 2)])
def test_a_time_is_better_when_it_is_shorter(unit: str, times: float) -> None:
    figure = Figure("ours", unit, [100.0, 90.0, 500.0], other=Other("theirs", [200.0], least=0.5))
    assert figure.times == times
    assert figure.keeps_up
    figure.other = Other("theirs", [200.0], least=2.1)
    assert not figure.keeps_up


def test_a_part_of_anothers_time_is_bounded_in_each_unit() -> None:
    figure = Figure("ours", "us", [60.0, 30.0, 50.0], other=Other("theirs", [100.0, 100.0, 200.0], most=0.5))
    assert figure.part == 0.5
    assert figure.rounds == [0.6, 0.3, 0.25]
    assert figure.keeps_up
    figure.other = Other("theirs", [99.0, 99.0, 99.0], most=0.5)
    assert not figure.keeps_up
    rate = Figure("ours", "msg/s", [4.0, 9.0], other=Other("theirs", [2.0, 3.0], least=2))
    assert rate.rounds == [2, 3]
    rate.values.append(5.0)
    assert rate.rounds == []  # no pairs


def test_the_table_of_others_says_who_and_whether_the_goal_was_met() -> None:
    printed = io.StringIO()
    figures = [
        Figure("fast", "msg/s", [5e6], other=Other("theirs", [1e6, 1e6], least=5)),
        Figure("slow", "s", [2.0, 4.0], other=Other("theirs", [1.5], least=2)),
        Figure("informs", "s", [2.0], other=Other("theirs", [4.0])),
        Figure("small", "us", [2.0, 3.0], other=Other("theirs", [4.0, 12.0], most=0.6, stretch=0.25)),
    ]
    print_others(Console(file=printed, width=230), {"question": [*figures, Figure("alone", "s", [1.0])]})
    rows = [line.split() for line in printed.getvalue().splitlines() if "theirs " in line and "beside" not in line]
    assert rows == [
        ["fast", "msg/s", "5", "M", "theirs", "1", "M", "1", "M", "..", "1", "M", "5.00", ">=", "5", "met"],
        ["slow", "s", "3", "2", "..", "4", "theirs", "1.5", "0.50", ">=", "2", "missed"],
        ["informs", "s", "2", "theirs", "4", "2.00"],
        "small us 2.5 2 .. 3 theirs 8 4 .. 12 0.31 of it 0.25 .. 0.50 <= 0.6 (0.25) met".split(),
    ]


def test_the_verdict_names_value_and_goal() -> None:
    printed = io.StringIO()
    slow = Figure("slow", "msg/s", [90.0, 110.0, 100.0], goal=Goal(least=150_000))
    fast = Figure("fast", "s", [0.01], goal=Goal(most=0.15, stretch=0.005))
    print_verdicts(Console(file=printed, width=40), {"question": [slow, Figure("no goal", "s", [1.0]), fast]})
    assert printed.getvalue() == (
        "missed  slow: 100 msg/s, goal >= 150 k\nmet     fast: 0.01 s, goal <= 0.15 (0.005)\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (2.5, "2.5"), (98.14, "98.1"), (9_999, "9999"), (150_000, "150 k"), (16_200_000, "16.2 M")],
)
def test_values_are_shown_with_three_digits(value: float, text: str) -> None:
    assert format_value(value) == text


def test_the_messages_that_are_measured_have_the_size_that_the_limits_assume(tmp_path: Path) -> None:
    import reput

    with reput.MessageStore.open(tmp_path / "store") as store:
        result = store.put_message(messages.message(1, payload=messages.body(1)))
        assert result.size == messages.RECORD_SIZE
        assert store.put_arrow(messages.table(3)).end_offset == 4 * messages.RECORD_SIZE
