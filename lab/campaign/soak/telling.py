"""Messages of a soak's process to the one that watches it: lines in a file, which no kill takes back.

Each line is a word and a text: `acknowledged` (see `Acknowledgement`), `promised GROUP KEY`, `consumed GROUP KEY`,
`count NAME NUMBER`, `failed REASON`, `opened`. A broker's line is `ready` and where it listens.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import reput
from lab.campaign.soak.load import body_of


class Acknowledgement(NamedTuple):
    """Promise of a put. `offset` is the commit log offset; a table's row has the offset of the table's first."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    key: str

    def line(self) -> str:
        """Line for `Teller.tell`."""
        return " ".join(map(str, ("acknowledged", *self)))

    @classmethod
    def parse(cls, text: str) -> Acknowledgement:
        """Of what stands behind the line's word."""
        offset, topic, queue_id, queue_offset, key = text.split(" ")
        return cls(int(offset), topic, int(queue_id), int(queue_offset), key)


class Teller:
    """The child's side; any thread may tell."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._counting = Lock()
        self._counts: Counter[str] = Counter()

    def tell(self, *lines: str) -> None:
        """In one write, so that lines of two threads do not mix."""
        data = "".join(f"{line}\n" for line in lines).encode()
        assert os.write(self._descriptor, data) == len(data)

    def count(self, name: str, count: int = 1) -> None:
        """To be told later."""
        with self._counting:
            self._counts[name] += count

    def tell_counts(self) -> None:
        """Tell the counts since the last time."""
        with self._counting:
            counts, self._counts = self._counts, Counter()
        self.tell(*(f"count {name} {count}" for name, count in counts.items()))

    def start(self, work: Callable[[], None]) -> None:
        """Run an endless work in a thread; if it fails, tell why and end the process."""

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.fail(error)

        Thread(target=run, daemon=True).start()

    def fail(self, error: BaseException) -> None:
        """Tell what broke, and end the process at once."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "campaign" in frame.filename] or frames
        text = " ".join(f"{type(error).__name__}: {error}".split())
        self.tell(f"failed {text[:2000]} ({Path(own[-1].filename).name}:{own[-1].lineno})")
        os._exit(1)


class Listener:
    """The watcher's side: reads on where it was."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Word and text of each line that has come; what a kill has cut off is none."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            word, _, text = line.decode().partition(" ")
            yield word, text

    def close(self) -> None:
        """Nothing more is read."""
        self._file.close()


def check_message(message: reput.MessageExt) -> str:
    """The key of a message whose body is the one that the key asks for."""
    (key,) = message.keys
    assert message.body == body_of(key), f"the body of {key} is another one"
    return key
