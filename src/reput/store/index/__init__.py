"""Index files of an open store."""
