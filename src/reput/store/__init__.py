"""The writing half: one store directory, one writer, its threads and its locks."""
