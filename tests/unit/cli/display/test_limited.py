"""Lists of findings end where a terminal can bear no more, and say how many there are and what shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.display.limited import limited, limited_table
from tests.support.commands import GOLDEN, Run
from tests.support.damage import flip

MORE = "--max-findings 0 shows all"


@pytest.mark.parametrize(
    ("count", "limit", "shown", "last"),
    [(3, 3, 3, None), (3, 4, 3, None), (3, 0, 3, None), (0, 2, 0, None), (12347, 2, 2, f"and 12345 more: {MORE}")],
)
def test_the_rest_is_one_line(count: int, limit: int, shown: int, last: str | None) -> None:
    texts = [f"finding {n}" for n in range(count)]
    lines = limited(iter(texts), count, limit)
    assert lines == texts[:shown] + [last] * (last is not None)
    table = limited_table("all", ("text",), [(text,) for text in texts], limit)
    assert [row[0] for row in table.rows] == texts[:shown]
    assert (table.name, table.total) == (("all", None) if last is None else (f"all ({MORE})", count))


@pytest.fixture
def damaged(golden: Callable[[str], Path]) -> Path:
    """A store with 50 findings."""
    store = golden("clean")
    queues = [path for path in sorted(store.glob("consumequeue/*/*/*")) if any(path.read_bytes()[:400])]
    for path in queues[:10]:
        for number in range(5):
            flip(path, number * 40 + 7)
    return store


def test_an_audit_and_a_repair_show_the_first_40_or_as_many_as_are_asked_for(damaged: Path, run_reput: Run) -> None:
    findings = run_reput("audit", damaged, "--json").object()["findings"]
    assert len(findings) == 50
    for options, shown in (((), 40), (("--max-findings", 3), 3), (("--max-findings", 0), 50)):
        answer = run_reput("audit", damaged, *options)
        assert answer.status == 1
        assert len([line for line in answer.out.splitlines() if line.lstrip().startswith("unit-wrong  ")]) == shown
        assert (f"({MORE}), {shown} of 50" in answer.out) is (shown < 50)
    assert len(run_reput("audit", damaged, "--max-findings", 3, "--json").object()["findings"]) == 50
    assert run_reput("repair", damaged, "--max-findings", 1).status == 1


def test_a_diff_shows_as_many_as_are_asked_for(damaged: Path, run_reput: Run) -> None:
    store = GOLDEN / "clean/store"
    for path in sorted((damaged / "commitlog").iterdir())[:1]:
        for position in (400, 3000, 6000):
            flip(path, position)
    differences = run_reput("diff", store, damaged, "--json").object()["differences"]
    assert len(differences) == 3
    assert MORE not in run_reput("diff", store, damaged).out
    answer = run_reput("diff", store, damaged, "--max-findings", 1)
    assert answer.status == 1
    assert f"({MORE}), 1 of 3" in answer.out
    answer = run_reput("diff", store, damaged, "--max-rows", 1)
    assert MORE not in answer.out
    assert ", 1 of 3" in answer.out


@pytest.mark.parametrize(
    "job",
    [
        ("stats", "--crc"),
        ("rebuild", "--damaged", "skip", "--output", "rebuilt"),
        ("export", "--damaged", "skip", "lake"),
        ("query", "--damaged", "skip", "--sql", "select topic from messages"),
    ],
    ids=["stats", "rebuild", "export", "query"],
)
def test_a_job_shows_as_many_damages_as_are_asked_for(
    golden: Callable[[str], Path], run_reput: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: tuple[str, ...]
) -> None:
    store = golden("clean")
    for position in (4, 6000):
        flip(min((store / "commitlog").iterdir()), position)

    def told(limit: int) -> str:
        monkeypatch.chdir(tmp_path / str(limit))  # the output is written there
        answer = run_reput(job[0], store, *job[1:], "--max-findings", limit)
        assert answer.status == 1
        return answer.out + answer.err

    for limit in (0, 1, 2):
        (tmp_path / str(limit)).mkdir()
    assert f"and 1 more: {MORE}" in told(1)
    assert MORE not in told(2)
    assert told(0).count("so this is not the log's end") == 2
