"""A package that is missing is told in one line, before any work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Run


@pytest.mark.parametrize(
    ("package", "arguments", "said"),
    [
        ("pyspark", "stats STORE --follow --bucket 1m --work-dir OUT/work", "--follow needs pyspark"),
        ("pyspark", "rebuild STORE --output OUT/new --runner spark", "the runner spark needs pyspark"),
        ("deltalake", "export STORE OUT/lake --format delta", "format delta needs deltalake"),
        ("fastavro", "export STORE OUT/lake --decode avro --schema-file STORE/a.avsc", "decode avro needs fastavro"),
        ("google.protobuf", "export STORE OUT/lake --decode protobuf --schema-file STORE/a.avsc:a", "reput[protobuf]"),
        ("duckdb", "query STORE --sql select\t1", "SQL needs duckdb: pip install 'reput[sql]'"),
        ("fsspec", "backup STORE memory://OUT", "object storage needs fsspec: pip install 'reput[backup]'"),
    ],
)
def test_a_command_without_its_package_says_what_to_install_and_leaves_nothing(
    golden: Callable[[str], Path],
    tmp_path: Path,
    run_reput: Run,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    arguments: str,
    said: str,
) -> None:
    store = golden("clean")
    (output := tmp_path / "output").mkdir()
    (store / "a.avsc").write_text("{}")
    monkeypatch.setitem(sys.modules, package, None)
    words = [word.replace("STORE", str(store)).replace("OUT", str(output)) for word in arguments.split(" ")]
    answer = run_reput(*words)
    assert (answer.status, answer.out) == (2, "")
    assert said in " ".join(answer.err.replace("│", " ").split())  # an option's error stands in a frame
    assert list(output.iterdir()) == []
