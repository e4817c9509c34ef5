"""Transactions: their ends, and the checks of those that nobody has ended."""
