"""The campaign itself: its cases hold, are repeated by their numbers, and its mutants fit the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reput
from lab.campaign import flips, mutants, replication
from lab.campaign import main as campaign
from lab.campaign.cases import Part, run_case
from lab.campaign.export_steps import STEPS
from lab.campaign.report import FIGURES, PAGE, markdown, page_with
from tests.support.scenarios import SCENARIOS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.mark.campaign
def test_a_share_of_every_part_keeps_the_promises(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    flips.count_bytes()  # makes samples, which those who run the cases must not flip bytes of at the same time
    assert campaign.main(["--share", "0.01", "--seed", "7000", "--output", str(output)]) == 0
    parts = json.loads(output.read_text())["parts"]
    assert set(parts) == {part.name for part in campaign.PARTS}
    assert parts["power"]["cases"] == 80
    assert parts["power"]["counts"]["crash points"] > 80
    assert markdown(json.loads(output.read_text())).count("\n| ") > 30


def test_a_master_and_its_copy_keep_the_promises(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    share = f"{4 / replication.PART.cases}"
    assert campaign.main(["--only", "replication", "--share", share, "--seed", "7100", "--output", str(output)]) == 0
    found = json.loads(output.read_text())["parts"]["replication"]
    assert found["cases"] == 4
    assert sum(count for name, count in found["counts"].items() if name.startswith("fault: ")) == 16
    assert found["counts"]["acknowledged messages"] > 0


def test_the_figures_in_the_docs_are_those_of_their_file() -> None:
    page = PAGE.read_text()
    assert page == page_with(json.loads(FIGURES.read_text()), page)


def test_each_part_has_published_figures_without_a_broken_promise() -> None:
    parts = json.loads(FIGURES.read_text())["parts"]
    assert set(parts) == {part.name for part in campaign.PARTS}
    assert not any(part["failures"] for part in parts.values())


def test_the_published_run_kills_an_export_a_hundred_times_and_before_and_after_each_step_of_its_tables() -> None:
    counts = json.loads(FIGURES.read_text())["parts"]["tables"]["counts"]
    assert counts["kills"] >= 100
    moments = {f"way: kill {side} {step}" for side in ("before", "after") for steps in STEPS.values() for step in steps}
    assert len(moments) == 20
    assert moments <= counts.keys()
    assert {f"way: catalog fails {when} its commit" for when in ("before", "in", "after")} <= counts.keys()


def test_the_published_run_flips_each_bit_once_and_has_more_than_a_hundred_thousand() -> None:
    assert flips.PART.cases == flips.count_bytes()
    assert 8 * flips.PART.cases >= 100_000
    assert flips.count_bytes() % flips.STRIDE


def test_the_scenarios_are_all_that_changes_a_store() -> None:
    names = {scenario.name for scenario in SCENARIOS}
    assert {"sink commits", "retention", "config files", "a rebuild in place", "a recovery over old bytes"} <= names


def test_a_broken_promise_is_told_with_what_repeats_it() -> None:
    def breaks(folder: Path, seed: int) -> None:
        (folder / "file").touch()
        raise AssertionError(f"lost {seed}")

    counts, failure = run_case(Part("name", "title", 1, breaks), 42)  # type: ignore[arg-type]
    assert counts == {"failures": 1}
    assert failure is not None
    assert (failure.part, failure.seed) == ("name", 42)
    assert failure.text.startswith("AssertionError: lost 42 (test_campaign.py:")


@pytest.mark.slow
def test_code_that_was_broken_on_purpose_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    titles = ["the log is not synced", "a file that is replaced is not synced", "the name of a new log file"]
    titles += ["given to two clients"]
    assert mutants.main([f"--only={title}" for title in titles]) == 0
    assert "4 of 4 found" in capsys.readouterr().out


@pytest.mark.slow
def test_a_mutant_that_breaks_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = mutants.Mutant("nothing is broken", (("_MAX_MAPS = 4096\n", "_MAX_MAPS = 4095\n"),))
    monkeypatch.setattr(mutants, "read_mutants", lambda: [harmless])
    monkeypatch.setattr(mutants, "_STAGES", ((("faults",), 0.001),))
    assert mutants.main([]) == 1
    assert "nothing is broken: NOT FOUND" in capsys.readouterr().out


def test_each_mutant_still_changes_the_source_in_one_place() -> None:
    source = Path(reput.__file__).parent
    known = mutants.read_mutants()
    assert len(known) >= 30
    texts = {path: path.read_text() for path in source.rglob("*.py")}
    for mutant in known:
        for old, _ in mutant.changes:
            places = [path.name for path, text in texts.items() for _ in range(text.count(old))]
            assert len(places) == 1, (mutant.title, old, places)
