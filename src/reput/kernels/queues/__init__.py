"""Queues and index files: columns of records -> units and entries, and back."""
