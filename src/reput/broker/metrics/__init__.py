"""Metrics of a broker, for a monitoring system."""
