"""reput top: what arrives in a store, drawn and as JSON, without touching it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import reput
from reput.cli.display import output
from reput.cli.display.screen import draw, duration
from reput.files import DISK
from reput.formats.metadata import ConsumerOffsets
from reput.jobs.report.table import format_value
from reput.store.config_files import persist_metadata
from reput.store.runtime_info import GroupInfo, RuntimeInfo, TopicInfo
from tests.support.commands import GOLDEN, Run, content_of
from tests.support.shares import sampled
from tests.support.terminal import shown_on_a_terminal

#: A number or a time that stands alone, not in a name or a path.
NUMBER = r"(?<!\S)\d[\d,:TZ-]*(?!\S)"


@pytest.mark.parametrize("case", ["clean", "killed", "empty"])
def test_one_screen_of_a_store_of_rocketmq(golden: Callable[[str], Path], run_reput: Run, case: str) -> None:
    store = golden(case)
    before = content_of(store)
    answer = run_reput("top", store, "--once", "--interval", 0)
    assert (answer.status, answer.err) == (0, "")
    assert str(store) in answer.out
    assert "0 messages/s, 0 B/s" in answer.out
    assert ("its writer was killed" in answer.out) == (case == "killed")
    assert ("topic-0" in answer.out) == (case != "empty")
    assert content_of(store) == before


def test_two_looks_as_json_have_rates_in_the_second(store: Path, run_reput: Run) -> None:
    first, second = run_reput("top", store, "--once", "--interval", 0, "--json").lines()
    assert (first["messages_per_second"], first["bytes_per_second"]) == (None, None)
    assert set(second["messages_per_second"].values()) == {0}
    assert second["runtime_info"]["commitLogMaxOffset"] == first["runtime_info"]["commitLogMaxOffset"] > 0


def test_info_has_the_whole_snapshot_and_shows_groups(store: Path, run_reput: Run) -> None:
    (queue, *_) = run_reput("info", store, "--json").object()["queues"]
    persist_metadata(str(store), ConsumerOffsets({f"{queue['topic']}@billing": {queue["queue_id"]: 1}}), DISK)
    info = run_reput("info", store, "--json").object()["runtime_info"]
    (group,) = info["groups"]
    messages = sum(topic["messages"] for topic in info["topics"] if topic["topic"] == queue["topic"])
    assert group["fallBehindMessages"] == messages - 1
    assert (info["putTps"], info["dispatchBehindBytes"]) == (None, 0)
    text = run_reput("info", store).out
    assert "billing" in text
    assert "dispatch lag" in text


def test_the_help_says_that_the_time_lag_ends_at_the_last_message(run_reput: Run) -> None:
    text = " ".join(run_reput("top", "--help").out.split())
    assert "`time lag` is the time from the first message that a group lacks to the last one of the store" in text


def test_a_damaged_file_of_offsets_is_a_finding(store: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # however long the store's path is
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_bytes(b"{")
    answer = run_reput("info", store)
    assert answer.status == 1
    assert "consumerOffset.json: damaged at offset 1" in answer.err
    screen = run_reput("top", store, "--once", "--interval", 0).out
    assert "consumerOffset.json:damagedatoffset1" in "".join(screen.split())  # lines break where the path's length says


def look_at(store: Path, topics: int, groups: int) -> RuntimeInfo:
    """What a store would look like with so many topics and groups."""
    with reput.MessageStore.open(store, read_only=True) as opened:
        info = opened.runtime_info()
    names = [f"a-topic-with-a-rather-long-name-{number:03}" for number in range(topics)]
    return replace(
        info,
        topics=tuple(TopicInfo(name, 4, 1_234_567, 1_234_567) for name in names),
        groups=tuple(GroupInfo(f"a-consumer-group-with-a-long-name-{i}", names[0], i, i) for i in range(groups)),
    )


@sampled(3)
@pytest.mark.parametrize("width", [30, 50, 60, 80, 120])
@pytest.mark.parametrize("height", [24, 50])
@pytest.mark.parametrize(("topics", "groups"), [(0, 0), (1, 1), (40, 0), (40, 20)])
def test_a_screen_fits_the_terminal_and_has_the_fastest_topics(
    store: Path, width: int, height: int, topics: int, groups: int
) -> None:
    info = look_at(store, topics, groups)
    rates = {topic.topic: 1_234_567.0 + number for number, topic in enumerate(info.topics)}
    console = Console(width=width, height=height, record=True, file=StringIO())
    console.print(draw("/a/store", "closed cleanly", info, rates, 1e6, width, height))
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("q ends. As the files show")
    shown = [line for line in lines if "234" in line and line.startswith("a-")]
    assert len(shown) == min(topics, len(shown) if topics > 5 else topics)
    numbers = [int(line.rpartition("  ")[2].replace(",", "")) for line in shown]
    assert numbers == sorted(numbers, reverse=True)
    assert not shown or numbers[0] == 1_234_567 + topics - 1
    if topics == 40:
        assert any(" more  " in line for line in lines)


@sampled(2)
@pytest.mark.parametrize("height", [24, 1 << 16])
def test_a_screen_of_any_width_cuts_no_number(store: Path, height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    info = look_at(store, 0, 0)
    names = [chr(ord("a") + number) * 30 for number in range(20)]
    rates = {name: 98_765_432.0 - number for number, name in enumerate(names)}
    info = replace(
        info,
        commit_log_max_offset=(1 << 53) + info.commit_log_min_offset,
        latest_message_time_stamp=1_795_245_260_884,
        dispatch_behind_bytes=0,
        commit_log_disk_ratio=0.87,
        disk_free_bytes=5 << 40,
        topics=tuple(TopicInfo(name, 16, 12_345_678_901, 0) for name in names),
        groups=tuple(GroupInfo(name, name, 123_456_789, 180_000) for name in names),
        findings=("x.json: damaged at offset 1234567890123",),
    )
    whole = {
        *("98,765,432", "12,345,678,901", "16", "123,456,789", "3", "1234567890123", "87%", "5.0", "1.0", "0"),
        *(str(info.commit_log_max_offset), "8.0", "1", "2026-11-21", "07:14:20.884"),
        *(format_value(round(rate)) for rate in (sum(rates.values()), *rates.values())),
    }
    for rest in range(1, 21):  # of "7 more"
        rated = sum(round(rates[name]) for name in names[-rest:])
        whole |= {str(rest), *map(format_value, (rest * 16, rest * 12_345_678_901, rated))}
    for width in range(20, 141):
        console = Console(width=width, height=50, record=True, file=StringIO())
        console.print(
            draw("/a/store", "open for writing by process 1234567890123", info, rates, 1 << 20, width, height)
        )
        text = console.export_text()
        assert max(map(len, text.splitlines())) <= width
        numbers = set(re.findall(r"\d[^\s\]Z]*", text))
        assert numbers <= whole, width
        assert {"98,765,432", format_value(sum(rates.values())), str(info.commit_log_max_offset)} <= numbers, width
        assert ("123,456,789" in numbers) or height == 24


@sampled(3)
@pytest.mark.parametrize("width", [30, 50])
@pytest.mark.parametrize("command", ["top --once --interval=0", "info", "query --topics=topic-2"])
def test_a_narrow_terminal_shows_whole_numbers_and_times(run_reput: Run, width: int, command: str) -> None:
    name, *options = command.split()
    arguments = [name, str(GOLDEN / "clean/store"), *options]
    text = shown_on_a_terminal(arguments, width, "stdout")
    assert max(map(len, text.splitlines())) <= width
    whole = set(re.findall(NUMBER, run_reput(*arguments).out))
    shown = set(re.findall(NUMBER, re.sub(r"[\d,]+(?=\s+(bytes\s+free|%\s+full))", "", text)))  # others write
    assert len(shown) > 3
    assert {number.replace(",", "") for number in shown} <= whole


@sampled(2)
@pytest.mark.parametrize(("width", "has_times"), [(30, False), (50, True)])
def test_a_progress_bar_of_a_narrow_terminal_cuts_nothing(width: int, has_times: bool) -> None:
    text = shown_on_a_terminal(["stats", str(GOLDEN / "clean/store"), "--json"], width, "stderr")
    assert "read the log" in text
    assert "100%" in text
    assert "…" not in text
    assert ("0:00:0" in text) == has_times


def test_a_name_cannot_send_commands_to_the_terminal(store: Path) -> None:
    info = replace(
        look_at(store, 1, 0),
        topics=(TopicInfo("\x1b[2Jt", 1, 1, 1),),
        groups=(GroupInfo("\x1b[2Jg", "\x1b[2Jt", 1, None),),
        findings=("\x1b[2J",),
    )
    console = Console(width=80, record=True, file=StringIO())
    console.print(draw("/a/\x1b[2J", "", info, None, None, 80, 24))
    text = console.export_text()
    assert "\x1b" not in text
    assert "unknown" in text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (7_200_000, "2 h"),
        (10**9, "11 d"),
    ],
)
def test_durations_are_in_the_largest_unit(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@sampled(2)
@pytest.mark.parametrize("end", ["q", "interrupt"])
def test_a_terminal_shows_screens_until_q_or_interrupt(store: Path, end: str) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "reput", "top", str(store), "--interval", "60"],
        stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"q ends" not in shown:
        shown += os.read(controller, 65536)
    os.write(controller, b"q") if end == "q" else process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    assert json.dumps(str(store))[1:-1].encode()[:20] in shown
    os.close(controller)
