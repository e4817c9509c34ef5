"""Producers: one message, batches, tables, transactions, requests."""
