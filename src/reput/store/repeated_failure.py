"""RepeatedFailure: an error that comes again and again, with a line of the log when it begins and when it is over."""

from __future__ import annotations

import logging

logger = logging.getLogger("reput.store")


class RepeatedFailure:
    """Tells the log about something that is tried until it succeeds; used by one thread at a time.

    Args:
        path: What the line about its end names: a store, or a folder of one.
        begins, ends: What happens; the error follows on the first.
    """

    def __init__(self, path: str, begins: str, ends: str) -> None:
        self._path = path
        self._begins, self._ends = f"{begins}: %s", f"%s: {ends}"
        self._is_on = False

    def tell(self, error: Exception | None) -> None:
        """Called after each try, with its error; None: it has succeeded."""
        if error is not None and not self._is_on:
            logger.error(self._begins, error)
        elif error is None and self._is_on:
            logger.warning(self._ends, self._path)
        self._is_on = error is not None
