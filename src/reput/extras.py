"""Packages that reput needs for some of its work only, and the extras that install them."""

from __future__ import annotations

from importlib.util import find_spec

from reput.errors import ConfigError

_EXTRAS = {
    "deltalake": "delta",
    "duckdb": "sql",
    "fastavro": "avro",
    "fsspec": "backup",
    "google.protobuf": "protobuf",
    "lark": "filter",
    "polars": "polars",
    "prometheus_client": "metrics",
    "pyspark": "spark",
    "yaml": "acl",
}


def require(package: str, what: str) -> None:
    """Refuse a piece of work without its package, in one line and before anything is done.

    Args:
        package: Its name as in an import; one of an extra.
        what: What needs it, as an error says it: "--follow".

    Raises:
        ConfigError: It is not installed.
    """
    if not _is_there(package):
        raise ConfigError(f"{what} needs {package}: pip install 'reput[{_EXTRAS[package]}]'")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
