"""The same finding has the same exit status in every command: the rule of docs/commands.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import reput
from tests.support.commands import GOLDEN, SMALL_FILES, Run
from tests.support.damaged_copy import damaged_copy
from tests.support.shares import sampled

WHOLE = GOLDEN / "clean/store"
FINE, FINDINGS, REFUSED = 0, 1, 2


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Stores, and where the damage of one of them is."""
    folder = tmp_path_factory.mktemp("stores")
    damaged, file, offset = damaged_copy(folder / "damaged", 2)
    columns = ["topic", "queue_id", "queue_offset", "commit_log_offset", "unique_key"]
    rows = reput.read_log(WHOLE, columns).read_all().to_pylist()
    (row,) = (row for row in rows if row["commit_log_offset"] == offset)
    with reput.MessageStore.open(folder / "bodies", mapped_file_size_commit_log=65536, max_message_size=4096) as opened:
        opened.put_messages([reput.Message("orders", body) for body in (b'{"id": 1}', b"\xff", b'{"id": 2}')])
    return {
        "DAMAGED": str(damaged),
        "WHOLE": str(shutil.copytree(WHOLE, folder / "whole")),
        "BODIES": str(folder / "bodies"),
        "TOPIC": row["topic"],
        "QUEUE": str(row["queue_id"]),
        "QUEUE_OFFSET": str(row["queue_offset"]),
        "OFFSET": str(offset),
        "FILE": Path(file).name,
        "POSITION": str(offset - int(Path(file).name)),
        "KEY": row["unique_key"],
    }


#: A command, and its status for a store with a damaged record; without the damage each has 0.
OF_DAMAGE = [
    ("audit STORE", FINDINGS),
    ("diff STORE WHOLE", FINDINGS),
    ("diff WHOLE STORE", FINDINGS),
    ("dump STORE", FINDINGS),
    ("stats STORE --crc", FINDINGS),
    ("repair STORE", FINDINGS),
    ("get STORE --topic TOPIC --queue-id QUEUE --offset QUEUE_OFFSET --max-num 1", FINDINGS),
    ("get STORE --topic TOPIC --queue-id QUEUE --max-num 999 --json", FINDINGS),
    ("query STORE --commit-log-offset OFFSET", FINDINGS),
    ("query STORE --topic TOPIC --key KEY", FINDINGS),
    ("query STORE --sql |select count(*) from messages| --damaged skip", FINDINGS),
    ("rebuild STORE --output OUT --damaged skip", FINDINGS),
    ("export STORE OUT --damaged skip", FINDINGS),
    ("query STORE --topics TOPIC", REFUSED),
    ("query STORE --sql |select count(*) from messages|", REFUSED),
    ("rebuild STORE --output OUT", REFUSED),
    ("export STORE OUT", REFUSED),
    ("replay STORE OUT --speed max", REFUSED),
    ("backup STORE OUT", REFUSED),
    ("dispatch STORE --output OUT --once --runner local", REFUSED),
]
#: A command, and its status for a store of JSON bodies with one that is none.
OF_BODIES = [
    ("export STORE OUT", FINE),
    ("export STORE OUT --decode utf8", FINDINGS),
    ("export STORE OUT --decode json", FINDINGS),
    ("export STORE OUT --decode json --format delta", FINDINGS),
    ("export STORE OUT --decode json --schema |id int|", FINDINGS),
    ("export STORE OUT --decode json --strict", REFUSED),
    ("query STORE --sql |select id from orders|", FINDINGS),
    ("query STORE --sql |select count(queue_id) from orders|", FINE),
    ("query STORE --sql |select id from orders| --output OUT.parquet", FINDINGS),
]


def arguments(command: str, store: str, stores: dict[str, str], output: Path) -> list[str]:
    """Words of a command; a text between bars is one word."""
    words = [word for n, part in enumerate(command.split("|")) for word in ([part] if n % 2 else part.split())]
    names = {**stores, "STORE": store, "OUT": str(output / "out"), "OUT.parquet": str(output / "out.parquet")}
    return [names.get(word, word) for word in words]


@sampled(4)
@pytest.mark.parametrize(("command", "status"), OF_DAMAGE, ids=[command for command, _ in OF_DAMAGE])
def test_damage_has_one_exit_status_and_a_line_with_its_place(
    stores: dict[str, str], tmp_path: Path, run_reput: Run, command: str, status: int
) -> None:
    answer = run_reput(*arguments(command, stores["DAMAGED"], stores, tmp_path))
    assert answer.status == status, answer.err
    told = (answer.err if status == REFUSED else answer.err + answer.out).replace(",", "")
    assert stores["OFFSET"] in told or (stores["FILE"] in told and stores["POSITION"] in told)
    if not command.startswith("diff"):
        answer = run_reput(*arguments(command, stores["WHOLE"], stores, tmp_path / "whole"))
        assert answer.status == FINE, answer.err


def test_stores_without_differences_are_fine(stores: dict[str, str], run_reput: Run) -> None:
    assert run_reput("diff", stores["WHOLE"], WHOLE).status == FINE


@pytest.mark.parametrize(("command", "status"), OF_BODIES, ids=[command for command, _ in OF_BODIES])
def test_a_body_that_does_not_fit_has_one_exit_status(
    stores: dict[str, str], tmp_path: Path, run_reput: Run, command: str, status: int
) -> None:
    answer = run_reput(*arguments(command, stores["BODIES"], stores, tmp_path))
    assert answer.status == status, answer.err
    assert ("topic orders" in answer.out + answer.err) == (status != FINE)


@pytest.mark.parametrize(("aside", "status"), [((), REFUSED), (("--bad-rows-path", "BAD"), FINDINGS)])
def test_a_row_that_rocketmq_refuses_has_one_exit_status(
    tmp_path: Path, run_reput: Run, aside: tuple[str, ...], status: int
) -> None:
    parquet.write_table(pa.table({"topic": ["orders", "a/b"], "body": ["x", "y"]}), tmp_path / "rows.parquet")
    words = [str(tmp_path / "bad") if word == "BAD" else word for word in aside]
    command = ("import", tmp_path / "rows.parquet", tmp_path / "store", *words, *SMALL_FILES)
    assert run_reput(*command).status == status
    parquet.write_table(pa.table({"topic": ["orders"], "body": ["x"]}), tmp_path / "fine.parquet")
    assert run_reput("import", tmp_path / "fine.parquet", tmp_path / "other", *words, *SMALL_FILES).status == FINE


def test_messages_that_were_lost_before_their_export_are_findings(tmp_path: Path, run_reput: Run) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"

    def put(count: int) -> None:
        with reput.MessageStore.open(store, mapped_file_size_commit_log=16384, max_message_size=4096) as opened:
            opened.put_messages([reput.Message("orders", b"x" * 200)] * count)

    put(10)
    assert run_reput("export", store, lake).status == FINE
    put(200)
    sorted((store / "commitlog").iterdir())[0].unlink()
    assert run_reput("export", store, lake).status == REFUSED
    answer = run_reput("export", store, lake, "--allow-data-loss")
    assert (answer.status, "were lost before they were exported" in answer.out) == (FINDINGS, True)
    assert run_reput("export", store, lake).status == FINE
