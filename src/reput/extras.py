"""Packages that reput needs for some of its work only, and the extras that install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from reput.errors import ConfigError

_STORE = ("numpy", "numba")
_TABLES = (*_STORE, "pyarrow")
_EXTRAS = {
    **dict.fromkeys(_STORE, "store"),
    "pyarrow": "tables",
    "deltalake": "lake",
    "duckdb": "lake",
    "fastavro": "lake",
    "fsspec": "lake",
    "google.protobuf": "lake",
    "lark": "broker",
    "polars": "lake",
    "prometheus_client": "broker",
    "pyiceberg": "lake",
    "pyspark": "spark",
    "rocksdict": "rocksdb",
    "yaml": "broker",
}


def require(package: str, what: str) -> None:
    """Refuse a piece of work without its package, in one line and before anything is done.

    Args:
        package: Its name as in an import; one of an extra.
        what: What needs it, as an error says it: "--follow".

    Raises:
        ConfigError: It is not installed.
    """
    if not is_installed(package):
        raise ConfigError(_line(package, what, _EXTRAS[package]))


def require_store(what: str) -> None:
    """Refuse a piece of work that needs the store's packages, as `require` does.

    Raises:
        ConfigError: One of them is not installed.
    """
    for package in _STORE:
        require(package, what)


def require_tables(what: str) -> None:
    """Refuse a piece of work that needs Arrow, and with it the store's packages, as `require` does.

    Raises:
        ConfigError: One of them is not installed.
    """
    for package in _TABLES:
        if not is_installed(package):
            raise ConfigError(_line(package, what, "tables"))


def has_store() -> bool:
    """Whether all packages of the store are installed."""
    return all(map(is_installed, _STORE))


def is_installed(package: str) -> bool:
    """Whether a package of an extra is installed."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def how_to_install(package: str) -> str:
    """Command that installs a package of an extra."""
    return _command(_EXTRAS[package])


def has_tables() -> bool:
    """Whether all packages of tables, and of the store, are installed."""
    return all(map(is_installed, _TABLES))


def what_to_install(error: ModuleNotFoundError, what: str) -> str | None:
    """Line about an import that failed, as `require` says it; None if no extra brings the module.

    The modules of stores and jobs import their packages as they are imported; the command tells a user here, for all
    of them. Most need Arrow, too, which then is the next import: so for the store's packages it names `tables`.
    """
    name = error.name or ""
    package = next((one for one in _EXTRAS if f"{name}.".startswith(f"{one}.")), None)
    return None if package is None else _line(package, what, "tables" if package in _TABLES else _EXTRAS[package])


@contextmanager
def saying_the_extra(module: str) -> Iterator[None]:
    """Imports of a module that say what to install, if one fails for lack of a package of an extra.

    Raises:
        ModuleNotFoundError: With the name of the package that is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (line := what_to_install(error, module)) is None:
            raise
        raise ModuleNotFoundError(line, name=error.name) from None


def _line(package: str, what: str, extra: str) -> str:
    return f"{what} needs {package}: {_command(extra)}"


def _command(extra: str) -> str:
    return f"pip install 'reput[{extra}]'"
