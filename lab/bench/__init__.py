"""Measurements of every hot path, beside the machine's own limits; run `make bench`."""
