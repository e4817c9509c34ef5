"""Reads of a log as record batches."""
