"""The version of reput."""

__version__ = "0.2.0"
