"""All output of commands: tables and progress bars for people, JSON for programs, errors for both.

Results go to stdout, everything else to stderr. With `--json`, dump, get and query print one line a message, and every
other command prints one object; times are then milliseconds since 1970 UTC, as in the files.

Text in a pipe is for programs, too: lines of any length without blanks at their ends, no empty line at the begin, and
numbers as plain digits. On a terminal lines are as wide as it is, and digits are grouped by commas.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from select import select
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from reput.cli import interrupts
from reput.events import Event
from reput.jobs.report.table import format_value
from reput.jobs.report.terminal_table import draw_fields, draw_table, printable
from reput.jobs.text_values import json_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from reput.jobs.report.report import Report
    from reput.progress import Progress

logger = logging.getLogger("reput.cli")

_ABSENT: tuple[Any, ...] = (None, "", [], {})
_QUOTED = frozenset(' "\\')
_UNBOUNDED_WIDTH = _UNBOUNDED_HEIGHT = 1 << 16
#: Least width of a terminal for a progress bar with its times; a narrower one shows the percentage alone.
_BAR_WIDTH = 50
#: Longest wait for a key. Ctrl-C that comes just before the system call does not end it, and is seen after it.
_KEY_WAIT_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: To the start of the terminal's line, which is cleared.
_CLEAR = "\r\x1b[K"
#: The standard output to which something was printed; tests have one for each command.
_printed_to: TextIO | None = None
#: Contexts of `no_progress` that are open.
_silent: list[None] = []
#: While progress bars are on the terminal: what shows a line below them.
_below_bars: list[Callable[[str], None]] = []


def write_error(text: str) -> None:
    """Print one line on stderr. If stderr is closed or cannot be written, only the exit status tells the user."""
    if sys.stderr is None:  # print would use stdout
        return
    line = printable(" ".join(text.splitlines()))
    try:
        print(f"reput: {line}", file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = None  # else Python writes again at the end of the process, and the exit status is 120


class KernelLine(logging.Handler):
    """Line on stderr that tells which kernel is compiled (`reput.kernels.machine.compilation`).

    On a terminal it changes with each kernel, and is gone at the end. Elsewhere only the first is printed, which also
    tells the folder.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_printed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record of the log `reput.kernels`; one with `is_end` ends the line."""
        if _silent:
            return
        is_end = getattr(record, "is_end", False)
        if sys.stderr is not None and sys.stderr.isatty():
            line = "" if is_end else self._fitting(record.getMessage())
            for show in _below_bars:
                show(line)
            if not _below_bars:
                sys.stderr.write(_CLEAR + line)
                sys.stderr.flush()
        elif not is_end and not self._is_printed:
            self._is_printed = True
            write_error(record.getMessage().removeprefix("reput: "))

    @staticmethod
    def _fitting(text: str) -> str:
        """Text for one line of the terminal: without brackets, and of a narrow one only what stands after the colon."""
        from rich.console import Console

        room = Console(stderr=True).width - 1
        line = text.partition(" (")[0]
        return line if len(line) <= room else line.rpartition(": ")[2][:room]


def damage_status(damage: Exception | None) -> int:
    """Exit status for damage that ended the log early, which is printed; 0 without damage."""
    if damage is None:
        return 0
    write_error(str(damage))
    return 1


def write_text(text: str) -> None:
    """Print a line as it is."""
    global _printed_to
    _printed_to = sys.stdout
    print(text)


def write_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line. Escaped if the encoding of stdout does not have all characters."""
    text = json_text(value)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = "".join([one if one.isascii() else json.dumps(one)[1:-1] for one in text])
    print(text)


def write_ready(addresses: Mapping[str, str], *, as_json: bool) -> None:
    """Print at once, on one line, that a server is reached: `ready namesrv=127.0.0.1:9876`, or one JSON object."""
    text = json.dumps({"ready": True, **addresses})
    words = (f"{name}={address}" for name, address in addresses.items())
    print(text if as_json else " ".join(("ready", *words)), flush=True)


def write_status(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stderr, beside lines of messages on stdout."""
    print(json.dumps(value), file=sys.stderr)


def write_report(report: Report) -> None:
    """Print facts, tables and findings of a report."""
    report.print(_console())


def write_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one pair a line."""
    from rich.text import Text

    console = _console()
    console.print(draw_fields({name: Text(printable(str(value))) for name, value in fields.items()}, console.width))


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, one_line: Sequence[str] = ()) -> None:
    """Print a table of a few rows. Cells of the columns in `one_line` are cut if they do not fit.

    A blank line is between the table and what was printed before. On a terminal that is too narrow for a table, each
    row is a block. Numbers are aligned right, and not grouped by thousands: most are offsets, which users copy into the
    next command.
    """
    is_first = _printed_to is not sys.stdout
    values = list(rows)
    numeric = [bool(values) and all(isinstance(row[number], int) for row in values) for number in range(len(columns))]
    cells = [[printable(str(value)) for value in row] for row in values]
    console = _console()
    if not is_first:
        console.print()
    console.print(draw_table(columns, cells, numeric, one_line, console.width))


def write_line(fields: Mapping[str, Any]) -> None:
    """Print one line of a long listing as `name=value` pairs, so that each line can be read and searched by itself."""
    print("  ".join(f"{name}={_plain(name, value)}" for name, value in fields.items() if value not in _ABSENT))


def _plain(name: str, value: Any) -> str:
    if name.endswith("_timestamp"):
        return iso_time(value)
    is_word = isinstance(value, str) and value.isprintable() and not _QUOTED.intersection(value)
    return str(value) if is_word else printable(json.dumps(value, ensure_ascii=False))


def number_text(value: int | float | None) -> str:
    """Text of a number: its digits are grouped on a terminal, plain in a pipe; empty for None."""
    return format_value(value, grouped=is_terminal())


class _PipeOutput:
    """Standard output without a terminal, as rich wants a file: lines end without blanks, with which it fills them."""

    def __init__(self) -> None:
        self.encoding = sys.stdout.encoding

    def write(self, text: str) -> int:
        """Write whole lines."""
        return sys.stdout.write("\n".join(line.rstrip(" ") for line in text.split("\n")))

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()


def _console() -> Console:
    """Console as wide as the terminal. Without a terminal lines are never cut, as a program reads them."""
    from rich.console import Console

    global _printed_to
    _printed_to = sys.stdout
    if sys.stdout.isatty():
        return Console()
    return Console(file=cast("IO[str]", _PipeOutput()), width=_UNBOUNDED_WIDTH)


def iso_time(timestamp_ms: int | None) -> str:
    """ISO 8601 text of milliseconds since 1970 UTC; the number itself outside the years 1 to 9999; empty for None."""
    if timestamp_ms is None:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


class Screen:
    """Screen that is drawn repeatedly. With `live` None what is drawn is printed below what was there."""

    def __init__(self, live: Live | None) -> None:
        self._live = live

    @property
    def _console(self) -> Console:
        return _console() if self._live is None else self._live.console

    @property
    def width(self) -> int:
        """Characters of a line of the terminal; no limit without a terminal."""
        return self._console.width

    @property
    def height(self) -> int:
        """Lines of the terminal; no limit if the screen is printed."""
        return self._console.height if self._live is not None else _UNBOUNDED_HEIGHT

    def show(self, drawn: RenderableType) -> None:
        """Draw the screen anew."""
        if self._live is not None:
            self._live.update(drawn, refresh=True)
        else:
            self._console.print(drawn)

    def wait(self, seconds: float) -> bool:
        """Wait for a time, or until the user presses q; returns whether q was pressed."""
        if self._live is None or not sys.stdin.isatty():
            time.sleep(seconds)
            return False
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if select([sys.stdin], [], [], min(left, _KEY_WAIT_S))[0]:
                if sys.stdin.read(1) in ("q", "Q", ""):
                    return True
            elif not left:
                return False


@contextmanager
def live_screen(*, is_shown: bool) -> Iterator[Screen]:
    """Show the terminal's alternate screen, with keys read one by one."""
    if not is_shown:
        yield Screen(None)
        return
    import termios
    import tty

    from rich.live import Live

    settings = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        if settings is not None:
            tty.setcbreak(sys.stdin)
        with Live(screen=True, auto_refresh=False) as live:
            yield Screen(live)
    finally:
        if settings is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


@contextmanager
def no_progress() -> Iterator[None]:
    """Show neither progress bars nor the line about kernels meanwhile."""
    _silent.append(None)
    try:
        yield
    finally:
        _silent.pop()


@contextmanager
def progress_bar(*, is_shown: bool = True) -> Iterator[Progress]:
    """Show a bar on stderr for each description of the progress; nothing if stderr is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class Bars(Progress):
        line = ""

        def get_renderables(self) -> Iterable[RenderableType]:
            yield from super().get_renderables()
            if self.line:
                yield Text(self.line)

        def show_below(self, line: str) -> None:
            self.line = line
            self.refresh()

    console = Console(stderr=True)
    description = TextColumn("{task.description}", table_column=Column())  # it wraps, so that no number must
    columns: list[ProgressColumn] = [description, TaskProgressColumn()]
    if console.width >= _BAR_WIDTH:
        elapsed = TimeElapsedColumn(table_column=Column(no_wrap=True))
        remaining = TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
        columns = [description, BarColumn(), TaskProgressColumn(), elapsed, remaining, TextColumn("left")]
    with (
        Bars(
            *columns,
            console=console,
            transient=True,
            disable=not (is_shown and not _silent and console.is_terminal),
            redirect_stdout=False,  # results go to stdout, not to the bar's terminal
            redirect_stderr=False,
        ) as bars,
        interrupts.restoring(bars.stop),
    ):
        tasks = {}
        if not bars.disable:
            _below_bars.append(bars.show_below)

        def report(done: int, total: int, description: str) -> None:
            if description not in tasks:
                tasks[description] = bars.add_task(description, total=total)
                logger.info(Event("begun", step=description, total=total))
            if done == total:
                logger.info(Event("done", step=description, total=total))
            bars.update(tasks[description], completed=done, total=total)

        try:
            yield report
        finally:
            _below_bars.clear()
