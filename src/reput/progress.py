"""Progress of an operation: the callable that gets how far it is, and one that does nothing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Callable that gets from time to time how far an operation is.

    It is called in the thread that started the operation. An operation of several steps begins each at 0 again, with
    another description.
    """

    def __call__(self, done: int, total: int, description: str, /) -> None:
        """`done` of `total` tasks or bytes of the step that `description` names are done."""
        ...


class _Silent:
    def __call__(self, done: int, total: int, description: str, /) -> None: ...

    def __repr__(self) -> str:  # signatures show it
        return "silent"


#: Progress for callers who gave none: it does nothing.
silent: Progress = _Silent()
