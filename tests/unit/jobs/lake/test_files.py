"""Names of files and folders of an export, for topics and days of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import parquet

from reput.errors import StoreFormatError
from reput.jobs.lake.files import escaped, table_name
from tests.support.hand_log import HandLog
from tests.support.lake import check_files, run


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("%RETRY%group", "%25RETRY%25group"),
        ("../../x", "..%2F..%2Fx"),
        ("a=b c\n", "a%3Db%20c%0A"),
        ("订单", "订单"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_topic_of_any_name_is_the_name_of_a_folder(topic: str, name: str) -> None:
    assert escaped(topic) == name


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("a.b-c_d", "a.b-c_d"),
        ("%RETRY%group", "~25RETRY~25group"),
        ("..", "~2E."),
        ("_delta_log", "~5Fdelta_log"),
        ("~25", "~7E25"),
        ("订", "~E8~AE~A2"),
        ("", "~"),
    ],
)
def test_a_topic_of_any_name_is_the_name_of_a_table(topic: str, name: str) -> None:
    assert table_name(topic) == name


@pytest.mark.parametrize("name_of", [escaped, table_name])
def test_a_topic_that_is_too_long_for_a_folder_is_refused(name_of: Callable[[str], str]) -> None:
    with pytest.raises(StoreFormatError, match="too long"):
        name_of("%" * 100)


def test_rows_whose_time_is_no_date_have_a_partition_of_their_own(tmp_path: Path) -> None:
    end_of_dates = 253_402_300_800_000  # the begin of the year 10000, ms since 1970
    log = HandLog(tmp_path / "store", time=end_of_dates - 3 * 7)
    bodies = log.append(5)  # 7 ms apart
    run(log.path, tmp_path / "out", columns=["body"])
    found = {
        path.parent.name: [body.decode() for body in parquet.read_table(path, partitioning=None)["body"].to_pylist()]
        for path in check_files(tmp_path / "out")
    }
    assert found == {"date=9999-12-31": bodies[:2], "date=__HIVE_DEFAULT_PARTITION__": bodies[2:]}
