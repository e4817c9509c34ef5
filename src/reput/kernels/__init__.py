"""Whole batches of records as columns: compiled functions that take arrays and addresses and touch no file."""
