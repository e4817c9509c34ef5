"""The trial of a change: the tests that cover its line, over a copy of the source with the change."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from campaign.sampled_mutants.changes import SOURCE, Change
from campaign.sampled_mutants.covering import MARKERS, ROOT, Covering

#: Layers whose sources become part of the compiled kernels.
_COMPILED = ("formats", "kernels")
_NO_TEST_CHOSEN = 5


class Outcome(NamedTuple):
    """What became of a change: the test that noticed it and what that said; an empty test: nobody noticed."""

    test: str
    text: str = ""


def try_change(change: Change, covering: Covering) -> Outcome:
    """Run the test files that cover a change, the one that mirrors its module by itself before the others."""
    tests = covering.of(change)
    with tempfile.TemporaryDirectory(prefix="reput-mutant-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # some tests read as another user
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / change.path
        data = file.read_bytes()
        file.write_bytes(data[: change.begin] + change.text.encode() + data[change.end :])
        environment = {**os.environ, "PYTHONPATH": str(source), "TMPDIR": folder}
        if change.layer in _COMPILED:
            environment["REPUT_CACHE_DIR"] = f"{folder}/cache"
        for group in filter(None, (tests[:1], tests[1:])):
            outcome = run_tests(group, environment, 120 + 10 * covering.seconds(group))
            if outcome.test:
                return outcome._replace(text=outcome.text.replace(folder, "")[:160])
    return Outcome("")


def run_tests(tests: list[str], environment: dict[str, str], most_seconds: float) -> Outcome:
    """The first test that fails; where the process dies or takes too long, the file in which it does."""
    command = [sys.executable, "-m", "pytest", "-v", "-x", "--tb=line", "-p", "no:cacheprovider", "-m", MARKERS, *tests]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = running.communicate(timeout=most_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        printed, _ = running.communicate()
        return Outcome(_last_test(printed, tests), f"takes more than {most_seconds:.0f} s")
    if running.returncode in (0, _NO_TEST_CHOSEN):
        return Outcome("")
    for line in printed.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in ("FAILED", "ERROR") and rest:
            test, _, text = rest.partition(" - ")
            return Outcome(test, text)
    return Outcome(_last_test(printed, tests), f"the process ends with {running.returncode}")


def _last_test(printed: str, tests: list[str]) -> str:
    """The test that a process was in when it ended, as `pytest -v` names it."""
    named = [line.split(" ")[0] for line in printed.splitlines() if line.startswith("tests/")]
    return named[-1] if named else tests[0]
