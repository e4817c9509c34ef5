"""Sizes of a store's files, found from the files."""
