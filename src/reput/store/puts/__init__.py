"""Puts: messages into the log."""
