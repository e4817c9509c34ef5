from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reput.errors import ConfigError, StoreFormatError
from reput.log.directory import StoreDirectory
from reput.log.stores import find_stores, store_names

CLEAN = Path(__file__).parents[2] / "golden" / "5.3.3" / "sync" / "store"


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    """Stores a/store, b/store, c[1]/other, and a file beside them."""
    for name in ("a/store", "b/store", "c[1]/other"):
        shutil.copytree(CLEAN, tmp_path / name)
    (tmp_path / "notes").touch()
    return tmp_path


def names(brokers: Path, *paths: str) -> list[str]:
    return [
        str(Path(store.path).relative_to(brokers)) for store in find_stores([str(brokers / path) for path in paths])
    ]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("a/store",), ["a/store"]),
        (("*/store",), ["a/store", "b/store"]),
        (("b/store", "*/store", "b/../b/store"), ["b/store", "a/store"]),
        (("c[1]/other",), ["c[1]/other"]),  # there as it stands, so no pattern
        (("[ab]/s?ore",), ["a/store", "b/store"]),
    ],
)
def test_paths_and_patterns_name_each_store_once(brokers: Path, paths: tuple[str, ...], expected: list[str]) -> None:
    assert names(brokers, *paths) == expected


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        (["x*"], StoreFormatError, r"x\*: no directory fits this pattern"),
        (["n*"], StoreFormatError, r"n\*: no directory fits this pattern"),
        (["*"], StoreFormatError, "/a: no store"),
        (["nothing"], StoreFormatError, "nothing: no such directory"),
        ([], ConfigError, "empty list"),
    ],
)
def test_what_is_no_store_is_named(brokers: Path, paths: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_stores([str(brokers / path) for path in paths])


def test_a_commit_log_elsewhere_is_that_of_one_store(brokers: Path) -> None:
    with pytest.raises(ConfigError, match="commitLogPath is for one store, but path names 2"):
        find_stores(str(brokers / "?" / "store"), commit_log_path=str(brokers))


def test_names_take_as_much_of_the_path_as_tells_them_apart(brokers: Path) -> None:
    stores = [StoreDirectory(brokers / name) for name in ("a/store", "b/store", "c[1]/other")]
    assert store_names(stores) == ["a/store", "b/store", "other"]
    assert store_names(stores[:1]) == ["store"]
