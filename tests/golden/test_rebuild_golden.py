"""Rebuild from the log alone: the same queue and index files as Apache RocketMQ's own store makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reput.config.dispatch_rules import DispatchRules
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.metadata import TopicConfig, Topics, encode_metadata
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.bit_maps import bit_maps
from tests.support.golden import CASES, CORPORA, expected_files, origin, used_files
from tests.support.shares import sampled

#: Corpora whose log begins at 0 and whose writer was closed each time.
NEVER_CRASHED = {
    "batch",
    "bcq",
    "clean",
    "delay",
    "empty",
    "ext",
    "ipv6",
    "lmq",
    "long-topic",
    "prop-crc",
    "sync",
    "transactions",
}


@sampled(4)
@pytest.mark.parametrize("split_bytes", [5_000, 64 << 20])
@pytest.mark.parametrize("case", CASES)
def test_rebuilt_files_equal_those_of_apache(case: str, split_bytes: int, tmp_path: Path) -> None:
    options = origin(case)
    rebuild(
        CORPORA / case / "store",
        tmp_path / "out",
        runner=LocalRunner(threads=2),
        mapped_file_size_consume_queue=options["consumeQueueEntries"] * UNIT_SIZE,
        mapper_file_size_batch_consume_queue=options["consumeQueueEntries"] * BATCH_UNIT_SIZE,
        max_hash_slot_num=options["hashSlots"],
        max_index_num=options["indexEntries"],
        split_bytes=split_bytes,
        rules=DispatchRules(case.split("/")[0]),
        mapped_file_size_consume_queue_ext=1024,
        bit_maps=bit_maps,
    )
    assert used_files(tmp_path / "out", options["hashSlots"]) == expected_files(case)


@sampled(2)
@pytest.mark.parametrize("known_by", ["folders", "topics.json", "the log alone"])
@pytest.mark.parametrize("split_bytes", [5_000, 64 << 20])
def test_batch_topics_are_known_by_folders_by_topics_json_or_by_their_inner_batches(
    known_by: str, split_bytes: int, tmp_path: Path
) -> None:
    store, options = tmp_path / "store", origin("5.3.3/bcq")
    shutil.copytree(CORPORA / "5.3.3/bcq/store", store)
    if known_by != "folders":
        shutil.rmtree(store / "batchconsumequeue")
    if known_by == "topics.json":
        topics = [TopicConfig(name, attributes={"queue.type": "BatchCQ"}) for name in ("topic-1", "topic-3")]
        (store / "config").mkdir()
        (store / "config/topics.json").write_bytes(encode_metadata(Topics({t.topic_name: t for t in topics})))
    rebuild(
        store, tmp_path / "out", runner=LocalRunner(threads=2), max_hash_slot_num=options["hashSlots"],
        max_index_num=options["indexEntries"], split_bytes=split_bytes,
    )  # fmt: skip
    assert used_files(tmp_path / "out", options["hashSlots"]) == expected_files("5.3.3/bcq")


@pytest.mark.parametrize("case", [case for case in CASES if case.split("/")[1] in NEVER_CRASHED])
def test_rebuilt_files_equal_what_apache_dispatched_while_the_messages_came(case: str, tmp_path: Path) -> None:
    slots = origin(case)["hashSlots"]
    rebuild(
        CORPORA / case / "store",
        tmp_path / "out",
        runner=LocalRunner(threads=1),
        rules=DispatchRules(case.split("/")[0]),
        bit_maps=bit_maps,
    )
    live, rebuilt = used_files(CORPORA / case / "store", slots), used_files(tmp_path / "out", slots)
    different = {path.split("/")[1] for path in live.keys() | rebuilt.keys() if live.get(path) != rebuilt.get(path)}
    # 4.9.7 gives a delayed message's unit the time of delivery, and when it makes the unit again the hash of the tags.
    assert different == ({"SCHEDULE_TOPIC_XXXX"} if case == "4.9.7/delay" else set())


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("/ext")])
def test_rebuilt_extensions_equal_those_of_apache_to_the_last_byte(case: str, tmp_path: Path) -> None:
    rebuild(CORPORA / case / "store", tmp_path / "out", runner=LocalRunner(2), split_bytes=9_000, bit_maps=bit_maps)
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for root in (CORPORA / case / "store", tmp_path / "out")
        for path in (root / "consumequeue_ext").glob("*/*/*")
    }
    for name, content in files.items():
        assert (CORPORA / case / "store" / name).read_bytes() == content
    assert len(files) == sum(name.startswith("consumequeue_ext/") for name in expected_files(case)) > 0


@pytest.mark.parametrize(
    "case", ["5.3.3/bcq", "5.3.3/clean", "5.3.3/killed-undispatched", "5.3.3/retention", "5.3.3/sync"]
)
def test_file_sizes_are_found_in_the_store(case: str, tmp_path: Path) -> None:
    rebuild(CORPORA / case / "store", tmp_path / "out", runner=LocalRunner(threads=1))
    assert used_files(tmp_path / "out", origin(case)["hashSlots"]) == expected_files(case)
