"""A broker's verbs and state without a protocol: topics, groups, offsets, clients and locks.

Everything is called from one thread, the broker's loop, and is handed the time. What waits for the disk says so: it
may be called from any thread.
"""
