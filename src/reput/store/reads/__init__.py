"""Reads: pulls of a queue, and queries by key, time, offset and id."""
