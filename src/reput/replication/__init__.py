"""Replication: the log of a master, byte by byte, into a store of this machine."""
