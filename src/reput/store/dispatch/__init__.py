"""Dispatch: units of queues and entries of the index from records of the log."""
