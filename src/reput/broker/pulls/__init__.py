"""Requests for messages: pulls, those that wait, and queries."""
