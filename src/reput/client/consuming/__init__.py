"""Consumers: groups, their queues and offsets, and who handles the messages."""
