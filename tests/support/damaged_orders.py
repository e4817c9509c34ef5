"""Damage to the store of orders, by its name."""

from __future__ import annotations

from pathlib import Path

import reput
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.metadata import ConsumerOffsets, Topics, decode_metadata, encode_metadata
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.damage import cut, flip, overwrite
from tests.support.orders import SIZES

MIDDLE = "commitlog/00000000000000032768"
UNITS = "consumequeue/orders/1/00000000000000000400"


def last(store: Path) -> tuple[Path, int]:
    """The file that the log ends in, and where."""
    number, position = divmod(audit(store, runner=LocalRunner(1)).log_end, SIZES["mapped_file_size_commit_log"])
    return sorted((store / "commitlog").iterdir())[number], position


def torn_tail(store: Path) -> None:
    (store / "abort").touch()
    overwrite(*last(store), b"\x00\x00\x01\x00torn" * 20)


def last_record_broken(store: Path) -> None:
    file, end = last(store)
    flip(file, end - 200)


def last_records_zeroed(store: Path) -> None:
    file, end = last(store)
    overwrite(file, end - 1000, bytes(1000))


def last_message_zeroed(store: Path) -> None:
    """So that nothing is seen of it in the log."""
    begin = max(records_of(store))
    file, end = last(store)
    overwrite(
        file, begin % SIZES["mapped_file_size_commit_log"], bytes(end - begin % SIZES["mapped_file_size_commit_log"])
    )


def last_file_cut(store: Path) -> None:
    file, end = last(store)
    cut(file, end - 500)


def last_file_cut_and_checkpoint_ahead(store: Path) -> None:
    """Cut the log before its last records: then an audit cannot tell what the checkpoint is worth."""
    last_file_cut(store)
    checkpoint_ahead(store)


def zeros_cut_off(store: Path) -> None:
    """Behind the log's end."""
    file, end = last(store)
    cut(file, end + 8)


def last_files_zeroed(store: Path) -> None:
    for file in sorted((store / "commitlog").iterdir())[-2:]:
        file.write_bytes(bytes(file.stat().st_size))


def last_files_gone(store: Path) -> None:
    for file in sorted((store / "commitlog").iterdir())[-2:]:
        file.unlink()


def same_after_a_kill(store: Path) -> None:
    (store / "abort").touch()
    last_files_zeroed(store)


def same_after_a_kill_of_which_nothing_else_tells(store: Path) -> None:
    """No time of the checkpoint, and no group that has consumed them."""
    same_after_a_kill(store)
    (store / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(0, 0, 0)))
    (store / "config/consumerOffset.json").write_bytes(encode_metadata(ConsumerOffsets({})))


def file_among_topics(store: Path) -> None:
    (store / "consumequeue/20261122000000000").write_bytes(b"of the index")


def strange_file(store: Path) -> None:
    (store / "commitlog/README").write_bytes(b"hello")


def folder_for_file(store: Path) -> None:
    (store / "commitlog/00000000000000081920").mkdir()


def short_file_of_a_strange_offset(store: Path) -> None:
    """It shall be moved away, not be made longer: that it must go hid what else a repair would do."""
    (store / "commitlog/00000000000000000007").write_bytes(b"")
    units_zeroed(store)


def topics_with_backup(store: Path) -> None:
    overwrite(store / "config/topics.json", 3, b"{{{")


def topics_gone(store: Path) -> None:
    topics_with_backup(store)
    (store / "config/topics.json.bak").write_bytes(b"?")


def offsets_broken(store: Path) -> None:
    (store / "config/consumerOffset.json").write_bytes(b"[")


def offsets_ahead(store: Path) -> None:
    offsets = ConsumerOffsets({"orders@shop": {0: 55, 3: 20}, "refunds@shop": {0: 9}})
    (store / "config/consumerOffset.json").write_bytes(encode_metadata(offsets))


def shutdown_garbled(store: Path) -> None:
    (store / "config/reputShutdown.json").write_bytes(b"{")


def checkpoint_ahead(store: Path) -> None:
    (store / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(1 << 62, 0, 0)))


def checkpoint_short(store: Path) -> None:
    cut(store / "checkpoint", 10)


def checkpoint_gone(store: Path) -> None:
    (store / "checkpoint").unlink()


def units_zeroed(store: Path) -> None:
    overwrite(store / UNITS, 0, bytes(100))


def queue_file_gone(store: Path) -> None:
    (store / UNITS).unlink()


def index_cut(store: Path) -> None:
    cut(sorted((store / "index").iterdir())[0], 77)


def wrong_type_of_queue(store: Path) -> None:
    topics = decode_metadata(Topics, (store / "config/topics.json").read_bytes())
    (store / "batchconsumequeue/refunds/0").mkdir(parents=True)
    (store / "batchconsumequeue/refunds/0/00000000000000000000").write_bytes(bytes(46 * 8))
    assert "refunds" in topics.topic_config_table


def middle_record_broken(store: Path) -> None:
    flip(store / MIDDLE, 5_000)


def log_file_gone(store: Path) -> None:
    (store / MIDDLE).unlink()


def middle_file_cut(store: Path) -> None:
    cut(store / MIDDLE, 9_000)


def first_log_file_gone(store: Path) -> None:
    (store / "commitlog/00000000000000000000").unlink()


def log_files_gone(store: Path) -> None:
    for start in (16_384, 32_768):
        (store / "commitlog" / f"{start:020d}").unlink()


def middle_file_grown(store: Path) -> None:
    with (store / MIDDLE).open("ab") as file:
        file.write(b"more")


def middle_file_and_units_gone(store: Path) -> None:
    log_file_gone(store)
    units_zeroed(store)


def several(store: Path) -> None:
    for damage in (last_record_broken, strange_file, topics_gone, offsets_broken, checkpoint_short, index_cut):
        damage(store)


def records_of(store: Path) -> dict[int, bytes]:
    table = reput.read_log(store, ["commit_log_offset", "body"]).read_all()
    return dict(zip(table["commit_log_offset"].to_pylist(), table["body"].to_pylist(), strict=True))
