"""reput diff: exit statuses, JSON, text and the HTML report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import SMALL_FILES, Run
from tests.support.damage import at, flip


@pytest.fixture
def stores(golden: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Path]:
    """A store and its copy."""
    store = golden("clean")
    return store, Path(shutil.copytree(store, tmp_path / "copy"))


def test_equal_stores_are_0(stores: tuple[Path, Path], run_reput: Run) -> None:
    for by in ("log", "queue"):
        answer = run_reput("diff", *stores, "--by", by, "--json")
        assert answer.status == 0, answer.err
        found = answer.object()
        assert (found["left_messages"], found["right_messages"], found["differences"]) == (1000, 1000, [])


def test_a_difference_is_1_and_its_fields_are_named(stores: tuple[Path, Path], tmp_path: Path, run_reput: Run) -> None:
    flip(*at(stores[1], 47))
    answer = run_reput("diff", *stores, "--json", "--report", tmp_path / "report.html", "--work-dir", tmp_path / "work")
    assert answer.status == 1, answer.err
    found = answer.object()
    assert (found["missing"], found["extra"], found["different"]) == (0, 0, 1)
    (row,) = found["differences"]
    assert (row["kind"], row["left_offset"], row["right_offset"], row["fields"]) == (
        "different", 0, 0, ["born_timestamp"],
    )  # fmt: skip
    page = (tmp_path / "report.html").read_text()
    assert "born_timestamp" in page
    assert 'id="plot-0"' in page
    text = run_reput("diff", *stores)
    assert text.status == 1
    assert "born_timestamp" in text.out
    assert run_reput("diff", *stores, "--ignore", "born_timestamp").status == 0


def test_what_cannot_be_read_is_a_finding(stores: tuple[Path, Path], run_reput: Run) -> None:
    flip(*at(stores[1], 3))
    answer = run_reput("diff", *stores)
    assert answer.status == 1
    assert "passed over" in answer.out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("--ignore", "body"), "'body' cannot be left out"), (("--by", "time"), "is not one of")],
)
def test_wrong_usage_is_one_line_and_exit_2(
    stores: tuple[Path, Path], run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    answer = run_reput("diff", *stores, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err


def test_a_replay_that_differs_in_what_a_store_sets_gets_a_hint(store: Path, tmp_path: Path, run_reput: Run) -> None:
    copy = tmp_path / "copy"
    assert run_reput("replay", store, copy, "--speed", "max", *SMALL_FILES).status == 0
    answer = run_reput("diff", store, copy, "--by", "queue")
    assert answer.status == 1
    assert "anew: --ignore store_timestamp" in answer.out
    fields = answer.out.partition("--ignore ")[2].split()[0]
    answer = run_reput("diff", store, copy, "--by", "queue", "--ignore", fields)
    assert (answer.status, "hint" in answer.out) == (0, False)


def test_what_java_wrote_and_was_put_again_is_equal(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run
) -> None:
    """Java's HashMap has an order of its own."""
    lake, imported, replayed = (tmp_path / name for name in ("lake", "imported", "replayed"))
    assert run_reput("export", golden("clean"), lake).status == 0
    assert run_reput("import", lake, imported, *SMALL_FILES).status == 0
    assert run_reput("replay", golden("transactions"), replayed, "--speed", "max", *SMALL_FILES).status == 0
    for case, copy in (("clean", imported), ("transactions", replayed)):
        command = ("diff", tmp_path / case, copy, "--by", "queue", "--ignore", "store_timestamp,store_host")
        assert run_reput(*command).status == 0, case


def test_properties_that_differ_are_named_with_both_values(tmp_path: Path, run_reput: Run) -> None:
    for name, region in (("left", "eu"), ("right", "us")):
        put = ("put", tmp_path / name, "--topic", "orders", "--body", "x", "--property", f"region={region}")
        assert run_reput(*put, *SMALL_FILES).status == 0
    times = ("--ignore", "store_timestamp,born_timestamp")
    command = ("diff", tmp_path / "left", tmp_path / "right", "--by", "queue")
    assert "properties  region: eu / us" in run_reput(*command, *times).out
    [row] = run_reput(*command, *times, "--json").object()["differences"]
    assert row["properties"] == [{"name": "region", "left": "eu", "right": "us"}]
    assert run_reput(*command, "--ignore", "store_timestamp,born_timestamp,properties").status == 0
