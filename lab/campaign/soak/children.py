"""The processes of a soak, as the one that watches them starts, hears, kills and replaces them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from lab.campaign.soak.ledger import Ledger
from lab.campaign.soak.load import SoakedStore
from lab.campaign.soak.samples import children_of
from lab.campaign.soak.telling import Acknowledgement, Listener

ROOT = Path(__file__).parents[3]


def module(name: str) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", name]


class Child:
    """A process that tells what it does; a next one may take its place.

    Attributes:
        role: Its name in the figures.
        pid: Of the one that lives now; it was started, and has opened its store, at a time of the monotonic clock.
        counts: What all its lives have counted.
        failures: What broke, by its own words or by its end.
    """

    def __init__(self, role: str, folder: Path, command: Iterable[str], arguments: Iterable[str]) -> None:
        self.role = role
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._folder = folder
        self._command = list(command)
        self._arguments = list(arguments)
        self._lives = 0
        self._errors = folder / f"{role}.stderr"
        self._start()

    def _start(self) -> None:
        self._told = self._folder / f"{self.role}-{self._lives}.txt"
        self._listener = Listener(self._told)
        self._said_why = False
        self.started_at = time.monotonic()
        self.opened_at: float | None = None
        with self._errors.open("wb") as errors:
            self._process = self._popen(errors)
        self.pid = self._process.pid
        self._lives += 1

    def _popen(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [*self._command, str(self._told), *self._arguments, *self._of_this_life()]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=errors)

    def _of_this_life(self) -> list[str]:
        """Further arguments."""
        return []

    def listen(self) -> None:
        """Take in what it has told since the last time; one that ended by itself has failed, and gets a successor."""
        ended = self._process.poll()
        self._hear()
        if ended is not None:
            if not self._said_why:
                self.failures.append(f"{self.role}: ended by itself with {ended}: {self._last_words()}")
            self.replace()

    def _last_words(self) -> str:
        """The end of what it has written to its standard error."""
        return self._errors.read_text(errors="replace")[-1000:]

    def _hear(self) -> None:
        for word, text in self._listener.lines():
            if word == "failed":
                self._said_why = True
                self.failures.append(f"{self.role}: {text}")
            elif word == "count":
                name, _, number = text.rpartition(" ")
                self.counts[name] += int(number)
            elif word == "acknowledged":
                self._acknowledged(Acknowledgement.parse(text))
            elif word == "promised":
                self._promised(*text.split(" "))
            elif word == "consumed":
                self._consumed(*text.split(" "))
            else:
                self.opened_at = time.monotonic()
                self.counts[word] += 1

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        raise AssertionError(f"{self.role} does not write")

    def _promised(self, group: str, key: str) -> None:
        raise AssertionError(f"{self.role} promises nothing")

    def _consumed(self, group: str, key: str) -> None:
        raise AssertionError(f"{self.role} is in no group")

    def kill(self) -> None:
        """SIGKILL, to what it has started too, and hear what it said before."""
        for pid, _ in list(children_of(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._hear()

    def replace(self) -> None:
        """Start its next life."""
        self._listener.close()
        self._told.unlink()
        self._start()


class StoreChild(Child):
    """Process with a store open to write, and the messages that must be in it."""

    def __init__(self, store: SoakedStore, folder: Path, command: Iterable[str], arguments: Iterable[str]) -> None:
        self.store = store
        self.path = folder / store.name
        self.ledger = Ledger(self.path)
        super().__init__(store.name, folder, command, arguments)


class WriterChild(StoreChild):
    """The writer of a store, whose acknowledgements go to the store's ledger."""

    def __init__(self, store: SoakedStore, folder: Path, rate: float) -> None:
        arguments = [store.name, str(folder / store.name), str(rate)]
        super().__init__(store, folder, module("lab.campaign.soak.writer"), arguments)

    def _of_this_life(self) -> list[str]:
        return [str(self._lives)]

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        self.ledger.add(acknowledgement)
