"""Parts of a campaign: cases that a seed and a number repeat, and their findings."""

from __future__ import annotations

import logging
import multiprocessing
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

#: Runs one case in a folder of its own; returns what it counts. What must not be is an error.
Case = Callable[[Path, int], Counter[str]]

_SHOWN_FAILURES = 20
#: Then another one takes over, so that what thousands of lives leave behind in memory goes.
_CASES_OF_A_PROCESS = 500
#: Processes that begin with nothing of the one that asks: neither its threads' locks nor the stores that it has made.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["lab.campaign.main"])


class Failure(NamedTuple):
    """A promise that was broken; `seed` repeats it."""

    part: str
    seed: int
    text: str


@dataclass(slots=True)
class Findings:
    """Findings of the cases of one part so far."""

    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


class Part(NamedTuple):
    """One way of breaking a store.

    Attributes:
        name: On the command line and in the figures.
        title: What it does, for the report.
        cases: How many the published run has; a shorter one takes a share.
        run: One case.
        figures: Of what it counts, what the docs show.
    """

    name: str
    title: str
    cases: int
    run: Case
    figures: tuple[str, ...] = ()


def run_part(
    part: Part, first_seed: int, cases: int, processes: int, say: Callable[[int, int], None], *, stop: bool
) -> Findings:
    """Run cases of one part in some processes, with `stop` up to the first failure; `say` is told how many are done."""
    findings, started = Findings(), time.perf_counter()
    seeds = range(first_seed, first_seed + cases)
    with (
        TemporaryDirectory(prefix="reput-campaign-") as folder,  # processes that are ended leave theirs behind
        _PROCESSES.Pool(processes, _begin, (folder,), maxtasksperchild=_CASES_OF_A_PROCESS) as pool,
    ):
        for counts, failure in pool.imap_unordered(partial(run_case, part), seeds):
            findings.cases += 1
            findings.counts += counts
            if failure is not None and len(findings.failures) < _SHOWN_FAILURES:
                findings.failures.append(failure)
            say(findings.cases, cases)
            if stop and findings.failures:
                pool.terminate()
                break
    findings.failures.sort()
    findings.seconds = time.perf_counter() - started
    return findings


def run_case(part: Part, seed: int) -> tuple[Counter[str], Failure | None]:
    """One case by its seed; an error of any kind is a failure, with where it was raised."""
    threading.excepthook = _told_by_a_check  # threads that die of a crash are what a campaign wants
    with _folder() as folder:
        try:
            return part.run(folder, seed), None
        except (Exception, SystemExit) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            return Counter({"failures": 1}), Failure(part.name, seed, text)


def _begin(folder: str) -> None:
    """Put all files into a folder. What stores log that are broken on purpose is for who repeats a case."""
    tempfile.tempdir = folder
    logging.getLogger("reput").setLevel(logging.CRITICAL)


def _told_by_a_check(_: threading.ExceptHookArgs) -> None:
    """Of a thread that died nothing is printed: a store that goes on as if it had not is told by the check."""


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="reput-campaign-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
