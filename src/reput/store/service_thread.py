"""ServiceThread: a thread of an open store, whose `join` returns only after the thread's end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread


class ServiceThread(Thread):
    """RocketMQ's `ServiceThread`: a thread that runs as long as the store is open.

    CPython (up to 3.12) takes a thread for ended once a KeyboardInterrupt has come into `Thread.join`. The thread would
    go on writing after the store's end. So the end is an event here.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._has_ended = Event()

    def run(self) -> None:
        """Run the target."""
        try:
            super().run()
        finally:
            self._has_ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the target has returned, also if a KeyboardInterrupt ended an earlier `join`.

        Raises RuntimeError in the thread itself.
        """
        if self is current_thread():
            raise RuntimeError("cannot join current thread")
        if self._has_ended.wait(timeout):
            super().join(timeout)
