"""A deed in a child process, and how it ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from reput.errors import ReputError


def raised_in_child(deed: Callable[[], object]) -> str:
    """The error that a deed raises in a child process, as text; empty for none; or the signal that ended it.

    An error of another kind than ours begins with a question mark.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        text = ""
        try:
            deed()
        except ReputError as error:
            text = f"{type(error).__name__}: {error}"
        except BaseException as error:
            text = f"? {error!r}"
        finally:
            os.write(write_end, text.encode())
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else text
