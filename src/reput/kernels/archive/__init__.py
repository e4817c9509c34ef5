"""Kernels of archives: records as the rows of a table that give every byte back (docs/formats/archive.md)."""
