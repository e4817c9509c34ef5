"""The commit log of an open store: files, appends, syncs."""
