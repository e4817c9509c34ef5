"""The main job on its first days: every step agrees, and a step that does not is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from examples.flights import main, network
from reput import read_log
from reput.progress import Progress
from tests.support.topic_statistics import check_topics


def run_flights(folder: Path, *arguments: str) -> int:
    report = folder / "report.html"
    return main.main(["--days", "2", "--store", str(folder / "store"), "--report", str(report), *arguments])


@pytest.mark.parametrize("runner", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_all_steps_agree(tmp_path: Path, runner: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_flights(tmp_path, "--runner", runner) == 0
    printed = capsys.readouterr().out
    assert "all steps agree" in printed
    assert ("counted on Spark" in printed) == (runner == "spark")
    for step in (
        "broker started",
        "sent over the network",
        "consumed by a group",
        "consumed from the store",
        "queried by tail",
        "rebuilt",
        "audited",
        "counted in Parquet",
        "statistics",
        "queried by SQL",
    ):
        assert step in printed
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "all steps agree" in page
    assert "<script src" not in page  # self-contained
    assert "<link" not in page
    topics = read_log(tmp_path / "store", ["topic"]).read_all()["topic"].unique().to_pylist()
    for topic in topics:
        assert check_topics(tmp_path / "store", [topic]).messages > 0


@pytest.mark.slow
def test_a_message_that_differs_is_named_and_fails_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = network.send

    def send_with_a_fault(namesrv: str, events: pa.Table, progress: Progress) -> Iterator[str]:
        column = events.schema.get_field_index("body")
        bodies = events["body"].to_pylist()
        bodies[100] += b" "
        faulty = events.set_column(column, events.schema.field(column), pa.array(bodies, pa.binary()))
        return send(namesrv, faulty, progress)

    monkeypatch.setattr(network, "send", send_with_a_fault)
    assert run_flights(tmp_path, "--runner", "local") == 1
    printed = capsys.readouterr().out
    assert "1 differences" in printed
    topic = "flight-planned"
    assert topic in printed
    assert "body" in printed


def test_a_broker_that_does_not_start_ends_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_SETTINGS", ("flushDiskType=NONE",))
    assert run_flights(tmp_path, "--runner", "local") == 2
    assert "the broker on" in capsys.readouterr().err


def test_a_store_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store").mkdir()
    assert run_flights(tmp_path) == 2
    assert "exists" in capsys.readouterr().err
