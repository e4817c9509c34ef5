"""Requests are checked before they are done, and users and policies are administered."""
