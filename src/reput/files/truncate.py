"""Cut of a series of files, as a commit log's: the one order in which every cut goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reput.files.layer import FileLayer

#: Copies a file's bytes from a position on durably, and returns the path of the copy.
KeepTail = Callable[[FileLayer, str, int], str]


def truncate_files(
    files: FileLayer, series: Sequence[tuple[str, int]], end: int, *, keep: KeepTail | None = None
) -> list[str]:
    """Cut a series of files at an offset, durably (RocketMQ's `truncateDirtyFiles`).

    Files that begin at the end or after it are removed, the first file of the series never; the rest of the last file
    becomes zeros. The last file goes first, and each step is durable before the next one: a kill or a power cut leaves
    a series without a gap, and the same call ends the same.

    Args:
        files: The file layer.
        series: (path, offset of the first byte) of each file, in order.
        end: Offset after the last byte that stays.
        keep: Keeps the bytes that go, if there are any: called before each change.

    Returns:
        Paths of the copies that `keep` has made.
    """
    kept: list[str] = []
    for number, (path, start) in reversed(list(enumerate(series))):
        position = max(end - start, 0)
        goes = number > 0 and start >= end
        with files.open(path, writable=not goes) as file:
            if keep is not None and file.has_data_from(position):
                kept.append(keep(files, path, position))
            if not goes:
                file.zero_from(position)
                file.sync()
                break
        files.unlink(path)
    return kept
