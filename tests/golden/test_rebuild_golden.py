"""Rebuild from the log alone: the same queue and index files as Apache RocketMQ's own store makes of it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from reput.config.dispatch_rules import DispatchRules
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import END_MARK
from reput.formats.index_file import HEADER_SIZE, decode_header, entry_position
from reput.jobs.rebuild import rebuild
from reput.jobs.runner import LocalRunner
from tests.golden.bit_maps import bit_maps

CORPORA = Path(__file__).parent
#: What a rebuild leaves out, for now.
_LEFT_OUT = {"bcq"}
CASES = sorted(
    f"{path.parent.parent.name}/{path.parent.name}"
    for path in CORPORA.glob("*/*/hashes.txt")
    if path.parent.name not in _LEFT_OUT
)


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
        max_hash_slot_num=options["hashSlots"],
        max_index_num=options["indexEntries"],
        split_bytes=split_bytes,
        rules=DispatchRules(case.split("/")[0]),
        mapped_file_size_consume_queue_ext=1024,
        bit_maps=bit_maps,
    )
    assert used_files(tmp_path / "out", options["hashSlots"]) == expected_files(case)


def test_topics_with_inner_batches_are_left_out_and_the_others_equal_those_of_apache(tmp_path: Path) -> None:
    options = origin("5.3.3/bcq")
    result = rebuild(
        CORPORA / "5.3.3/bcq" / "store",
        tmp_path / "out",
        runner=LocalRunner(threads=2),
        max_hash_slot_num=options["hashSlots"],
        max_index_num=options["indexEntries"],
        split_bytes=20_000,
    )
    assert result.left_out_topics == ("topic-1", "topic-3")
    assert [finding.split(" has ")[0] for finding in result.findings] == ["topic topic-1", "topic topic-3"]
    expected = {path: used for path, used in expected_files("5.3.3/bcq").items() if not path.startswith("batch")}
    assert used_files(tmp_path / "out", options["hashSlots"]) == expected


def test_rebuilt_extensions_equal_those_of_apache_to_the_last_byte(tmp_path: Path) -> None:
    rebuild(CORPORA / "5.3.3/ext/store", tmp_path / "out", runner=LocalRunner(2), split_bytes=9_000, bit_maps=bit_maps)
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for root in (CORPORA / "5.3.3/ext/store", tmp_path / "out")
        for path in (root / "consumequeue_ext").glob("*/*/*")
    }
    for name, content in files.items():
        assert (CORPORA / "5.3.3/ext/store" / name).read_bytes() == content
    assert len(files) == 16


@pytest.mark.parametrize("case", ["5.3.3/clean", "5.3.3/killed-undispatched", "5.3.3/retention", "5.3.3/sync"])
def test_file_sizes_are_found_in_the_store(case: str, tmp_path: Path) -> None:
    rebuild(CORPORA / case / "store", tmp_path / "out", runner=LocalRunner(threads=1))
    assert used_files(tmp_path / "out", origin(case)["hashSlots"]) == expected_files(case)
