"""reput rebuild: the job's options, its answer, and its findings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.support.commands import Run, content_of


def test_queues_and_index_of_a_clean_store_come_back(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run
) -> None:
    path = golden("clean")
    answer = run_reput("rebuild", path, "--output", tmp_path / "out", "--runner", "local", "--json")
    assert answer.status == 0, answer.err
    result = answer.object()
    assert (result["messages"], result["units"], result["queues"]) == (1000, 1000, 24)
    built = content_of(tmp_path / "out" / "consumequeue")
    stored = content_of(path / "consumequeue")
    assert {name: data for name, (data, _) in built.items()} == {name: data for name, (data, _) in stored.items()}


def _squeezed(text: str) -> list[str]:
    """The lines, with one blank between words."""
    return [re.sub(" +", " ", line).strip() for line in text.splitlines()]


def test_sizes_may_be_given(golden: Callable[[str], Path], tmp_path: Path, run_reput: Run) -> None:
    sizes = ("--set", "mappedFileSizeConsumeQueue=400", "--set", "max_hash_slot_num=10", "--set", "maxIndexNum=3000")
    answer = run_reput("rebuild", golden("clean"), "--output", tmp_path / "out", *sizes)
    assert answer.status == 0, answer.err
    assert ["messages", "1000"] in [line.split(" ", 1) for line in _squeezed(answer.out)]
    assert {path.stat().st_size for path in (tmp_path / "out/consumequeue").rglob("0*") if path.is_file()} == {400}
    assert [path.stat().st_size for path in (tmp_path / "out/index").iterdir()] == [40 + 4 * 10 + 20 * 3000]


def test_the_rules_of_another_version_index_tags_too(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run
) -> None:
    path, keys = golden("clean"), {}
    for rules in ("4.9.7", "5.3.3", "5.5.0"):
        answer = run_reput("rebuild", path, "--output", tmp_path / rules, "--rules", rules, "--json")
        assert answer.status == 0, answer.err
        keys[rules] = answer.object()["keys"]
    assert keys["4.9.7"] == keys["5.3.3"] < keys["5.5.0"] <= keys["5.3.3"] + 1000


def test_extensions_and_light_queues_are_built_where_the_store_has_them_or_as_told(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run
) -> None:
    lmq, ext = golden("lmq"), golden("ext")
    assert run_reput("rebuild", lmq, "--output", tmp_path / "1", "--runner", "local").status == 0
    stored, built = (content_of(path / "consumequeue") for path in (lmq, tmp_path / "1"))
    assert {name: data for name, (data, _) in built.items()} == {name: data for name, (data, _) in stored.items()}
    off = ("--set", "enableLmq=false", "--runner", "local")
    assert run_reput("rebuild", lmq, "--output", tmp_path / "2", *off).status == 0
    assert not list((tmp_path / "2/consumequeue").glob("%LMQ%*"))
    assert run_reput("rebuild", ext, "--output", tmp_path / "3", "--runner", "local").status == 0
    assert {path.stat().st_size for path in (tmp_path / "3/consumequeue_ext").glob("*/*/*")} == {1024}
    off = ("--set", "enableConsumeQueueExt=false", "--runner", "local")
    assert run_reput("rebuild", ext, "--output", tmp_path / "4", *off).status == 0
    assert not (tmp_path / "4/consumequeue_ext").exists()


def test_delayed_messages_get_the_times_of_the_broker_s_own_delay_levels(tmp_path: Path, run_reput: Run) -> None:
    path = tmp_path / "s"
    with reput.MessageStore.open(path, mapped_file_size_commit_log=4096, message_delay_level="7s 1h") as store:
        for level in ("1", "2", "9"):
            store.put_message(reput.Message("SCHEDULE_TOPIC_XXXX", b"", properties={"DELAY": level}))
    stored = content_of(path / "consumequeue")
    same = ("--set", "messageDelayLevel=7s 1h", "--runner", "local")
    for output, settings, is_same in (("1", same, True), ("2", same[2:], False)):
        assert run_reput("rebuild", path, "--output", tmp_path / output, *settings).status == 0
        built = content_of(tmp_path / output / "consumequeue")
        assert ([data for data, _ in built.values()] == [data for data, _ in stored.values()]) == is_same


def test_batch_consume_queues_are_built_too(golden: Callable[[str], Path], tmp_path: Path, run_reput: Run) -> None:
    size = ("--set", "mapperFileSizeBatchConsumeQueue=460")
    answer = run_reput("rebuild", golden("bcq"), "--output", tmp_path / "out", "--json", *size)
    assert answer.status == 0, answer.err
    files = [path for path in (tmp_path / "out/batchconsumequeue").glob("*/*/*") if path.stat().st_size == 460]
    assert {path.parent.parent.name for path in files} == {"topic-1", "topic-3"}
    assert answer.object()["units"] == 375


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "--output"),
        (("--output", "OUT", "--set", "listenPort=1"), "a rebuild takes"),
        (("--output", "OUT", "--set", "messageDelayLevel=1y"), "is no delay"),
        (("--output", "OUT", "--set", "maxIndexNm=1"), "did you mean maxIndexNum?"),
        (("--output", "OUT", "--runner", "nobody"), "'auto', 'local', 'spark'"),
        (("--output", "OUT", "--rules", "5.4.0"), "'4.9.7', '5.3.3', '5.5.0', '5.5.1'"),
        (("--output", "FULL"), "exists already and is not an empty folder"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_no_output(
    store: Path, tmp_path: Path, run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    places = {"OUT": tmp_path / "out", "FULL": full}
    answer = run_reput("rebuild", store, *(places.get(argument, argument) for argument in arguments))
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert [path.name for path in full.iterdir()] == ["file"]
