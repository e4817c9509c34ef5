"""Stores whose last reference went without a `close()`: each is closed in a thread of its own, with a warning."""

from __future__ import annotations

import logging
import warnings
from threading import Thread
from typing import TYPE_CHECKING

from reput.errors import StoreStateError

if TYPE_CHECKING:
    from reput.store.writer_services import WriterServices

logger = logging.getLogger("reput.store")

#: By the store's path.
_closing: dict[str, Thread] = {}


def close_forgotten(store: object, writer: WriterServices, refusal: StoreStateError) -> None:
    """Close what a store wrote with, and warn as Python does of files; called by the `__del__` of the store.

    In a thread of its own: the garbage collector calls this anywhere, and whoever it interrupts may hold a lock.
    """
    path = writer.reader.path
    closing = _closing[path] = Thread(target=_close, args=(path, writer, refusal), name="reput-close")
    closing.start()  # before the warning, which a filter may turn into an error
    warnings.warn(
        f"{path}: a store that is open for writing was forgotten, and is closed now; "
        "use `with MessageStore.open(...)`, or call close()",
        ResourceWarning,
        stacklevel=3,
        source=store,
    )


def wait_for_forgotten(path: str) -> None:
    """Return once a forgotten store is closed that had this directory."""
    if (closing := _closing.pop(path, None)) is not None:
        closing.join()


def _close(path: str, writer: WriterServices, refusal: StoreStateError) -> None:
    try:
        writer.stop(refusal)
        writer.end(refusal)
    except Exception:  # nobody waits for this thread; the error is told with its traceback
        logger.exception("%s: a forgotten store could not be closed; the next start recovers", path)
    finally:
        _closing.pop(path, None)
