"""Dispatch of a batch of the log by tasks: plan, scan, join, write; the dispatcher itself is the store's."""
