"""Packages that are published, and their last check."""
