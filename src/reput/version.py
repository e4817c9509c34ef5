"""The version of reput."""

__version__ = "0.3.0"
