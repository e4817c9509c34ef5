"""Batches that other libraries ask for from threads of their own: the last call has returned when the interpreter ends.

Arrow's scanners, DuckDB and polars read ahead. A thread that enters Python after the interpreter's end began is ended
by it in the middle of C++: the process aborts, or waits for that thread for ever.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator
from threading import get_ident, main_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import pyarrow as pa

from reput.errors import StoreStateError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_T = TypeVar("_T")
#: At the interpreter's end, another thread counts as waiting for its consumer after this time without a call.
_QUIET_S = 0.25
_POLL_S = 0.001
#: A disk that answers no more, as of a network, holds no program up for longer.
_MOST_WAIT_S = 30.0


class OpenBatches(Iterator[_T]):
    """Iterator over batches for a consumer that may call from any thread, one call at a time.

    Raises StoreStateError once the interpreter ends, and what `batches` raises.
    """

    __slots__ = ("__weakref__", "_batches", "_is_running", "_last_call")

    def __init__(self, batches: Iterable[_T]) -> None:
        self._batches: Iterator[_T] | None = iter(batches)
        self._is_running = False
        self._last_call: float | None = None  # of a thread that is not the main thread
        _every.open.add(self)

    def __next__(self) -> _T:
        if self._batches is None:
            raise StopIteration
        self._is_running = True
        try:
            if _every.ends:
                raise StoreStateError("the program ends: no more batches are read")
            return next(self._batches)
        except BaseException:
            self._batches = None
            raise
        finally:
            self._last_call = None if get_ident() == main_thread().ident else monotonic()
            self._is_running = False

    def may_be_called(self, now: float) -> bool:
        """Whether a call runs, or another thread is on its way to the next one."""
        return self._is_running or (self._last_call is not None and now < self._last_call + _QUIET_S)


class _Every:
    """All batches that are open in this process."""

    def __init__(self) -> None:
        self.open: WeakSet[OpenBatches[Any]] = WeakSet()
        self.ends = False

    def end(self) -> None:
        """Refuse further calls, and wait for those that run, 30 s at most."""
        self.ends = True
        until = monotonic() + _MOST_WAIT_S
        while monotonic() < until and any(batches.may_be_called(monotonic()) for batches in self._copy()):
            sleep(_POLL_S)

    def _copy(self) -> list[OpenBatches[Any]]:
        while True:
            try:
                return list(self.open)
            except RuntimeError:  # another thread has made one meanwhile
                continue


_every = _Every()
atexit.register(_every.end)
os.register_at_fork(after_in_child=_every.open.clear)  # threads that called are not there


def batch_reader(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Arrow reader of batches with this schema, made on demand; see `OpenBatches`."""
    return pa.RecordBatchReader.from_batches(schema, OpenBatches(batches))


def arrow_scanner(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> ds.Scanner:
    """Scanner of Arrow's own of batches with this schema, which is read ahead by threads; see `OpenBatches`."""
    import pyarrow.dataset as ds  # what reads a log needs no datasets

    return ds.Scanner.from_batches(batch_reader(schema, batches))
