"""Index files of an open store, and their recovery."""
