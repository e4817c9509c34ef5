"""Kills and power cuts of an export whose Iceberg or Delta tables follow a log, and catalogs that fail in a commit.

A kill comes before or after a step of a commit or of the upkeep, or anywhere else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

import reput
from lab.campaign.cases import Part
from lab.campaign.children import in_child
from lab.campaign.export_steps import STEPS, tell_of_steps
from reput.errors import StoreError
from reput.files import DISK, FileLayer
from reput.jobs.lake import ExportOptions, follow
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import Crash, FaultyFiles, Operation, crash_at
from tests.support.iceberg import names_of_tables, rows_of_table
from tests.support.invariants import SMALL

#: Lives that end by a death, and the runs of each.
_LIVES, _RUNS = 5, 2
_FORMS = ("iceberg", "iceberg", "delta")
_KILLS = ("kill at a file operation", "kill at a call")
_POWER_CUTS = ("power cut", "kill, then power cut")
#: Where an Iceberg catalog fails.
_FAILURES = {
    "catalog fails before its commit": "before a snapshot is committed",
    "catalog fails in its commit": "after metadata are written",
    "catalog fails after its commit": "after a snapshot is committed",
}
#: Of all lives, those that are killed before or after a step.
_AT_STEPS = 0.4
_TOPICS = ("orders", "%RETRY%g", "users")
#: Bodies that no table should end at: names that are one to SQL, empty or with dots, numbers beyond 64 bits, lists of
#: several types, many levels, text without its end.
_ODD = (
    b'{"id": 1, "ID": 2, "Id": "x"}', b'{"": 1, " ": 2, "a.b": 3, "a": {"b": 4}}', b'{"n": 18446744073709551616}',
    b'{"n": 1e400, "m": -0.0}', b'{"l": [1, "x", null, {"y": []}]}', b'{"text": {"now": "an object"}}',
    b"[" * 1500 + b"]" * 1500, b"none", b"null", b"{}", b"", b'{"text": "\\ud800"}', b'{"text": "',
    b'{"\\u0000": 1, "text": 7}',
)  # fmt: skip
_STORE: dict[str, Any] = SMALL | {"mapped_file_size_commit_log": 8192, "max_message_size": 4096}
#: Several commits a run, and of each several files of a topic, of which some are put together.
_OPTIONS: dict[str, Any] = {
    "decode": "json", "new_fields": "add", "compact": 2, "split_bytes": 2000, "commit_bytes": 4096,
}  # fmt: skip
#: A later life has more to put together than the one whose length is counted.
_LONGER = 1.3
_TO_THE_END = "lives to the end"
#: What a commit of a Delta table says of its batch.
_BEGIN = "reput.beginOffset"

#: What `sys.setprofile` takes.
_Profiler = Callable[[Any, str, Any], None]


class _Place(NamedTuple):
    """Paths and format of a case."""

    store: Path
    output: Path
    form: str


def _put(place: _Place, seed: int) -> None:
    """Messages of all topics; now and then a new field, or an odd body."""
    chance = random.Random(seed)
    topics = [*_TOPICS, *chance.choices(_TOPICS, k=chance.randrange(30))]
    bodies = []
    for number in range(len(topics)):
        field = b', "f%d": true' % chance.randrange(4) if chance.random() < 0.2 else b""
        is_odd = number >= len(_TOPICS) and chance.random() < 0.2
        bodies.append(chance.choice(_ODD) if is_odd else b'{"text": "%s"%s}' % (b"x" * chance.randrange(200), field))
    with reput.MessageStore.open(place.store, **_STORE) as store:
        store.put_arrow(pa.table({"topic": topics, "body": bodies}))


def _live(place: _Place, seed: int, files: FileLayer, profiler: _Profiler | None = None) -> int:
    """Runs of an export with messages before each of them; how many messages got into the tables.

    `profiler` is told of each call of a function in the thread of the runs.
    """
    left = iter(range(1, _RUNS))

    def wait() -> bool:
        sys.setprofile(None)
        if (number := next(left, None)) is None:
            return False
        _put(place, seed + number)
        sys.setprofile(profiler)
        return True

    _put(place, seed)
    sys.setprofile(profiler)
    try:
        return _follow(place, files, wait)
    finally:
        sys.setprofile(None)


def _follow(place: _Place, files: FileLayer, wait: Callable[[], bool]) -> int:
    # old files go at once, but where deltalake removes them, and a file layer that cuts the power does not know
    retain_hours = int(place.form == "delta" and isinstance(files, FaultyFiles))
    options = ExportOptions(**_OPTIONS, format=place.form, retain_hours=retain_hours)  # type: ignore[arg-type]
    runs = follow(place.store, place.output, runner=LocalRunner(1), wait=wait, options=options, files=files)
    return sum(one.messages + one.rejected for one in runs)


def _drawn_way(chance: random.Random, form: str) -> str:
    """Way in which a life is to end."""
    if chance.random() < _AT_STEPS:
        return f"kill {chance.choice(('before', 'after'))} {chance.choice(list(STEPS[form]))}"
    return chance.choice((*_KILLS, *_POWER_CUTS, *(_FAILURES if form == "iceberg" else ())))


def _live_and_die(place: _Place, cut: Path, seed: int, way: str, length: Counter[str]) -> Counter[str]:
    """A life that kills its process, or fails, at some moment; or comes to its end.

    Args:
        cut: where to put what a power cut leaves of the output.
        length: of a life, as `_length`.
    """
    chance = random.Random(seed)
    files = FaultyFiles()
    if place.output.exists():
        files.all_is_durable(place.output)
    if way == "kill, then power cut":  # in one machine
        files.judge = crash_at(chance.randrange(length["operations"]))
        with suppress(Crash):
            _live(place, seed, files)
        files.abandon()
        files, before = FaultyFiles(), files
        files.goes_on_after(before)

    def die() -> None:
        if way in _POWER_CUTS and place.output.exists():
            files.cut_power(place.output, cut)
        os.kill(os.getpid(), signal.SIGKILL)

    if way in _FAILURES:
        return _live_and_fail(place, seed, _FAILURES[way], length, chance)
    if way == "kill at a call":
        events, event = count(), chance.randrange(length["events"])

        def profiler(*_: object) -> None:
            if next(events) == event:
                die()

        _live(place, seed, DISK, profiler)
    elif way in (*_KILLS, *_POWER_CUTS):
        number = chance.randrange(length["operations"])

        def judge(operation: Operation) -> None:
            if operation.number == number:
                die()

        files.judge = judge
        _live(place, seed, files)
    else:
        _end_at(place.form, way.removeprefix("kill "), length, chance, die)
        _live(place, seed, DISK)
    return Counter({_TO_THE_END: 1})


def _live_and_fail(place: _Place, seed: int, moment: str, length: Counter[str], chance: random.Random) -> Counter[str]:
    """A life in which a commit of the catalog fails."""

    def fail() -> None:
        raise ConnectionError("the catalog is out of reach")

    _end_at(place.form, moment, length, chance, fail)
    try:
        _live(place, seed, DISK)
    except StoreError as error:
        if not isinstance(error.__cause__, ConnectionError):
            raise
        return Counter({"commits that failed": 1})
    return Counter({_TO_THE_END: 1})


def _end_at(form: str, moment: str, length: Counter[str], chance: random.Random, end: Callable[[], None]) -> None:
    """Call `end` at one of the moments, which `chance` draws, before or after a step."""
    numbers, number = count(), chance.randrange(max(1, length[moment]))

    def tell(now: str) -> None:
        if now == moment and next(numbers) == number:
            end()

    tell_of_steps(form, tell)


@cache
def _length(form: str) -> Counter[str]:
    """About how many operations of files, events of the profiler, and moments before and after steps a life has."""
    with TemporaryDirectory(prefix="reput-campaign-") as folder:
        place = _Place(Path(folder) / "store", Path(folder) / "output", form)
        return in_child(partial(_count, place))


def _count(place: _Place) -> Counter[str]:
    files, counts = FaultyFiles(), Counter[str]()

    def tell(moment: str) -> None:
        counts[moment] += 1

    def profiler(*_: object) -> None:
        counts["events"] += 1

    _live(place, 0, files, profiler)
    counts["operations"] = len(files.operations)
    tell_of_steps(place.form, tell)
    _live(place, _RUNS, DISK)  # with files of the first life to put together
    return Counter({kind: int(_LONGER * many) for kind, many in counts.items()})


def _found(place: _Place, *, are_complete: bool) -> Counter[str]:
    """Commit log offsets of all rows that readers of the tables find: each once, with the body that the log has."""
    columns = reput.read_log(place.store, ["commit_log_offset", "body"]).read_all()
    wanted = dict(zip(*(column.to_pylist() for column in columns.columns), strict=True))
    tables = [rows_of_table(place.output, name) for name in names_of_tables(place.output)]
    paths = [str(path.parent) for path in place.output.rglob("_delta_log")]
    deltas = [DeltaTable(path) for path in paths if DeltaTable.is_deltatable(path)]
    for delta in deltas:  # a file that is added twice is there once, but a stream reads it with each commit
        begins = Counter(one[_BEGIN] for one in delta.history() if _BEGIN in one)
        assert not begins or max(begins.values()) == 1, f"a batch is in two commits: {begins.most_common(3)}"
    tables += [delta.to_pyarrow_table() for delta in deltas]
    found = Counter[str]()
    for table in tables:
        for row in table.select(["commit_log_offset", "body"]).to_pylist():
            offset, body = row["commit_log_offset"], row["body"]
            was = wanted[offset]
            if isinstance(body, dict):
                fields = {name: value for name, value in body.items() if value is not None}
                is_right = was in _ODD or fields == json.loads(was)
            else:  # of a row that was put aside
                is_right = was in _ODD and body == was
            assert is_right, f"the row of the message at {offset} has the body {body!r}"
            found[str(offset)] += 1
    assert not found or max(found.values()) == 1, f"messages are there more than once: {found.most_common(3)}"
    assert not are_complete or len(found) == len(wanted), f"{len(found)} of {len(wanted)} messages are there"
    return found


def _check(place: _Place, seen: set[str], *, are_complete: bool = False) -> set[str]:
    """Check the answers of readers: no less than they had found before."""
    found = set(in_child(partial(_found, place, are_complete=are_complete)))
    assert seen <= found, f"{len(seen - found)} rows are gone that were there"
    return found


def run(folder: Path, seed: int) -> Counter[str]:
    """An export whose lives end by a death, or by a catalog that fails; after each of them, its tables are looked at.

    Each life has a process of its own: a death is SIGKILL, and delta-rs works in no fork of a process that has used it.
    """
    chance = random.Random(seed)
    place, cut = _Place(folder / "store", folder / "output", _FORMS[seed % len(_FORMS)]), folder / "cut"
    counts, seen = Counter({f"format: {place.form}": 1}), set[str]()
    for number in range(_LIVES):
        way = _drawn_way(chance, place.form)
        life = partial(_live_and_die, place, cut, 100 * seed + 10 * number, way, _length(place.form))
        ended = in_child(life, may_kill_itself=True)
        if cut.exists():
            shutil.rmtree(place.output)
            cut.rename(place.output)
        counts += ended or Counter({"power cuts" if way in _POWER_CUTS else "kills": 1})
        counts[f"way: {way}"] += not ended[_TO_THE_END]
        seen = _check(place, seen)
    in_child(lambda: Counter({"rows": _live(place, 100 * seed + 10 * _LIVES, DISK)}))
    counts["rows"] += len(_check(place, seen, are_complete=True))
    again = in_child(lambda: Counter({"rows": _follow(place, DISK, lambda: False)}))
    assert not again["rows"], f"a run after all exports {again['rows']} messages again"
    left = [path.name for path in (place.output / "_reput").iterdir() if path.name.startswith("staging")]
    assert not left, f"{left} is left"
    return counts


PART = Part(
    "tables",
    "kills and power cuts of an export with tables, and catalogs that fail",
    45,
    run,
    ("kills", "power cuts", "commits that failed", "rows"),
)
