"""Databases of RocksDB in a store directory: where they are, and the units of the queues in them, read only."""
