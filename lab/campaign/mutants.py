"""The code broken on purpose, in each way by itself: a campaign that does not see it is not worth its name.

    python -m lab.campaign.mutants [--only WORD] [--publish]

Each mutant is the source with some lines changed, in a folder of its own. A short campaign over it must find a broken
promise; of the broker's mutants a test must fail. The exit status is 1 where one was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from lab.campaign.pages import markdown_table, source_commit, write_between_marks

ROOT = Path(__file__).parents[2]
_LAB = ROOT / "lab"
#: Parts of the campaign, and of their cases those that one mutant may take; the quick ones first.
_STAGES = ((("power", "disks"), 0.06), (("faults",), 0.15), (("damage",), 0.15), (("kills", "flips"), 0.01))
_MOST_SECONDS = 3600
#: Of the cases of a part with its own mutants (`kinds`), those that one mutant may take.
_SHARE_OF_KINDS = 0.5
#: The tests of which the broker's mutants must fail one, and how long they may take.
_BROKER_TESTS = [
    f"tests/unit/{layer}" for layer in ("broker", "service", "transport", "remoting", "namesrv", "store/dispatch")
]
_MOST_TEST_SECONDS = 1200
#: What pytest ends with where it chose none of the tests.
_NO_TEST_CHOSEN = 5
#: Prints where kernels are kept that these sources make; those of `reput.files` are all in its module `batched_io`.
_CACHE_FOLDER = "from reput.kernels.machine.cache import cache_folder; print(cache_folder())"


class Mutant(NamedTuple):
    """Change of the source: each old text stands there exactly once."""

    title: str
    changes: tuple[tuple[str, str], ...]
    is_of_broker: bool = False
    #: The part of the campaign that is to find it; without one all are tried, or the broker's tests.
    part: str | None = None


class Hunt(NamedTuple):
    """Result for a mutant: the part, the seed of the case that found it, and the case's text; None: not found.

    A test has the part "tests", and no seed.
    """

    title: str
    seconds: float
    part: str | None = None
    seed: int | None = None
    text: str | None = None
    #: Of the source that was broken.
    commit: str = ""

    @property
    def verdict(self) -> str:
        """In a line."""
        if self.part is None:
            return "NOT FOUND"
        return f"{self.part}: {self.text}" if self.seed is None else f"{self.part} seed {self.seed}: {self.text}"


class _Failed(NamedTuple):
    """The first test that failed, and what it said; an empty test: none did."""

    test: str
    text: str = ""


def read_mutants() -> list[Mutant]:
    """Mutants of `mutants.diff`, `broker_mutants.diff` and `kinds_mutants.diff`.

    Each is a title, then lines that stay, go and come, as in a diff; "@@" is between two places. A title of the last
    file begins with the part that is to find the mutant.
    """
    mutants = []
    for name in ("mutants.diff", "broker_mutants.diff", "kinds_mutants.diff"):
        for text in (Path(__file__).parent / name).read_text().strip().split("\n\n"):
            title, *lines = text.split("\n")
            hunks = [hunk.strip("\n").split("\n") for hunk in "\n".join(lines).split("@@")]
            changes = tuple((_side(hunk, " -"), _side(hunk, " +")) for hunk in hunks)
            title = title.removeprefix("# ")
            part = title.partition(":")[0] if name == "kinds_mutants.diff" else None
            mutants.append(Mutant(title, changes, name == "broker_mutants.diff", part))
    return mutants


def _side(hunk: list[str], marks: str) -> str:
    return "".join(f"{line[1:]}\n" for line in hunk if line[0] in marks)


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print what became of each; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.campaign.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", metavar="WORD", action="append", help="mutants with this in their title; may be repeated"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first case of each part")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time")
    parser.add_argument("--publish", action="store_true", help="write lab/mutants.json and mutants.md")
    options = parser.parse_args(arguments)
    mutants = [one for one in read_mutants() if any(word in one.title for word in options.only or [""])]
    with ThreadPoolExecutor(options.processes) as hunters:
        running = [hunters.submit(_hunt, mutant, options.seed) for mutant in mutants]
        for done in as_completed(running):
            hunt = done.result()
            print(f"{hunt.seconds:5.0f} s  {hunt.title}: {hunt.verdict}", flush=True)
    hunts = [done.result() for done in running]
    found = sum(hunt.part is not None for hunt in hunts)
    print(f"{found} of {len(hunts)} found")
    if options.publish:
        publish([hunt._replace(commit=source_commit()) for hunt in hunts])
    return int(found < len(hunts))


def publish(hunts: list[Hunt]) -> None:
    """Into lab/mutants.json and mutants.md; of mutants that were not hunted the figures stay."""
    path = _LAB / "mutants.json"
    known = {one["title"]: Hunt(**one) for one in json.loads(path.read_text())["mutants"]}
    known |= {hunt.title: hunt for hunt in hunts}
    hunts = [known[mutant.title] for mutant in read_mutants() if mutant.title in known]
    path.write_text(json.dumps({"mutants": [hunt._asdict() for hunt in hunts]}, indent=1) + "\n")
    rows = [
        (hunt.title, hunt.commit[:12], hunt.part or "**none**", "" if hunt.seed is None else hunt.seed, hunt.text or "")
        for hunt in hunts
    ]
    found = sum(hunt.part is not None for hunt in hunts)
    text = markdown_table(("the code, broken so that", "at commit", "is found by", "with seed", "which said"), rows)
    write_between_marks(_LAB / "mutants.md", f"\n{found} of {len(hunts)} mutants found.\n{text}")


def _hunt(mutant: Mutant, seed: int) -> Hunt:
    """The first broken promise that a campaign over a mutant finds, or the first test of the broker's that fails."""
    started = time.perf_counter()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="reput-mutant-", dir=memory) as folder:
        paths = _make(mutant, Path(folder) / "src")
        changed = {path.parent.name for path in paths}
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src", "TMPDIR": folder}
        if changed == {"files"}:
            _share_kernels(environment, f"{folder}/cache")
        elif changed & {"formats", "kernels"}:
            environment["REPUT_CACHE_DIR"] = f"{folder}/cache"
        if mutant.is_of_broker:
            os.chmod(folder, 0o755)  # some tests read as another user
            environment["COLUMNS"] = "300"  # so that pytest's line of a failed test has what it said
            for tests in filter(None, (_mirrors(paths), _BROKER_TESTS)):
                failed = _run_tests(tests, environment, _MOST_TEST_SECONDS)
                if failed.test:
                    text = _short(f"{failed.test.rpartition('/')[2]}: {failed.text}", folder)
                    return Hunt(mutant.title, time.perf_counter() - started, "tests", text=text)
            return Hunt(mutant.title, time.perf_counter() - started)
        stages = _STAGES if mutant.part is None else (((mutant.part,), _SHARE_OF_KINDS),)
        for parts, share in stages:
            command = [sys.executable, "-m", "lab.campaign.main", "--processes=1", f"--share={share}", f"--seed={seed}"]
            command += ["--stop", f"--output={folder}/found.json", *(f"--only={part}" for part in parts)]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=_MOST_SECONDS
            )
            found = Path(folder, "found.json")
            if not found.exists():
                raise SystemExit(f"{mutant.title}: the campaign itself failed: {done.stderr.decode()[-2000:]}")
            seconds = time.perf_counter() - started
            for part in json.loads(found.read_text())["parts"].values():
                for failure in part["failures"]:
                    text = _short(failure["text"], folder)
                    return Hunt(mutant.title, seconds, failure["part"], failure["seed"], text)
        return Hunt(mutant.title, seconds)


def _run_tests(tests: list[str], environment: dict[str, str], most_seconds: float) -> _Failed:
    """Run tests up to the first one that fails; where the process dies or takes too long, the one that it was in."""
    command = [sys.executable, "-m", "pytest", "-v", "-x", "--tb=line", "-p", "no:cacheprovider"]
    command += ["-m", "not java and not browser", *tests]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = running.communicate(timeout=most_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        printed, _ = running.communicate()
        return _Failed(_last_test(printed, tests), f"takes more than {most_seconds:.0f} s")
    if running.returncode in (0, _NO_TEST_CHOSEN):
        return _Failed("")
    for line in printed.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in ("FAILED", "ERROR") and rest:
            test, _, text = rest.partition(" - ")
            return _Failed(test, text)
    return _Failed(_last_test(printed, tests), f"the process ends with {running.returncode}")


def _last_test(printed: str, tests: list[str]) -> str:
    """The test that a process was in when it ended, as `pytest -v` names it."""
    named = [line.split(" ")[0] for line in printed.splitlines() if line.startswith("tests/")]
    return named[-1] if named else tests[0]


def _mirrors(paths: set[Path]) -> list[str]:
    """The test files of modules."""
    tests = [f"tests/unit/{path.parent}/test_{path.name}" for path in sorted(paths)]
    return [test for test in tests if (ROOT / test).exists()]


def _share_kernels(environment: dict[str, str], cache: str) -> None:
    """Let a mutant with the sources' kernels use them, though its own sources have another name for them."""
    command = [sys.executable, "-c", _CACHE_FOLDER]
    before = {**environment, "PYTHONPATH": f"{ROOT}/src"}
    environment["REPUT_CACHE_DIR"] = cache
    kept, wanted = (
        subprocess.run(command, env=one, capture_output=True, text=True, check=True).stdout.strip()
        for one in (before, environment)
    )
    os.makedirs(cache)
    os.symlink(kept, wanted)


def _short(text: str, folder: str) -> str:
    """Without the names of folders that no one has any more."""
    words = (word.rpartition("/")[2] if folder in word else word for word in text.split())
    return " ".join(words)[:160]


def _make(mutant: Mutant, source: Path) -> set[Path]:
    """Copy the source and change it; the modules that have changed, below `reput`."""
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    changed = set()
    for old, new in mutant.changes:
        holders = [path for path in sorted(source.rglob("*.py")) if old in path.read_text()]
        if len(holders) != 1 or holders[0].read_text().count(old) != 1:
            names = [path.name for path in holders]
            raise SystemExit(f"the mutant {mutant.title!r} is out of date: {old!r} stands in {names}")
        holders[0].write_text(holders[0].read_text().replace(old, new))
        changed.add(holders[0].relative_to(source / "reput"))
    return changed


if __name__ == "__main__":
    sys.exit(main())
