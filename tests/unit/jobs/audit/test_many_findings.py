"""An audit of very many wrong units: no file is opened for each of them, all are counted, the first are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reput
from reput.files import File, FileLayer
from reput.jobs import findings
from reput.jobs.audit import audit, unmatched
from reput.jobs.audit.job import AuditResult
from reput.jobs.findings import Finding, Findings
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput

UNIT_SIZE = 20


class CountedOpens(FileLayer):
    """The real disk, and how many files were opened."""

    opens = 0

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        self.opens += 1
        return super().open(path, **options)


def spoiled(path: Path, count: int, how: str) -> Path:
    """A store in which every second unit of a queue is wrong, or gone, or after no record."""
    with reput.MessageStore.open(path, mapped_file_size_commit_log=1 << 20, message_index_enable=False) as store:
        for n in range(count):
            store.put_message(reput.Message("t", b"%d" % n))
        store.wait_dispatched()
    (file,) = (path / "consumequeue/t/0").iterdir()
    units = bytearray(file.read_bytes())
    for slot in range(0, count, 2):
        begin = slot * UNIT_SIZE
        if how == "wrong":
            units[begin + UNIT_SIZE - 1] ^= 7
        elif how == "gone":
            units[begin : begin + UNIT_SIZE] = bytes(UNIT_SIZE)
        else:
            later = begin + count * UNIT_SIZE
            units[later : later + UNIT_SIZE] = units[begin : begin + 8] + units[begin + 8 : begin + UNIT_SIZE]
    file.write_bytes(units)
    return path


def audited(path: Path) -> AuditResult:
    return audit(path, runner=LocalRunner(1), message_index_enable=False)


@pytest.mark.parametrize(("how", "code"), [("wrong", "unit-wrong"), ("gone", "unit-missing")])
def test_no_file_is_opened_for_each_wrong_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, code: str
) -> None:
    opens = []
    for count in (20, 400):
        path = spoiled(tmp_path / str(count), count, how)
        disk = CountedOpens()
        monkeypatch.setattr(unmatched, "DISK", disk)
        assert audited(path).counts == {code: count // 2}
        opens.append(disk.opens)
    assert opens[0] == opens[1]


def test_all_findings_are_counted_and_the_first_of_a_code_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spoiled(tmp_path / "store", 400, "wrong")
    whole = audited(path)
    assert len(whole.findings) == 200
    monkeypatch.setattr(findings, "MOST_OF_A_CODE", 10)
    monkeypatch.setattr("reput.jobs.audit.job.MOST_OF_A_CODE", 10)
    result = audited(path)
    assert (result.counts, result.findings) == ({"unit-wrong": 200}, whole.findings[:10])
    assert not result.is_clean


def test_json_has_the_count_of_each_code(tmp_path: Path) -> None:
    path = spoiled(tmp_path / "store", 40, "gone")
    answer = run_reput("audit", path, "--set", "messageIndexEnable=false", "--runner", "local", "--json")
    content = answer.object()
    assert (answer.status, content["codes"], content["hidden_findings"]) == (1, {"unit-missing": 20}, 20)
    assert len(content["findings"]) == 20


def test_findings_of_tasks_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MOST_OF_A_CODE", 3)
    some = [Finding("unit-wrong", "q", str(n), count=n) for n in range(1, 6)]
    files = [Finding("foreign-file", str(n), "") for n in range(5)]
    whole, merged = Findings([*some, *files]), Findings()
    merged.merge(Findings([*some[:2], *files[:4]]))
    merged.merge(Findings([*some[2:], *files[4:]]))
    for one in (whole, merged):
        assert ([finding for finding in one.kept if finding.code == "unit-wrong"]) == some[:3]
        assert ([finding for finding in one.kept if finding.code == "foreign-file"]) == files, "a repair needs each"
        assert (one.counts, one.sizes["unit-wrong"]) == ({"unit-wrong": 5, "foreign-file": 5}, 15)
    rest_of = merged.without(["unit-wrong"])
    assert (rest_of.kept, rest_of.counts) == (files, {"foreign-file": 5})
