"""Bodies that do not fit their topic's schema go aside with the reason, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.errors import ConfigError
from tests.support.lake import NAMES, TOPICS, log_rows, put, put_topics, rows_of, run


def test_json_bodies_become_typed_columns_and_others_go_aside_with_the_reason(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 40)
    put(store, 40, 4, body=b"no. %d")
    put(store, 44, 40)
    result = run(store, output, decode="json", columns=["body"])
    rows, aside = rows_of(output), rows_of(output, "rejects")
    assert [row["body"] for row in rows] == [{"id": n, "name": "n"} for n in range(84) if not 40 <= n < 44]
    assert [row["body"] for row in aside] == [b"no. %d" % n for n in range(40, 44)]
    assert all("no JSON object" in row["reason"] for row in aside)
    assert (result.messages, result.rejected) == (80, 4)
    assert result.body_schemas == dict.fromkeys(NAMES, "id bigint, name string")
    assert [str(first) for first in result.first_rejects] == [
        f"queue {row['queue_id']}, queue offset {row['queue_offset']}, commit log offset {row['commit_log_offset']}: "
        f"{row['reason']}"
        for row in sorted(aside, key=lambda row: row["topic"])
    ]
    assert len(result.findings) == 4
    offsets = sorted(row["commit_log_offset"] for row in rows + aside)
    assert offsets == [row["commit_log_offset"] for row in log_rows(store)]


def test_an_integer_beyond_64_bits_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    ids = [2**53 + 1 + 2 * n for n in range(5)]
    put_topics(store, {"ids": [b'{"id": %d}' % one for one in [*ids, 2**64 - 1]]})
    result = run(store, output, decode="json", columns=["body"])
    assert sorted(row["body"]["id"] for row in rows_of(output)) == ids
    (aside,) = rows_of(output, "rejects")
    assert aside["body"] == b'{"id": 18446744073709551615}'
    assert "--schema 'TOPIC=FIELD decimal(20,0)'" in aside["reason"]
    assert result.body_schemas == {"ids": "id bigint"}


@pytest.mark.parametrize("decode", ["json", "utf8"])
def test_strict_refuses_the_first_body_that_does_not_fit_and_publishes_nothing(tmp_path: Path, decode: str) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": [b'{"id": 1}', b'{"id": 2}', b"\xff", b'{"id": 3}', b"\xfe"]})
    row = log_rows(store)[2]
    place = f"queue {row['queue_id']}, queue offset {row['queue_offset']}, commit log offset {row['commit_log_offset']}"
    with pytest.raises(ConfigError, match=f"topic orders, {place}: "):
        run(store, output, decode=decode, strict=True)
    assert not list(output.rglob("*.parquet"))
    result = run(store, output, decode=decode, columns=["body"])  # other options, too: nothing was begun
    assert (result.messages, result.rejected) == (3, 2)


def test_strict_exports_what_fits(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": TOPICS["orders"][:50]})
    assert run(store, output, decode="json", strict=True).messages == 50
    put_topics(store, {"orders": TOPICS["orders"][50:]})
    with pytest.raises(ConfigError, match="topic orders"):
        run(store, output, decode="json", strict=True)
    assert len(rows_of(output)) == 50
    assert run(store, output, decode="json").rejected == 1
