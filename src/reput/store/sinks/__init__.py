"""Batches of Spark sinks, imports and replays into a store."""
