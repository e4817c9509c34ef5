"""reput dump: every file as it is, and damage at its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reput.formats.index_file import key_hash
from reput.formats.record_layout import BODY
from tests.support.commands import GOLDEN, Run, truth
from tests.support.damage import flip, overwrite

CASES = ("clean", "killed", "torn", "empty", "ipv6", "long-topic", "lmq", "retention", "transactions")


@pytest.mark.parametrize("case", CASES)
def test_records_are_those_that_rocketmq_read(golden: Callable[[str], Path], run_reput: Run, case: str) -> None:
    answer = run_reput("dump", golden(case), "--json")
    assert answer.status == 0
    found = [
        [
            str(line[name])
            for name in (
                *("commit_log_offset", "store_size", "topic", "queue_id", "queue_offset"),
                *("sys_flag", "prepared_transaction_offset", "store_timestamp"),
            )
        ]
        for line in answer.lines()
    ]
    assert found == [words[:5] + words[6:] for words in truth(case, "log")]


@pytest.mark.parametrize("case", ["clean", "killed", "ipv6", "lmq", "delay", "transactions", "empty"])
def test_units_are_those_that_rocketmq_read(golden: Callable[[str], Path], run_reput: Run, case: str) -> None:
    answer = run_reput("dump", golden(case), "--what", "queue", "--json")
    assert answer.status == 0
    assert sorted([str(value) for value in line.values()] for line in answer.lines()) == sorted(truth(case, "unit"))


def test_the_index_leads_from_a_key_to_its_records(golden: Callable[[str], Path], run_reput: Run) -> None:
    path = golden("clean")
    lines = run_reput("dump", path, "--what", "index", "--json").lines()
    headers, entries = [line for line in lines if "slots" in line], [line for line in lines if "entry" in line]
    assert [(header["slots"], header["entries"]) for header in headers] == [(500, 1500), (500, 1500)]
    assert len(entries) == sum(header["index_count"] - 1 for header in headers)
    for topic, key, *offsets in truth("clean", "query")[::400]:
        wanted = key_hash(topic, key)
        answer = run_reput("dump", path, "--what", "index", "--key-hash", wanted, "--json")
        chain = [line for line in answer.lines() if "entry" in line]
        assert answer.status == 0
        assert {line["slot"] for line in chain} == {wanted % 500}
        assert set(map(int, offsets)) <= {line["phy_offset"] for line in chain if line["key_hash"] == wanted}
        assert [line["entry"] for line in chain] == _chain(lines, wanted % 500)


def _chain(lines: list[dict[str, Any]], slot: int) -> list[int]:
    """The numbers of a slot's entries, the newest of each file first, from a dump of all."""
    files: list[list[int]] = []
    for line in lines:
        if "slots" in line:
            files.append([])
        elif line["slot"] == slot:
            files[-1].insert(0, line["entry"])
    return [number for numbers in files for number in numbers]


def test_the_checkpoint_is_shown_in_milliseconds_and_iso(golden: Callable[[str], Path], run_reput: Run) -> None:
    clean = run_reput("dump", golden("clean"), "--what", "checkpoint", "--json").lines()
    assert clean[1] == {
        "field": "logics_msg_timestamp",
        "value": 1795245181371,
        "time": "2026-11-21T07:13:01.371Z",
    }
    assert clean[-1] == {"file": "abort", "present": False}
    killed = run_reput("dump", golden("killed"), "--what", "checkpoint")
    assert "file=abort  present=true" in killed.out


def test_topic_queue_offsets_and_limit_choose(golden: Callable[[str], Path], run_reput: Run) -> None:
    path = golden("clean")
    every = run_reput("dump", path, "--json").lines()

    def dumped(*arguments: object) -> list[dict[str, object]]:
        return run_reput("dump", path, "--json", *arguments).lines()

    of_queue = [line for line in every if (line["topic"], line["queue_id"]) == ("topic-订单", 2)]
    assert dumped("--topic", "topic-订单", "--queue-id", 2) == of_queue != []
    begin, end = every[400]["commit_log_offset"], every[700]["commit_log_offset"]
    assert dumped("--begin-offset", begin, "--end-offset", end) == every[400:700]
    assert dumped("--begin-offset", begin - 1, "--end-offset", end + 1) == every[400:701]
    assert dumped("--limit", 3) == every[:3]
    units = dumped("--what", "queue", "--topic", "topic-1", "--queue-id", 3, "--begin-offset", 5, "--end-offset", 8)
    assert [(u["topic"], u["queue_id"], u["queue_offset"]) for u in units] == [("topic-1", 3, i) for i in (5, 6, 7)]


def test_a_unit_is_shown_with_its_ext_unit(golden: Callable[[str], Path], run_reput: Run) -> None:
    path = golden("ext")
    units = run_reput("dump", path, "--what", "queue", "--topic", "topic-0", "--queue-id", 0, "--json").lines()
    truth = (line.split(" ") for line in (GOLDEN / "ext/truth.txt").read_text().splitlines())
    ext = [line[8:] for line in truth if line[:3] == ["unit", "topic-0", "0"]]
    shown = [unit["ext"] for unit in units]
    assert [[str(e["tags_code"]), str(e["store_timestamp"]), e["bit_map"] or "-"] for e in shown] == [
        e[1:] for e in ext
    ]
    assert len(shown) == 84


def test_hex_shows_the_bytes_of_the_files(store: Path, run_reput: Run) -> None:
    log = (store / "commitlog" / ("0" * 20)).read_bytes()
    lines = run_reput("dump", store, "--hex", "--json").lines()
    assert "".join(line["hex"] for line in lines) == log[: len(bytes.fromhex("".join(x["hex"] for x in lines)))].hex()
    queue = (store / "consumequeue/orders/0" / ("0" * 20)).read_bytes()
    units = run_reput("dump", store, "--what", "queue", "--topic", "orders", "--queue-id", 0, "--hex", "--json").lines()
    assert "".join(unit["hex"] for unit in units) == queue[: 20 * 4].hex()
    (index,) = (store / "index").iterdir()
    entries = run_reput("dump", store, "--what", "index", "--hex", "--json").lines()[1:]
    assert "".join(entry["hex"] for entry in entries) == index.read_bytes()[460 : 460 + 20 * len(entries)].hex()


def test_text_has_one_line_a_record_that_stands_alone(store: Path, run_reput: Run) -> None:
    lines = run_reput("dump", store).out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("status=OK  commit_log_offset=0  ")
    assert 'topic=orders  queue_id=0  queue_offset=0  tags=paid  keys=["o-1", "o-2"]' in lines[0]
    assert lines[0].endswith('body="hello world"')
    assert lines[3].endswith("body_base64=//4=")


def test_damage_in_the_log_is_shown_at_its_place_and_what_follows_too(store: Path, run_reput: Run) -> None:
    path = store / "commitlog" / ("0" * 20)
    every = run_reput("dump", store, "--json").lines()
    damaged = every[2]["commit_log_offset"]
    flip(path, damaged + BODY)
    answer = run_reput("dump", store, "--json")
    lines = answer.lines()
    assert answer.status == 1
    assert lines[:2] + lines[3:] == every[:2] + every[3:]
    assert (lines[2]["status"], lines[2]["commit_log_offset"], lines[2]["path"]) == ("DAMAGED", damaged, str(path))
    assert "CRC" in lines[2]["damage"]
    text = run_reput("dump", store)
    assert text.status == 1
    assert text.out.splitlines()[2].startswith(f"status=DAMAGED  commit_log_offset={damaged}  damage=")


def test_a_torn_tail_is_the_end_and_no_damage(golden: Callable[[str], Path], run_reput: Run) -> None:
    assert run_reput("dump", golden("torn")).status == 0


QUEUE_DAMAGE = {
    "a unit that vanished": (1, b"\0" * 20, 2, "the one at queue offset 1 before it is not"),
    "an offset that goes back": (2, b"\0" * 8, 2, "expected a greater one"),
    "a size below a record's": (2, None, 2, "the unit says 5"),
}


@pytest.mark.parametrize(("unit", "change", "shown", "reason"), QUEUE_DAMAGE.values(), ids=QUEUE_DAMAGE.keys())
def test_damage_in_a_queue_is_shown_at_its_unit(
    store: Path, run_reput: Run, unit: int, change: bytes | None, shown: int, reason: str
) -> None:
    path = store / "consumequeue/orders/0" / ("0" * 20)
    if change is None:
        overwrite(path, 20 * unit + 8, (5).to_bytes(4, "big"))
    else:
        overwrite(path, 20 * unit, change)
    answer = run_reput("dump", store, "--what", "queue", "--json")
    assert answer.status == 1
    (line,) = [line for line in answer.lines() if "damage" in line]
    assert (line["queue_offset"], line["path"], line["position"]) == (shown, str(path), 20 * shown)
    assert reason in line["damage"]


def test_damage_in_an_index_is_shown_at_its_entry(store: Path, run_reput: Run) -> None:
    (path,) = (store / "index").iterdir()
    entry = 40 + 4 * 100 + 20 * 3
    overwrite(path, entry + 16, (99).to_bytes(4, "big"))
    answer = run_reput("dump", store, "--what", "index", "--json")
    assert answer.status == 1
    (line,) = [line for line in answer.lines() if "damage" in line]
    assert (line["entry"], line["position"]) == (3, entry)
    chain = run_reput("dump", store, "--what", "index", "--key-hash", line["key_hash"], "--json")
    assert chain.status == 1
    assert chain.lines()[-1] == line


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--what", "nothing"), "Invalid value for '--what': 'nothing' is not one of"),
        (("--what", "checkpoint", "--topic", "t"), "--topic counts only with --what log or --what queue"),
        (("--what", "log", "--key-hash", "1"), "--key-hash counts only with --what index"),
        (("--limit", "0"), "--limit"),
        (("--what", "index", "--set", "maxHashSlotNun=7"), "did you mean maxHashSlotNum?"),
        (("--what", "index", "--set", "listenPort=7"), "only reads, and takes maxHashSlotNum and maxIndexNum only"),
        (("--set", "maxHashSlotNum=7"), "--set counts only with --what index"),
        (("--what", "index", "--set", "nonsense=7"), "unknown configuration key 'nonsense'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    store: Path, run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    answer = run_reput("dump", store, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err
    assert answer.err.count("\n") == 1


def test_units_of_batch_queues_say_which_queue_offsets_they_take(golden: Callable[[str], Path], run_reput: Run) -> None:
    arguments = ("--what", "queue", "--json", "--topic", "topic-1", "--queue-id", 0)
    units = run_reput("dump", golden("bcq"), *arguments, "--begin-offset", 4, "--end-offset", 23).lines()
    assert [(unit["queue_offset"], unit["message_count"]) for unit in units] == [(4, 1), (5, 6), (11, 11), (22, 3)]
    assert [unit["commit_log_offset"] for unit in units] == [63476, 70097, 117267, 136558]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (8, (5).to_bytes(4, "big"), "a record has 91 bytes or more, the unit says 5"),
        (0, bytes(8), "the unit before says commit log offset"),
        (28, (9).to_bytes(8, "big"), "the units before end at queue offset 4, the unit begins at 9"),
        (-46 + 36, bytes(2), "a unit in use, but one before it is not"),
    ],
)
def test_damage_in_a_batch_queue_is_shown_at_its_unit(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run, field: int, value: bytes, reason: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("bcq"), store)
    path = store / "batchconsumequeue/topic-1/0" / ("0" * 20)
    path.chmod(0o644)
    overwrite(path, 2 * 46 + field, value)
    answer = run_reput("dump", store, "--what", "queue", "--json", "--topic", "topic-1")
    assert answer.status == 1
    first = next(line for line in answer.lines() if "damage" in line)
    assert (first["path"], first["position"]) == (str(path), 92)
    assert reason in first["damage"]
