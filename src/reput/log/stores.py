"""Several stores at once: the directories of paths and patterns, and a unique name for each."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable

from reput.errors import ConfigError, StoreFormatError
from reput.files import DISK, FileLayer
from reput.log.directory import StoreDirectory


def find_stores(
    paths: str | Iterable[str], *, commit_log_path: str | None = None, files: FileLayer = DISK
) -> list[StoreDirectory]:
    """The stores of one or several paths, each once, in the given order; the stores of a pattern are sorted.

    Args:
        paths: directories, or patterns with `*`, `?` and `[...]` that match directories. A path that exists is no
            pattern.
        commit_log_path: the commit log's folders, for a single store.

    Raises StoreFormatError for a directory that is no store and a pattern without a match, and ConfigError for a commit
    log path with several stores.
    """
    given = map(os.path.expanduser, [paths] if isinstance(paths, str) else paths)
    found = list(dict.fromkeys(os.path.abspath(path) for text in given for path in _matches(text, files)))
    if not found:
        raise ConfigError("path: an empty list; name the directory of a store")
    if commit_log_path is not None and len(found) > 1:
        raise ConfigError(f"commitLogPath is for one store, but path names {len(found)}; read them one by one")
    return [StoreDirectory(path, commit_log_path=commit_log_path, files=files) for path in found]


def store_names(stores: Iterable[StoreDirectory]) -> list[str]:
    """Names of the directories; equal names get as many parent folders as are needed to tell them apart."""
    parts = [store.path.strip("/").split("/") for store in stores]
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(part[-length:]) for part, length in zip(parts, lengths, strict=True)]
        counts = Counter(names)
        if len(counts) == len(names):
            return names
        lengths = [length + (counts[name] > 1) for length, name in zip(lengths, names, strict=True)]


def _matches(text: str, files: FileLayer) -> list[str]:
    if files.exists(text) or not glob.has_magic(text):
        return [text]
    found = sorted(path for path in glob.glob(text) if files.is_directory(path))
    if not found:
        raise StoreFormatError(f"{text}: no directory fits this pattern; check it for a slip")
    return found
