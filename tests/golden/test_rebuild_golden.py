"""Rebuild from the log alone: the same queue and index files as Apache RocketMQ's own store makes of it."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from reput.config.dispatch_rules import DispatchRules
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import END_MARK
from reput.formats.index_file import HEADER_SIZE, decode_header, entry_position
from reput.formats.metadata import TopicConfig, Topics, encode_metadata
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.golden.bit_maps import bit_maps

CORPORA = Path(__file__).parent
CASES = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in CORPORA.glob("*/*/hashes.txt"))

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


def origin(case: str) -> dict[str, int]:
    """The options that a corpus was written with."""
    text = (CORPORA / case / "ORIGIN.md").read_text()
    return {name: int(value) for name, value in re.findall(r"^- (\w+): (\d+)$", text, re.MULTILINE)}


def expected_files(case: str) -> dict[str, tuple[int, str]]:
    """Path -> (length, SHA-256) of the used part of each file of Apache's rebuild."""
    lines = (line.split(" ") for line in (CORPORA / case / "hashes.txt").read_text().splitlines())
    return {path: (int(size), digest) for kind, path, size, digest in lines if kind == "rebuilt"}


def used_files(output: Path, hash_slots: int) -> dict[str, tuple[int, str]]:
    """The same of a rebuilt directory; behind the used part there are only zeros."""
    found = {}
    for path in sorted(output.glob("consumequeue/*/*/*")):
        data = path.read_bytes()
        used = next((p for p in range(0, len(data), UNIT_SIZE) if decode_unit(data, p).size == 0), len(data))
        found[str(path.relative_to(output))] = data, used
    for path in sorted(output.glob("consumequeue_ext/*/*/*")):
        data, used = path.read_bytes(), 0
        while used + 2 <= len(data) and (size := int.from_bytes(data[used : used + 2], "big", signed=True)) > 0:
            used += size
        if data[used : used + 2] == END_MARK:
            data = data[:used] + data[used + 2 :]
        found[str(path.relative_to(output))] = data, used
    for path in sorted(output.glob("batchconsumequeue/*/*/*")):
        data = path.read_bytes()
        units = (p for p in range(0, len(data), BATCH_UNIT_SIZE) if not decode_batch_unit(data, p).is_in_use)
        found[str(path.relative_to(output))] = data, next(units, len(data))
    for number, path in enumerate(sorted(output.glob("index/*"))):
        data = path.read_bytes()
        found[f"index/{number}"] = data, entry_position(hash_slots, decode_header(data[:HEADER_SIZE]).index_count)
    assert all(not any(data[used:]) for data, used in found.values())
    return {name: (used, hashlib.sha256(data[:used]).hexdigest()) for name, (data, used) in found.items()}


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
