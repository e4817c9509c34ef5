"""Scans of stores that RocketMQ wrote give what RocketMQ's own dispatch saw."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.kernels.records.record_search import find_record
from tests.oracles import record_scan as twin

CORPORA = sorted(path.parent for path in Path(__file__).parent.glob("*/*/truth.txt"))
#: What a `log` line says, in its order; the topic's name stands behind the first two.
COLUMNS = (
    *("commit_log_offset", "store_size", "queue_id", "queue_offset"),
    *("tags_code", "sys_flag", "prepared_transaction_offset", "store_timestamp"),
)

each_corpus = pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: f"{path.parent.name}-{path.name}")


def log_files(corpus: Path) -> list[tuple[int, np.ndarray]]:
    files = sorted((corpus / "store" / "commitlog").glob("*"))
    return [(int(file.name), np.fromfile(file, np.uint8)) for file in files]


def lines_of(columns: RecordColumns) -> list[str]:
    """The rows as the truth's `log` lines."""
    topics = [topic.decode() for topic, _ in columns.queues()]
    numbers = zip(*(columns[name].tolist() for name in COLUMNS), strict=True)
    return [
        " ".join(map(str, ("log", *row[:2], topics[queue], *row[2:])))
        for queue, row in zip(columns["queue"].tolist(), numbers, strict=True)
    ]


@each_corpus
def test_a_scan_gives_the_records_that_rocketmq_dispatched(corpus):
    truth = (corpus / "truth.txt").read_text(encoding="utf-8").splitlines()
    expected = [line for line in truth if line.startswith(("log ", "blank "))]
    scanner, lines, files = RecordScanner(2000, level=ScanLevel.KEYS), [], log_files(corpus)
    end = max((int(line.split()[2]) for line in truth if line.startswith("phy ")), default=0)
    for start, data in files:
        columns = scanner.scan(data, start, check_crc=True)
        assert not columns["status"].any()
        lines += lines_of(columns)
        if columns.stop == ScanStop.BLANK:
            lines.append(f"blank {columns.next_offset}")
        elif columns.rows:
            assert columns.next_offset == end
    assert lines == expected


@each_corpus
def test_the_plain_walk_gives_the_same_rows(corpus):
    for start, data in log_files(corpus)[:2]:
        columns = RecordScanner(2000).scan(data, start, check_crc=True)
        expected = twin.scan(data[: columns.consumed + 2000].tobytes(), start)
        assert columns.queues() == expected.queues
        assert list(zip(columns.key_rows.tolist(), columns.key_hashes.tolist(), strict=True)) == expected.key_hashes
        assert columns["tags_code"].tolist() == [row["tags_code"] for row in expected.rows]


@each_corpus
def test_records_are_found_again_from_the_middle_of_a_file(corpus):
    for start, data in log_files(corpus):
        columns = RecordScanner(2000, level=ScanLevel.HEADER).scan(data, start)
        starts = columns["position"].tolist()
        # The last ones may have a torn record behind them, and then they do not prove themselves.
        for begin, following in list(pairwise(starts))[:-2]:
            assert find_record(data, start, begin) == begin
            assert find_record(data, start, begin + 1) == following


def test_there_are_corpora():
    assert len(CORPORA) >= 16
