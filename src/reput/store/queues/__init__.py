"""Consume queues and batch consume queues of an open store."""
