"""Datasets over a log, which DuckDB, polars and Arrow scan with their own filters."""
