"""The command on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress


def shown_on_a_terminal(arguments: list[str], width: int, stream: str = "stdout") -> str:
    """Output of a command to one of its streams on a terminal of that width, without styles."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, width))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: terminal}
    command = [sys.executable, "-m", "reput", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, **streams) as process:  # type: ignore[call-overload]
        os.close(terminal)
        shown = all_of(controller)
    assert process.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def all_of(controller: int) -> str:
    """Text of a terminal until its last process has ended; closes it."""
    shown = b""
    with suppress(OSError):  # the end of a terminal whose last process has ended
        while part := os.read(controller, 65536):
            shown += part
    os.close(controller)
    return shown.decode()
