"""A package that is missing is told in one line, before any work is done."""

from __future__ import annotations

import json
import re
import subprocess
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
        ("pyiceberg", "export STORE OUT/lake --format iceberg", "format iceberg needs pyiceberg"),
        ("fastavro", "export STORE OUT/lake --decode avro --schema-file STORE/a.avsc", "decode avro needs fastavro"),
        ("google.protobuf", "export STORE OUT/lake --decode protobuf --schema-file STORE/a.avsc:a", "reput[lake]"),
        ("duckdb", "query STORE --sql select\t1", "SQL needs duckdb: pip install 'reput[lake]'"),
        ("fsspec", "backup STORE memory://OUT", "object storage needs fsspec: pip install 'reput[lake]'"),
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


#: Each command that works on a store, and what it is given. Commands not named here need none.
OF_A_STORE = """
put STORE --topic t --body b
put NEW --topic t --body b
get STORE --topic order --queue-id 0
tail STORE --topic order --from first --timeout 0.1
query STORE --topic order --key k
dump STORE
info STORE
top STORE --once
audit STORE
diff STORE STORE
repair STORE
rebuild STORE --output NEW
stats STORE --bucket 1h
export STORE NEW
import LINES NEW
replay STORE NEW
archive STORE NEW
backup STORE NEW
backups STORE
restore STORE NEW
prune STORE --keep-last 1
broker NEW --set listenPort=0
dispatch STORE
delete-expired STORE
warm
warm --where
warm --cache NEW
produce t --format parquet
consume t --format parquet
"""
CORE_ALONE = """
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys(("numpy", "numba", "llvmlite", "pyarrow")))  # numba brings llvmlite
from typer.main import get_command
from reput.cli.main import app
command, answers = get_command(app), []
for line in sys.argv[1:]:
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command.main(line.split(), prog_name="reput")
        except SystemExit as end:
            answers.append((line, end.code, out.buffer.getvalue().decode(), err.getvalue()))
print(json.dumps(answers))
"""


def test_each_command_of_a_store_says_what_to_install_where_there_is_the_core_alone(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "lines.jsonl").write_text('{"topic": "t", "body": "x"}\n')
    paths = {"STORE": golden("clean"), "NEW": tmp_path / "new", "LINES": tmp_path / "lines.jsonl"}
    lines = [" ".join(str(paths.get(word, word)) for word in line.split()) for line in OF_A_STORE.strip().splitlines()]
    told = subprocess.run(
        [sys.executable, "-c", CORE_ALONE, *lines], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    line = r"reput: .* needs (numpy|numba|pyarrow): pip install 'reput\[(store|tables)\]'\n"
    answers = json.loads(told.stdout)
    assert [one for one in answers if one[1:3] != [2, ""] or not re.fullmatch(line, one[3])] == []
    assert {one[0].split()[0] for one in answers if "reput[store]" in one[3]} == {"warm"}  # most need tables, too
    assert len(answers) == len(lines)
    assert not (tmp_path / "new").exists()
