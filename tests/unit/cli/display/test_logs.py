"""Logs of commands that serve: their lines, their levels, and how many there are."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from reput.cli.display.logs import LineFormatter, LineWriter, RateBound, logs_on_stderr
from reput.events import Event

logger = logging.getLogger("reput.test")


def record(level: int, message: object, *, created: float = 0.0) -> logging.LogRecord:
    made = logging.LogRecord("reput.test", level, "", 0, message, None, None)
    made.created = created
    return made


def test_a_line_has_time_level_logger_message_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with logs_on_stderr("info", as_json=False):
        logger.info(Event("topic deleted", topic="a b"))
    line = capsys.readouterr().err
    time, rest = line.split(" ", 1)
    assert datetime.fromisoformat(time.removeprefix("time=")).tzinfo == UTC
    assert len(time) == len("time=2026-01-02T03:04:05.678Z")
    assert rest == 'level=info logger=reput.test msg="topic deleted" topic="a b"\n'


def test_a_line_is_an_object_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    with logs_on_stderr("info", as_json=True):
        logger.warning(Event("a sync is late", sends=7))
        logging.getLogger("another").warning("a text of %s", "others")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert list(first) == ["time", "level", "logger", "message", "sends"]
    assert (first["level"], first["message"], first["sends"]) == ("warning", "a sync is late", 7)
    assert (second["logger"], second["message"]) == ("another", "a text of others")


def test_a_time_is_utc_with_milliseconds() -> None:
    line = LineFormatter(as_json=False).format(record(logging.INFO, Event("m"), created=1_700_000_000.0))
    assert line == "time=2023-11-14T22:13:20.000Z level=info logger=reput.test msg=m"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_left_out(
    level: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with logs_on_stderr(level, as_json=True):
        for name in ("debug", "info", "warning", "error"):
            logger.log(logging.getLevelNamesMapping()[name.upper()], Event(name))
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == expected


def test_an_exception_is_a_field_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with logs_on_stderr("info", as_json=False):
        try:
            raise ValueError("a bug")
        except ValueError:
            logger.exception(Event("request failed", code=11))
    (line,) = capsys.readouterr().err.splitlines()
    assert 'msg="request failed" code=11 exception="Traceback' in line
    assert "ValueError: a bug" in line


def test_repeated_warnings_are_one_line_in_ten_seconds_with_their_number() -> None:
    times: Iterator[float] = iter([0.0, 1.0, 9.9, 9.9, 10.0, 10.5, 30.0])
    bound = RateBound(lambda: next(times))
    seen = [record(logging.WARNING, Event("refused", client=str(number))) for number in range(3)]
    other = record(logging.WARNING, Event("closed"))
    assert [bound.filter(one) for one in seen] == [True, False, False]
    assert bound.filter(other)  # another message
    more = [record(logging.WARNING, Event("refused", client="x")) for _ in range(3)]
    assert [bound.filter(one) for one in more] == [True, False, True]
    assert [one.repeated for one in (seen[0], other, more[0], more[2])] == [0, 0, 2, 1]


def test_warnings_with_other_errors_are_other_lines_up_to_ten() -> None:
    """The error is the text: each one is told, but a client that makes new ones cannot fill a disk."""
    bound = RateBound(lambda: 0.0)
    seen = [record(logging.WARNING, Event("not used", error=str(number // 2))) for number in range(40)]
    assert [bound.filter(one) for one in seen] == [True, False] * 10 + [False] * 20


def test_of_repeated_informations_there_are_a_hundred_in_ten_seconds() -> None:
    times = iter([0.0] * 50 + [9.0] * 55 + [10.0])
    bound = RateBound(lambda: next(times))
    seen = [record(logging.INFO, Event("consumer joined", client=str(number))) for number in range(106)]
    assert [bound.filter(one) for one in seen] == [True] * 100 + [False] * 5 + [True]
    assert [seen[0].repeated, seen[99].repeated, seen[105].repeated] == [0, 0, 5]


def test_what_was_left_out_is_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with logs_on_stderr("info", as_json=True):
        for number in range(1000):
            logger.warning(Event("refused", number=number))
    first, last = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["number"], "repeated" in first) == (0, False)
    assert (last["number"], last["repeated"]) == (999, 998)


def test_who_logs_waits_for_no_reader_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reput.cli.display.logs._MOST_WAITING", 5)
    reader, writer = os.pipe()
    with open(writer, "w") as stream, open(reader, "rb") as read:
        handler = LineWriter(stream)
        handler.setFormatter(LineFormatter(as_json=True))
        lines = 2000  # a pipe takes 64 KiB: a thread that wrote them itself would stand still here
        for number in range(lines):
            handler.handle(record(logging.INFO, Event("m", number=number, text="x" * 200)))
        assert handler._dropped
        found: list[dict[str, Any]] = []
        while not (found and found[-1].get("number") == lines):
            if handler._lines.empty():  # it is read again: the next line says what was dropped
                handler.handle(record(logging.INFO, Event("m", number=lines)))
            found.append(json.loads(read.readline()))
        handler.close()
    dropped = sum(line.get("lines", 0) for line in found)
    written = {line["number"] for line in found if "number" in line and line["number"] < lines}
    assert len(written) + dropped == lines
    assert not handler._thread.is_alive()


def test_the_end_waits_for_a_reader_that_sleeps_for_a_second_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reput.cli.display.logs._END_S", 0.01)
    reader, writer = os.pipe()
    with open(writer, "w") as stream, open(reader, "rb") as read:
        handler = LineWriter(stream)
        handler.handle(record(logging.INFO, "x" * (1 << 20)))
        handler.close()
        assert handler._thread.is_alive()
        while len(read.readline()) < 1 << 20:
            pass
        handler._thread.join()
